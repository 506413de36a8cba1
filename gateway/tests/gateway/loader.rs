//! Models loaded from a real gateway by the user-space client: whole, in part,
//! over connections that break, and through a restart of the server.

use crate::model_files::{ModelFile, write_index};
use rustix::process::Signal;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zgate_loader::model::checksum::Verify;
use zgate_loader::model::{LoadError, Part, Share};
use zgate_loader::{Client, ClientOptions, File, Load, LoadOptions, Model, OpenMode, Plan, Wanted};
use zgate_test_harness::{
    Gateway, handles_survive_restarts, loader_options, noise, runtime, zgate_binary,
};

/// Content of a model: tensor by name, with its shape.
pub(crate) type Contents = BTreeMap<String, (Vec<u64>, Vec<u8>)>;

/// Writes a model of `shards` files with an index; returns its content.
pub(crate) fn write_model(dir: &Path, shards: u64, rows: u64) -> Contents {
    let (mut all, mut files) = (Contents::new(), BTreeMap::new());
    for shard in 0..shards {
        let file = format!("model-{shard:05}.safetensors");
        let mut model = ModelFile::default();
        for number in 0..4u64 {
            if number == 2 {
                // An empty tensor has the offset of the next one.
                let name = format!("layer.{shard}.z.empty");
                model.add(&name, "F32", &[0, 7], &[]);
                files.insert(name.clone(), file.clone());
                all.insert(name, (vec![0, 7], Vec::new()));
            }
            let name = format!("layer.{shard}.{number}.weight");
            let shape = vec![rows, 128 * (number + 1)];
            let bytes = noise(shard * 10 + number, (shape[0] * shape[1] * 2) as usize);
            let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            model.describe(format!("sha256:{name}"), sum);
            model.add(&name, "BF16", &shape, &bytes);
            files.insert(name.clone(), file.clone());
            all.insert(name, (shape, bytes));
        }
        model.write(&dir.join(file));
    }
    write_index(dir, &files);
    all
}

pub(crate) fn options() -> ClientOptions {
    loader_options(3)
}

pub(crate) async fn open(address: SocketAddr, path: &str) -> Result<Model, LoadError> {
    let client = Client::connect(address, &options()).await.unwrap();
    Model::open(Arc::new(client), path).await
}

/// Loads and compares; calls `at_half` when half has been loaded.
async fn load_all(model: &Model, contents: &Contents, at_half: impl FnOnce()) -> usize {
    let settings =
        LoadOptions { inflight_bytes: 4 << 20, verify: Verify::Tensors, ..LoadOptions::default() };
    let plan = Plan::new(model, &Wanted::default()).unwrap();
    let mut load = Load::start(model, plan, &settings);
    let (mut seen, mut at_half) = (0, Some(at_half));
    while let Some(tensor) = load.next().await.unwrap() {
        let (shape, bytes) = &contents[&tensor.name];
        assert_eq!(&tensor.shape, shape, "{}", tensor.name);
        assert!(tensor.data == bytes[..], "{} differs", tensor.name);
        seen += 1;
        if seen == contents.len() / 2 {
            at_half.take().unwrap()();
        }
    }
    assert_eq!(load.progress().done_bytes(), load.total_bytes());
    seen
}

#[test]
fn a_sharded_model_comes_whole_or_in_part() {
    let gateway = Gateway::start(20);
    let contents = write_model(&gateway.export().join("m"), 3, 1024);
    runtime().block_on(async {
        let model = open(gateway.address, "/export/m").await.unwrap();
        assert_eq!(model.shards().len(), 3);
        assert_eq!(load_all(&model, &contents, || {}).await, 15);

        // Two tensors, of which this rank needs the second half of the columns.
        let names = ["layer.0.1.weight", "layer.2.3.weight"].map(str::to_owned);
        let part = Part { dim: 1, rank: 1, ranks: 2 };
        let wanted = Wanted { names: Some(names.to_vec()), part: Some(part) };
        let plan = Plan::new(&model, &wanted).unwrap();
        let mut load = Load::start(&model, plan, &LoadOptions::default());
        while let Some(tensor) = load.next().await.unwrap() {
            let (shape, bytes) = &contents[&tensor.name];
            let row = shape[1] as usize * 2;
            let expected: Vec<u8> =
                bytes.chunks(row).flat_map(|row_bytes| &row_bytes[row / 2..]).copied().collect();
            assert_eq!(tensor.shape, [shape[0], shape[1] / 2]);
            assert!(tensor.data == expected[..], "{} differs", tensor.name);
        }
        // Half of the rows is half of the bytes.
        let part = Part { dim: 0, rank: 0, ranks: 2 };
        let half = Plan::new(&model, &Wanted { names: None, part: Some(part) }).unwrap();
        let bytes: usize = contents.values().map(|(_, bytes)| bytes.len()).sum();
        assert!(half.bytes() < bytes as u64 * 6 / 10 + (1 << 20));

        let wanted = Wanted { names: Some(vec!["weight".into()]), part: None };
        let error = Plan::new(&model, &wanted).unwrap_err().to_string();
        assert!(error.contains("no tensor weight; there is layer."), "{error}");
        model.close().await.unwrap();
    });
}

