//! Clients of the loader that end in every way: done, failed, stopped by a
//! signal, by a panic, in the middle of a request, with a connection that is
//! silent. The gateway lists none of them afterwards.

use crate::loader::{clients, open, options, write_model};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zgate_loader::{
    Client, ClientError, ClientOptions, File, LEAVE_TIMEOUT, Load, LoadOptions, OpenMode, Plan,
    Wanted, all_left,
};
use zgate_test_harness::{Gateway, loader_options, runtime, zgate_binary};

/// The longest an event that must come may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Long enough that an expired lease removes no client during a test.
const LEASE_SECONDS: u32 = 60;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Decides whether an answer is passed on: number of its connection, number of
/// the answer on it.
type Passes = dyn Fn(u64, u64) -> bool + Send + Sync;

/// Proxy that withholds answers; a connection that missed one gets no more.
struct Mute {
    address: SocketAddr,
    accepted: Arc<AtomicU64>,
    withheld: Arc<AtomicU64>,
}

impl Mute {
    fn start(
        server: SocketAddr,
        passes: impl Fn(u64, u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, withheld) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (count, missed) = (Arc::clone(&accepted), Arc::clone(&withheld));
        let passes: Arc<Passes> = Arc::new(passes);
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let Ok(mut upstream) = TcpStream::connect(server) else { continue };
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (back, out) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut client, &mut upstream));
                let (passes, missed) = (Arc::clone(&passes), Arc::clone(&missed));
                std::thread::spawn(move || answers(number, back, out, &*passes, &missed));
            }
        });
        Self { address, accepted, withheld }
    }

    fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::SeqCst)
    }
}

fn answers(
    number: u64,
    mut from: TcpStream,
    mut to: TcpStream,
    passes: &Passes,
    missed: &AtomicU64,
) {
    let (mut buffer, mut silent) = (vec![0; 64 << 10], false);
    for answer in 0.. {
        let Ok(got @ 1..) = from.read(&mut buffer) else { return };
        silent |= !passes(number, answer);
        if silent {
            missed.fetch_add(1, Ordering::SeqCst);
        } else if to.write_all(&buffer[..got]).is_err() {
            return;
        }
    }
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("nfs://127.0.0.1:{}{path}", address.port())
}

fn zgate(args: &[&str]) -> Output {
    Command::new(zgate_binary()).args(args).output().unwrap()
}

fn start_zgate(args: &[&str]) -> Child {
    let mut command = Command::new(zgate_binary());
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Asserts that the gateway knows no client.
fn none_left(gateway: &Gateway, after: &str) {
    assert_eq!(clients(gateway), Vec::<serde_json::Value>::new(), "after {after}");
}

#[test]
fn commands_that_fail_leave_no_client() {
    let gateway = Gateway::start(LEASE_SECONDS);
    let dir = gateway.export().join("m");
    write_model(&dir, 2, 256);
    let damaged = gateway.export().join("damaged");
    write_model(&damaged, 2, 256);
    let shard = damaged.join("model-00001.safetensors");
    let good = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &good[..good.len() - 1]).unwrap();
    let changed = gateway.export().join("changed");
    write_model(&changed, 2, 256);
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    std::fs::write(changed.join("model-00001.safetensors"), bad).unwrap();
    std::fs::write(gateway.export().join("x.gguf"), b"no model").unwrap();
    let here = gateway.dir.path().join("here");
    std::fs::write(&here, b"here").unwrap();
    let here = here.to_str().unwrap();

    let at = |path: &str| url(gateway.address, path);
    let failing: [&[&str]; 8] = [
        &["load", &at("/export/absent")],
        &["load", &at("/export/damaged")],
        &["load", "--verify", &at("/export/changed")],
        &["load", &at("/export/x.gguf")],
        &["cp", &at("/export/x.gguf"), here],
        &["cp", here, &at("/export/absent/file")],
        &["ls", &at("/export/absent")],
        &["ls", "--tensors", &at("/export/x.gguf")],
    ];
    for args in failing {
        let said = zgate(args);
        assert_eq!(said.status.code(), Some(1), "{args:?}");
        none_left(&gateway, &format!("{args:?}"));
    }
    // Nobody reads what it prints.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = Command::new(zgate_binary());
    let said = unread.args(["ls", &at("/export")]).stdout(Stdio::from(writer)).output().unwrap();
    assert_eq!(said.status.code(), Some(141));
    none_left(&gateway, "output that nobody read");
}

