//! Files opened by a loader's client are delegated to it: a writer waits for
//! the recall and no longer, reading continues, and a load whose files were
//! changed reports that.

use crate::model_files::ModelFile;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zgate_fabric::EmulatedFabric;
use zgate_loader::model::LoadError;
use zgate_loader::transport::TransportChoice;
use zgate_loader::url::Rdma;
use zgate_loader::{
    Client, ClientOptions, DelegationCounts, File, Load, LoadOptions, Model, OpenMode, Plan, Wanted,
};
use zgate_nfs_wire::v4::Status;
use zgate_test_harness::{
    Client as Other, Gateway, Opened, free_port, handles_survive_restarts, loader_options, noise,
    runtime, wait_for_listener,
};

/// Much shorter than any lease.
const PROMPT: Duration = Duration::from_secs(3);
const FILE_BYTES: usize = 100_000;
const TENSOR_BYTES: usize = 4 << 20;

fn options() -> ClientOptions {
    loader_options(2)
}

fn write_file(gateway: &Gateway) -> Vec<u8> {
    let content = noise(1, FILE_BYTES);
    std::fs::write(gateway.export().join("file"), &content).unwrap();
    content
}

/// Opens the file with another client.
async fn open_file(address: SocketAddr, options: &ClientOptions) -> (Client, File) {
    let client = Client::connect(address, options).await.unwrap();
    let file = open_again(&client).await;
    (client, file)
}

async fn open_model(client: &Arc<Client>) -> Model {
    Model::open(Arc::clone(client), "/export/m").await.unwrap()
}

async fn open_again(client: &Client) -> File {
    let dir = client.find("/export").await.unwrap().fh;
    File::open(client, &dir, "file", OpenMode::Read).await.unwrap()
}

async fn read_all(client: &Client, file: &File) -> Vec<u8> {
    file.read(client, 0, FILE_BYTES as u32).await.unwrap().1.to_vec()
}