#[test]
fn ranks_of_one_host_read_each_byte_once() {
    let gateway = Gateway::start(20);
    let contents = write_model(&gateway.export().join("m"), 3, 4096);
    let share = Share { ranks: 3, group: format!("test-{}", std::process::id()) };
    runtime().block_on(async {
        let rank = || async {
            let model = open(gateway.address, "/export/m").await.unwrap();
            let before = model.client().counters().read();
            let plan = Plan::new(&model, &Wanted::default()).unwrap();
            let settings = LoadOptions { share: Some(share.clone()), ..LoadOptions::default() };
            let mut load = Load::start(&model, plan, &settings);
            let mut seen = 0;
            while let Some(tensor) = load.next().await.unwrap() {
                assert!(tensor.data == contents[&tensor.name].1[..], "{} differs", tensor.name);
                seen += 1;
            }
            assert_eq!(seen, contents.len());
            let after = model.client().counters().read();
            let read = after.socket_bytes + after.copied_bytes;
            (load.total_bytes(), read - before.socket_bytes - before.copied_bytes)
        };
        let (first, second, third) = tokio::join!(rank(), rank(), rank());
        assert_eq!(first.1 + second.1 + third.1, first.0, "{first:?} {second:?} {third:?}");
    });
}

#[test]
fn damage_and_wrong_files_are_told() {
    let gateway = Gateway::start(20);
    let dir = gateway.export().join("m");
    write_model(&dir, 1, 256);
    let file = dir.join("model-00000.safetensors");
    let good = std::fs::read(&file).unwrap();
    runtime().block_on(async {
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        let model = open(gateway.address, "/export/m").await.unwrap();
        let plan = Plan::new(&model, &Wanted::default()).unwrap();
        let settings = LoadOptions { verify: Verify::Tensors, ..LoadOptions::default() };
        let mut load = Load::start(&model, plan, &settings);
        let error = loop {
            match load.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("damage went unnoticed"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("layer.0.3.weight") && error.contains("damaged"), "{error}");

        std::fs::write(&file, &good[..last]).unwrap();
        let error = open(gateway.address, "/export/m").await.unwrap_err().to_string();
        assert!(
            error.contains("model-00000.safetensors") && error.contains("describes"),
            "{error}"
        );
        std::fs::write(&file, b"not a model").unwrap();
        assert!(open(gateway.address, "/export/m").await.is_err());
        let error = open(gateway.address, "/export/nothing").await.unwrap_err().to_string();
        assert!(error.contains("/export/nothing: NFS4ERR_NOENT, /export can"), "{error}");
    });
}

#[test]
fn a_restart_of_the_server_is_survived() {
    if !handles_survive_restarts("a_restart_of_the_server_is_survived") {
        return;
    }
    let mut gateway = Gateway::start(5);
    let contents = write_model(&gateway.export().join("m"), 4, 4096);
    let address = gateway.address;
    runtime().block_on(async {
        let model = open(address, "/export/m").await.unwrap();
        let seen = load_all(&model, &contents, || {
            gateway.kill();
            gateway.restart();
        });
        assert_eq!(seen.await, contents.len());
        model.close().await.unwrap();
    });
    let log = std::fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

/// Proxy that cuts every connection after some bytes.
struct Cutter {
    address: SocketAddr,
    cuts: Arc<AtomicU64>,
}

impl Cutter {
    fn start(server: SocketAddr, every_bytes: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&cuts);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                let ends = Arc::new(Mutex::new(vec![
                    client.try_clone().unwrap(),
                    upstream.try_clone().unwrap(),
                ]));
                let (back, cuts) = (Arc::clone(&ends), Arc::clone(&counted));
                let (up, down) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || pass(client, upstream, u64::MAX, &ends, &cuts));
                let cuts = Arc::clone(&counted);
                std::thread::spawn(move || pass(up, down, every_bytes, &back, &cuts));
            }
        });
        Self { address, cuts }
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    most: u64,
    ends: &Mutex<Vec<TcpStream>>,
    cuts: &AtomicU64,
) {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
        passed += got as u64;
        if passed > most {
            cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    for end in ends.lock().unwrap().drain(..) {
        let _ = end.shutdown(Shutdown::Both);
    }
}

#[test]
fn connections_that_break_are_made_again() {
    let gateway = Gateway::start(20);
    let contents = write_model(&gateway.export().join("m"), 2, 4096);
    let cutter = Cutter::start(gateway.address, 3 << 20);
    runtime().block_on(async {
        let model = open(cutter.address, "/export/m").await.unwrap();
        assert_eq!(load_all(&model, &contents, || {}).await, contents.len());
    });
    let cuts = cutter.cuts.load(Ordering::Relaxed);
    assert!(cuts >= 3, "only {cuts} connections were cut");
}

/// Proxy that withholds the server's answers on demand.
struct Holder {
    address: SocketAddr,
    held: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
}

impl Holder {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (held, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_held, count) = (Arc::clone(&held), Arc::clone(&waiting));
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let mut server = TcpStream::connect(server).unwrap();
                let (mut back, mut out) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut client, &mut server));
                let (held, waiting) = (Arc::clone(&is_held), Arc::clone(&count));
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(got @ 1..) = back.read(&mut buffer) {
                        waiting.fetch_add(1, Ordering::SeqCst);
                        while held.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        waiting.fetch_sub(1, Ordering::SeqCst);
                        let _ = out.write_all(&buffer[..got]);
                    }
                });
            }
        });
        Self { address, held, waiting }
    }
}