/// Stops a load in progress by a signal; its answers go through a proxy.
fn stop_a_load(gateway: &Gateway, proxy: &Mute, signal: Signal, begun: impl Fn() -> bool) {
    let mut load = start_zgate(&["load", &url(proxy.address, "/export/m")]);
    until("files are open", || clients(gateway).iter().any(|one| one["opens"] == 2));
    until("the load runs", begun);
    kill_process(Pid::from_child(&load), signal).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let ended = loop {
        if let Some(ended) = load.try_wait().unwrap() {
            break ended;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(ended.code(), Some(128 + signal.as_raw()));
    none_left(gateway, "a signal");
}

#[test]
fn a_signal_during_a_load_leaves_no_client() {
    let gateway = Gateway::start(LEASE_SECONDS);
    write_model(&gateway.export().join("m"), 2, 8192);
    // Answers come slowly.
    let passed = Arc::<AtomicU64>::default();
    let count = Arc::clone(&passed);
    let slow = Mute::start(gateway.address, move |_, _| {
        if count.fetch_add(1, Ordering::SeqCst) > 60 {
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    });
    let begun = || passed.load(Ordering::SeqCst) > 70;
    stop_a_load(&gateway, &slow, Signal::TERM, begun);

    // From some point on there are none over the connections that exist.
    let mute = Mute::start(gateway.address, |connection, answer| connection > 3 || answer < 20);
    stop_a_load(&gateway, &mute, Signal::INT, || mute.withheld() >= 4);
    assert_eq!(mute.accepted.load(Ordering::SeqCst), 5, "one fresh connection, and no more");
}

#[test]
fn a_panic_leaves_no_client() {
    let gateway = Gateway::start(LEASE_SECONDS);
    write_model(&gateway.export().join("m"), 2, 1024);
    runtime().block_on(async {
        let model = open(gateway.address, "/export/m").await.unwrap();
        let consumer = tokio::spawn(async move {
            let plan = Plan::new(&model, &Wanted::default()).unwrap();
            let mut load = Load::start(&model, plan, &LoadOptions::default());
            load.next().await.unwrap();
            panic!("on purpose");
        });
        assert!(consumer.await.unwrap_err().is_panic());
        // Tasks that read still have the client for a moment.
        until("it has left", || clients(&gateway).is_empty());
    });
}

#[test]
fn a_start_that_is_given_up_leaves_no_client() {
    let gateway = Gateway::start(LEASE_SECONDS);
    // The answer to EXCHANGE_ID passes; the one to CREATE_SESSION does not.
    let proxy = Mute::start(gateway.address, |connection, answer| connection > 0 || answer < 1);
    runtime().block_on(async {
        let options = loader_options(1);
        let mut connecting = Box::pin(Client::connect(proxy.address, &options));
        while proxy.withheld() == 0 {
            let short = Duration::from_millis(5);
            assert!(tokio::time::timeout(short, connecting.as_mut()).await.is_err());
        }
        assert_eq!(clients(&gateway).len(), 1);
        drop(connecting);
        all_left().await;
        none_left(&gateway, "a start that was given up");
    });
}

#[test]
fn a_start_that_fails_leaves_no_client_on_either_server() {
    let gateways = [Gateway::start(LEASE_SECONDS), Gateway::start(LEASE_SECONDS)];
    runtime().block_on(async {
        let addresses = [gateways[0].address, gateways[1].address];
        let error = Client::connect_all(&addresses, &options()).await.unwrap_err();
        assert!(matches!(error, ClientError::OtherServer { .. }), "{error}");
    });
    gateways.iter().for_each(|gateway| none_left(gateway, "addresses of two servers"));
}

#[test]
fn a_file_whose_open_was_abandoned_is_closed_with_the_client() {
    let gateway = Gateway::start(LEASE_SECONDS);
    std::fs::write(gateway.export().join("file"), b"content").unwrap();
    let mute = Arc::new(AtomicBool::new(false));
    let is_mute = Arc::clone(&mute);
    let proxy = Mute::start(gateway.address, move |connection, _| {
        connection > 1 || !is_mute.load(Ordering::SeqCst)
    });
    runtime().block_on(async {
        let options = loader_options(2);
        let client = Client::connect(proxy.address, &options).await.unwrap();
        let dir = client.find("/export").await.unwrap().fh;
        client.find("/export").await.unwrap();
        assert_eq!(proxy.accepted.load(Ordering::SeqCst), 2);
        mute.store(true, Ordering::SeqCst);
        {
            let mut opening = Box::pin(File::open(&client, &dir, "file", OpenMode::Read));
            while proxy.withheld() == 0 {
                let short = Duration::from_millis(5);
                assert!(tokio::time::timeout(short, opening.as_mut()).await.is_err());
            }
        }
        assert_eq!(clients(&gateway)[0]["opens"], 1);
        client.close().await;
        none_left(&gateway, "an abandoned OPEN");
    });
}

#[test]
fn a_closed_client_does_not_come_back() {
    let gateway = Gateway::start(LEASE_SECONDS);
    std::fs::write(gateway.export().join("file"), b"content").unwrap();
    runtime().block_on(async {
        let client = Arc::new(Client::connect(gateway.address, &options()).await.unwrap());
        let dir = client.find("/export").await.unwrap().fh;
        let file = File::open(&client, &dir, "file", OpenMode::Read).await.unwrap();
        let results = Arc::<Mutex<Vec<ClientError>>>::default();
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let (client, file) = (Arc::clone(&client), file.clone());
                let results = Arc::clone(&results);
                tokio::spawn(async move {
                    let error = loop {
                        if let Err(error) = file.read(&client, 0, 100).await {
                            break error;
                        }
                    };
                    results.lock().unwrap().push(error);
                })
            })
            .collect();
        client.close().await;
        for reader in readers {
            tokio::time::timeout(TIMEOUT, reader).await.unwrap().unwrap();
        }
        none_left(&gateway, "reads beside the close");
        for error in results.lock().unwrap().iter() {
            assert!(matches!(error, ClientError::Closed), "{error}");
        }
    });
}

#[test]
fn a_server_that_answers_nothing_is_left_in_time() {
    let gateway = Gateway::start(LEASE_SECONDS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ClientOptions { connections: 3, ..options() };
        let client = Client::connect(gateway.address, &options).await.unwrap();
        gateway.freeze();
        // From here on, time passes when nothing else happens.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        client.close().await;
        // Timers have a granularity of a millisecond.
        let limit = LEAVE_TIMEOUT + Duration::from_millis(10);
        assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
        gateway.signal(Signal::CONT);
    });
}
