//! A client that is not used for longer than a lease keeps what it has open, also
//! when the server restarts meanwhile. Time is tokio's paused clock, which the
//! server follows.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use zgate_loader::{Client, ClientOptions, File, OpenMode};
use zgate_nfs_wire::v4::Status;
use zgate_test_harness::nfs::{Harness, LEASE, OpenRequest, TcpServer};
use zgate_test_harness::{loader_options, noise};

const DENY_READ: u32 = 1;
const WANT_NO_DELEGATION: u32 = 0x0400;

fn options() -> ClientOptions {
    loader_options(2)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Opens a file with deny-read from another client. A server grants that if the
/// file is not open, or only by a client with an expired lease; it returns
/// NFS4ERR_DELAY during grace and while it recalls a delegation.
async fn lock_out(harness: &Rc<Harness>, name: &str) -> Result<(), Status> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let other = harness.client(&format!("other {}", COUNT.fetch_add(1, Ordering::Relaxed)), 2);
    let request = OpenRequest::name(&other.export(), name);
    let request = request.access(2 | WANT_NO_DELEGATION).deny(DENY_READ).owner("other");
    let until = Instant::now() + seconds(20);
    loop {
        match other.open(&request) {
            Err(Status::Delay | Status::Grace) if Instant::now() < until => {
                sleep(Duration::from_millis(100)).await;
            }
            result => return result.map(|_| ()),
        }
    }
}

/// A server with a file of this content, and a client that has it open.
async fn open_file(content: &[u8]) -> (Rc<Harness>, TcpServer, Client, File) {
    let harness = Harness::new();
    let author = harness.client("author", 2);
    author.file(&author.export(), "file", content);
    let server = TcpServer::start(&harness).await;
    let client = Client::connect(server.address, &options()).await.unwrap();
    let dir = client.find("/export").await.unwrap().fh;
    let file = File::open(&client, &dir, "file", OpenMode::Read).await.unwrap();
    (harness, server, client, file)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_is_open_stays_open_for_longer_than_a_lease() {
    let test = async {
        let content = noise(1, 100_000);
        let (harness, _server, client, file) = open_file(&content).await;
        sleep(seconds(2 * LEASE + 1)).await;
        assert_eq!(lock_out(&harness, "file").await, Err(Status::ShareDenied));
        let (_, read) = file.read(&client, 0, 100_000).await.unwrap();
        assert!(read == content[..]);

        // A closed client keeps no lease alive.
        client.close().await;
        sleep(seconds(LEASE + 2)).await;
        assert_eq!(lock_out(&harness, "file").await, Ok(()));
    };
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_restart_is_noticed_while_nothing_is_asked() {
    let test = async {
        let content = noise(2, 100_000);
        let (harness, server, client, file) = open_file(&content).await;
        for _ in 0..2 {
            server.restart();
            sleep(seconds(LEASE + 1)).await;
            assert_eq!(lock_out(&harness, "file").await, Err(Status::ShareDenied));
        }
        let (_, read) = file.read(&client, 0, 100_000).await.unwrap();
        assert!(read == content[..]);
        file.close(&client).await.unwrap();
        assert_eq!(lock_out(&harness, "file").await, Ok(()));
    };
    tokio::task::LocalSet::new().run_until(test).await;
}

/// Callbacks are of use, not needed: without them the lease goes on.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_lease_is_renewed_while_the_back_channel_is_refused() {
    let test = async {
        let harness = Harness::new();
        let author = harness.client("author", 2);
        author.file(&author.export(), "file", &noise(5, 1000));
        let server = TcpServer::start(&harness).await;
        let client = Client::connect(server.address, &loader_options(1)).await.unwrap();
        server.refuse_back_channels();
        server.lose_next_reply();
        let dir = client.find("/export").await.unwrap().fh;
        let file = File::open(&client, &dir, "file", OpenMode::Read).await.unwrap();
        assert!(!file.is_delegated(), "the server cannot call back");
        sleep(seconds(2 * LEASE + 1)).await;
        assert_eq!(lock_out(&harness, "file").await, Err(Status::ShareDenied));
    };
    tokio::task::LocalSet::new().run_until(test).await;
}

/// The server has run the READ, and kept no reply (RFC 8881 §2.10.6.1.3).
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_read_whose_reply_was_lost_is_repeated() {
    let test = async {
        let content = noise(4, 100_000);
        let (_harness, server, client, file) = open_file(&content).await;
        server.lose_next_reply();
        let (_, read) = file.read(&client, 0, 100_000).await.unwrap();
        assert!(read == content[..]);
    };
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_tree_that_comes_late_after_a_restart_takes_one_session() {
    let test = async {
        let content = noise(3, 100_000);
        let (harness, server, client, file) = open_file(&content).await;
        server.restart();
        harness.exports_away(|_| true);
        // Time for more attempts than a client can have sessions.
        sleep(seconds(LEASE)).await;
        harness.exports_away(|_| false);
        sleep(seconds(LEASE)).await;
        let (_, read) = file.read(&client, 0, 100_000).await.unwrap();
        assert!(read == content[..]);
        let clients = harness.server().clients(u64::MAX);
        let sessions: Vec<usize> = clients.iter().map(|client| client.sessions).collect();
        assert_eq!(sessions, [1]);
    };
    tokio::task::LocalSet::new().run_until(test).await;
}