#[test]
fn a_slot_whose_request_was_given_up_gives_nobody_its_answer() {
    let gateway = Gateway::start(20);
    for (name, len) in [("first", 1), ("second", 22), ("third", 333)] {
        std::fs::write(gateway.export().join(name), vec![7; len]).unwrap();
    }
    let holder = Holder::start(gateway.address);
    runtime().block_on(async {
        // One slot: the next request must use the one that was abandoned.
        let options = ClientOptions { connections: 1, slots: 1, ..options() };
        let client = Client::connect(holder.address, &options).await.unwrap();
        assert_eq!(client.slots(), 1);
        let size = async |name: &str| client.find(name).await.unwrap().size;
        assert_eq!(size("/export/first").await, 1);

        // The server has run the request; its answer is withheld, and the
        // client has given up.
        holder.held.store(true, Ordering::SeqCst);
        {
            let given_up = client.find("/export/second");
            let mut given_up = std::pin::pin!(given_up);
            while holder.waiting.load(Ordering::SeqCst) == 0 {
                let short = Duration::from_millis(20);
                assert!(tokio::time::timeout(short, given_up.as_mut()).await.is_err());
            }
        }
        holder.held.store(false, Ordering::SeqCst);
        assert_eq!(size("/export/third").await, 333);

        // The server receives it after the client has given up.
        gateway.freeze();
        let short = Duration::from_millis(100);
        assert!(tokio::time::timeout(short, client.find("/export/second")).await.is_err());
        gateway.signal(Signal::CONT);
        assert_eq!(size("/export/first").await, 1);
        assert_eq!(size("/export/second").await, 22);
    });
}

/// Returns the names of the clients known to the gateway.
pub(crate) fn clients(gateway: &Gateway) -> Vec<serde_json::Value> {
    let said = gateway.command(&["clients", "--json"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    said.as_array().cloned().unwrap_or_else(|| vec![said])
}

#[test]
fn a_client_that_leaves_is_forgotten_at_once() {
    let gateway = Gateway::start(60);
    write_model(&gateway.export().join("m"), 1, 256);
    runtime().block_on(async {
        let model = open(gateway.address, "/export/m").await.unwrap();
        assert_eq!(clients(&gateway).len(), 1);
        let client = Arc::clone(model.client());
        model.close().await.unwrap();
        client.close().await;
        assert_eq!(clients(&gateway), Vec::<serde_json::Value>::new());

        // A client that is only dropped unregisters, too.
        drop(Client::connect(gateway.address, &options()).await.unwrap());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !clients(&gateway).is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "it has not left");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let url = format!("nfs://127.0.0.1:{}/export/m", gateway.address.port());
    for command in [vec!["load"], vec!["ls"], vec!["ls", "--tensors"]] {
        let mut program = std::process::Command::new(zgate_binary());
        let said = program.args(&command).arg(&url).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(clients(&gateway).len(), 0, "{command:?}");
    }
}

#[test]
fn a_server_that_is_not_up_yet_is_waited_for() {
    let mut gateway = Gateway::start(5);
    write_model(&gateway.export().join("m"), 1, 256);
    let address = gateway.address;
    gateway.kill();
    runtime().block_on(async {
        let short = ClientOptions { wait: Duration::from_millis(200), ..options() };
        let error = Client::connect(address, &short).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        let begun = tokio::time::Instant::now();
        let restart = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            gateway.restart();
        };
        let (opened, ()) = tokio::join!(open(address, "/export/m"), restart);
        opened.unwrap().close().await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(500));
    });
}

#[test]
fn a_client_outlives_the_runtime_it_was_made_on() {
    let gateway = Gateway::start(5);
    std::fs::write(gateway.export().join("file"), b"content").unwrap();
    let (client, file) = runtime().block_on(async {
        let client = Client::connect(gateway.address, &options()).await.unwrap();
        let dir = client.find("/export").await.unwrap().fh;
        let file = File::open(&client, &dir, "file", OpenMode::Read).await.unwrap();
        (client, file)
    });
    let runtime = runtime();
    runtime.block_on(async {
        // The tasks of the first runtime have ended: its connections and state
        // are created again.
        let (_, read) = file.read(&client, 0, 100).await.unwrap();
        assert_eq!(&read[..], b"content");
    });
    drop(runtime);
    // Without a runtime it cannot unregister, and does not try.
    drop((file, client));
}