/// Opens for writing, retrying on NFS4ERR_DELAY; returns how long that took.
fn open_to_write(other: &mut Other, path: &[&str]) -> (Opened, Duration) {
    let (name, dirs) = path.split_last().unwrap();
    let mut dir = other.root.clone();
    for name in dirs {
        dir = other.lookup(&dir, name).unwrap();
    }
    let begun = Instant::now();
    loop {
        match other.open_existing(&dir, name) {
            Ok(opened) => return (opened, begun.elapsed()),
            Err(error) => {
                let status = error.status().unwrap();
                assert!(matches!(status, Status::Delay | Status::Grace), "{error}");
                assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The same for a writer that must not wait as long as `limit`.
fn open_within(limit: Duration, other: &mut Other, path: &[&str]) -> Opened {
    let (opened, took) = open_to_write(other, path);
    assert!(took < limit, "the writer waited for {took:?}");
    opened
}

/// Waits until the condition holds.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the number of delegations that the gateway has granted and that are
/// not returned.
fn given(gateway: &Gateway) -> u64 {
    of_all_clients(gateway, "delegations")
}

/// Sum of a number over all clients.
fn of_all_clients(gateway: &Gateway, what: &str) -> u64 {
    let said = gateway.command(&["clients", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    said.as_array().unwrap().iter().map(|one| one[what].as_u64().unwrap()).sum()
}

/// Opens and reads one file, opens it for writing from another client, changes
/// it, and reads it again.
async fn recall(gateway: &Gateway, options: &ClientOptions, content: &[u8]) {
    let (client, file) = open_file(gateway.address, options).await;
    let held = DelegationCounts { held: 1, granted: 1, ..DelegationCounts::default() };
    assert_eq!((client.delegations(), given(gateway)), (held, 1));
    assert!(read_all(&client, &file).await == content);

    let mut other = Other::ready(gateway, "writer");
    let opened = open_within(PROMPT, &mut other, &["file"]);
    let recalled = DelegationCounts { granted: 1, recalled: 1, ..DelegationCounts::default() };
    assert_eq!((client.delegations(), given(gateway)), (recalled, 0));
    assert!(read_all(&client, &file).await == content);
    assert!(file.is_unchanged(&client).await.unwrap());

    other.write(&opened, 0, 2, b"changed").unwrap();
    assert_eq!(&read_all(&client, &file).await[..7], b"changed");
    assert!(!file.is_unchanged(&client).await.unwrap());
    other.close(&opened).unwrap();
    file.close(&client).await.unwrap();
    client.close().await;
}

#[test]
fn a_writer_waits_for_the_recall_alone_and_reading_goes_on() {
    let gateway = Gateway::start(60);
    let content = write_file(&gateway);
    runtime().block_on(recall(&gateway, &options(), &content));
}

#[test]
fn a_change_is_seen_without_a_delegation() {
    let gateway = Gateway::start(60);
    write_file(&gateway);
    runtime().block_on(async {
        // Nothing is delegated that another client has open for writing.
        let mut other = Other::ready(&gateway, "writer");
        let (opened, _) = open_to_write(&mut other, &["file"]);
        let (client, file) = open_file(gateway.address, &options()).await;
        assert!(!file.is_delegated());
        assert!(file.is_unchanged(&client).await.unwrap());
        other.write(&opened, 0, 2, b"changed").unwrap();
        assert!(!file.is_unchanged(&client).await.unwrap());
        other.close(&opened).unwrap();
        file.close(&client).await.unwrap();
    });
}

#[test]
fn a_delegated_file_can_be_replaced_and_removed() {
    let gateway = Gateway::start(60);
    let content = write_file(&gateway);
    std::fs::write(gateway.export().join("new"), b"new").unwrap();
    runtime().block_on(async {
        let (client, file) = open_file(gateway.address, &options()).await;
        let (other, new) = open_file(gateway.address, &options()).await;
        assert_eq!(given(&gateway), 2);
        let dir = other.find("/export").await.unwrap().fh;
        let begun = Instant::now();
        other.rename(&dir, "new", "file").await.unwrap();
        assert!(begun.elapsed() < PROMPT);
        // The old file stays as long as it is open.
        assert!(read_all(&client, &file).await == content);
        assert!(read_all(&other, &new).await == content);

        let replaced = open_again(&client).await;
        assert_eq!(&read_all(&client, &replaced).await[..], b"new");
        let begun = Instant::now();
        other.remove(&dir, "file").await.unwrap();
        assert!(begun.elapsed() < PROMPT);
        assert_eq!(&read_all(&client, &replaced).await[..], b"new");
    });
}

#[test]
fn callbacks_are_answered_over_rdma() {
    let port = free_port();
    let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(60, &more);
    wait_for_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let content = write_file(&gateway);
    runtime().block_on(async {
        let fabric = Arc::new(EmulatedFabric::new());
        let transport = TransportChoice::over(fabric, Rdma::On, port);
        recall(&gateway, &ClientOptions { transport, ..options() }, &content).await;
    });
}

#[test]
fn what_is_closed_dropped_or_left_is_given_back() {
    let gateway = Gateway::start(60);
    write_file(&gateway);
    runtime().block_on(async {
        let (client, file) = open_file(gateway.address, &options()).await;
        file.close(&client).await.unwrap();
        assert_eq!((client.delegations().held, given(&gateway)), (0, 0));
        drop(open_again(&client).await);
        until("it is given back", || given(&gateway) == 0).await;
        let file = open_again(&client).await;
        assert_eq!((client.delegations().granted, given(&gateway)), (3, 1));
        client.close().await;
        let said = gateway.command(&["clients", "--json"]).stdout;
        assert_eq!(String::from_utf8_lossy(&said).trim(), "[]", "it is gone");
        drop(file);
    });
}

/// A file that was closed by accident would be reclaimed after a restart, as if nobody could have
/// written to it.
#[test]
fn a_file_that_is_opened_twice_stays_open_when_one_is_closed() {
    let gateway = Gateway::start(60);
    let content = write_file(&gateway);
    runtime().block_on(async {
        let (client, file) = open_file(gateway.address, &options()).await;
        let other = open_again(&client).await;
        assert_eq!(of_all_clients(&gateway, "opens"), 2);
        other.close(&client).await.unwrap();
        assert_eq!(of_all_clients(&gateway, "opens"), 1);
        assert!(read_all(&client, &file).await == content);
        file.close(&client).await.unwrap();
        assert_eq!(of_all_clients(&gateway, "opens"), 0);
    });
}

/// Writes a model of one file that is read in three stretches of eight tensors.
fn write_model(dir: &Path) {
    let mut model = ModelFile::default();
    for number in 0..24u8 {
        model.add_bytes(&format!("t.{number:02}"), &vec![number; TENSOR_BYTES]);
    }
    model.write(&dir.join("model.safetensors"));
}

/// Loads the model; calls `at_third` when a third of it has been loaded.
async fn load(model: &Model, at_third: impl FnOnce()) -> Result<usize, LoadError> {
    let settings = LoadOptions { inflight_bytes: 2 << 20, ..LoadOptions::default() };
    let mut load = Load::start(model, Plan::new(model, &Wanted::default()).unwrap(), &settings);
    let (mut seen, mut at_third) = (0, Some(at_third));
    while load.next().await?.is_some() {
        seen += 1;
        if seen == 8 {
            at_third.take().unwrap()();
        }
    }
    Ok(seen)
}

#[test]
fn a_load_whose_file_was_changed_fails() {
    let gateway = Gateway::start(60);
    write_model(&gateway.export().join("m"));
    runtime().block_on(async {
        let client = Arc::new(Client::connect(gateway.address, &options()).await.unwrap());
        let model = open_model(&client).await;
        assert_eq!(client.delegations().held, 1);
        let mut other = Other::ready(&gateway, "writer");
        let path = ["m", "model.safetensors"];

        // A writer that opens but does not write does no harm.
        let seen = load(&model, || {
            let opened = open_within(PROMPT, &mut other, &path);
            other.close(&opened).unwrap();
        });
        assert_eq!(seen.await.unwrap(), 24);
        assert_eq!(client.delegations().recalled, 1);

        let changed = load(&model, || {
            let (opened, _) = open_to_write(&mut other, &path);
            other.write(&opened, 20 << 20, 2, &[0; 4096]).unwrap();
            other.close(&opened).unwrap();
        });
        let error = changed.await.unwrap_err();
        let LoadError::Changed { file } = &error else { panic!("{error}") };
        assert_eq!(file, "model.safetensors");
        assert_eq!(error.to_string(), "model.safetensors: the file was changed while it was read");
        model.close().await.unwrap();

        let again = open_model(&client).await;
        assert_eq!(load(&again, || ()).await.unwrap(), 24);
    });
}

#[test]
fn a_delegation_is_reclaimed_after_a_restart() {
    if !handles_survive_restarts("a_delegation_is_reclaimed_after_a_restart") {
        return;
    }
    let mut gateway = Gateway::start(5);
    let content = write_file(&gateway);
    runtime().block_on(async {
        let (client, file) = open_file(gateway.address, &options()).await;
        gateway.kill();
        gateway.restart();
        until("it is reclaimed", || client.delegations().granted == 2).await;
        let expected = DelegationCounts { held: 1, granted: 2, ..DelegationCounts::default() };
        assert_eq!((client.delegations(), given(&gateway)), (expected, 1));
        assert!(read_all(&client, &file).await == content);
        assert!(file.is_unchanged(&client).await.unwrap());

        let mut other = Other::ready(&gateway, "writer");
        let (opened, _) = open_to_write(&mut other, &["file"]);
        assert_eq!(client.delegations().recalled, 1);
        other.write(&opened, 0, 2, b"changed").unwrap();
        assert!(!file.is_unchanged(&client).await.unwrap());
    });
}

/// Proxy that cuts connections, or withholds the server's calls, on demand.
struct Proxy {
    address: SocketAddr,
    keeps_calls: Arc<AtomicBool>,
    kept: Arc<AtomicU64>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            keeps_calls: Arc::default(),
            kept: Arc::default(),
            ends: Arc::default(),
        };
        let (keeps, kept) = (Arc::clone(&proxy.keeps_calls), Arc::clone(&proxy.kept));
        let ends = Arc::clone(&proxy.ends);
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let Ok(mut upstream) = TcpStream::connect(server) else { continue };
                let (mut back, mut out) =
                    (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                for end in [&client, &upstream] {
                    ends.lock().unwrap().push(end.try_clone().unwrap());
                }
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut client, &mut upstream);
                    let _ = upstream.shutdown(Shutdown::Both);
                });
                let (keeps, kept) = (Arc::clone(&keeps), Arc::clone(&kept));
                std::thread::spawn(move || {
                    while let Ok(record) = record(&mut back) {
                        // The message type behind marker and number: a call.
                        if record[8..12] == [0; 4] && keeps.load(Ordering::SeqCst) {
                            kept.fetch_add(1, Ordering::SeqCst);
                        } else if out.write_all(&record).is_err() {
                            break;
                        }
                    }
                    let _ = out.shutdown(Shutdown::Both);
                });
            }
        });
        proxy
    }

    fn cut(&self) {
        for end in self.ends.lock().unwrap().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Reads a record with its marker.
fn record(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut marker = [0; 4];
    from.read_exact(&mut marker)?;
    let len = (u32::from_be_bytes(marker) & 0x7fff_ffff) as usize;
    let mut record = vec![0; 4 + len];
    record[..4].copy_from_slice(&marker);
    from.read_exact(&mut record[4..])?;
    Ok(record)
}

#[test]
fn a_lost_back_channel_is_made_again_at_once() {
    let gateway = Gateway::start(60);
    let content = write_file(&gateway);
    let proxy = Proxy::start(gateway.address);
    runtime().block_on(async {
        let (client, file) = open_file(proxy.address, &options()).await;
        proxy.cut();
        // No request is sent meanwhile.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut other = Other::ready(&gateway, "writer");
        open_within(PROMPT, &mut other, &["file"]);
        let recalled = DelegationCounts { granted: 1, recalled: 1, ..DelegationCounts::default() };
        assert_eq!(client.delegations(), recalled);
        assert!(read_all(&client, &file).await == content);
    });
}

#[test]
fn a_recall_that_comes_while_the_way_is_cut_comes_again() {
    let gateway = Gateway::start(60);
    let content = write_file(&gateway);
    let proxy = Proxy::start(gateway.address);
    runtime().block_on(async {
        let (client, file) = open_file(proxy.address, &options()).await;
        // The recall is lost, and then its connection.
        proxy.keeps_calls.store(true, Ordering::SeqCst);
        let mut other = Other::ready(&gateway, "writer");
        let root = other.root.clone();
        let refused = other.open_existing(&root, "file").unwrap_err();
        assert_eq!(refused.status(), Some(Status::Delay));
        until("the recall is sent", || proxy.kept.load(Ordering::SeqCst) > 0).await;
        proxy.keeps_calls.store(false, Ordering::SeqCst);
        proxy.cut();
        open_within(Duration::from_secs(15), &mut other, &["file"]);
        assert_eq!(client.delegations().recalled, 1);
        assert!(read_all(&client, &file).await == content);
    });
}

#[test]
fn what_was_revoked_is_acknowledged() {
    let gateway = Gateway::start(5);
    let content = write_file(&gateway);
    let proxy = Proxy::start(gateway.address);
    runtime().block_on(async {
        let (client, file) = open_file(proxy.address, &options()).await;
        proxy.keeps_calls.store(true, Ordering::SeqCst);
        let mut other = Other::ready(&gateway, "writer");
        // Without an answer for a lease time the server revokes the delegation.
        let (opened, took) = tokio::task::block_in_place(|| open_to_write(&mut other, &["file"]));
        assert!(took > Duration::from_secs(3), "nobody answered the recall");
        other.write(&opened, 0, 2, b"changed").unwrap();
        until("it is known here", || client.delegations().held == 0).await;
        let lost = DelegationCounts { granted: 1, lost: 1, ..DelegationCounts::default() };
        assert_eq!(client.delegations(), lost);
        let read = read_all(&client, &file).await;
        assert!(read[..7] == *b"changed" && read[7..] == content[7..]);
        assert!(!file.is_unchanged(&client).await.unwrap());
        file.close(&client).await.unwrap();
    });
}
