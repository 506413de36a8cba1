//! A loader's client that is not used for longer than a lease keeps what it
//! has open, also when the server restarts meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

use rig::{Client as Other, Gateway, handles_survive_restarts, loader_options, noise, runtime};
use std::time::Duration;
use tokio::time::Instant;
use zgate_loader::compound::Ops;
use zgate_loader::{Client, ClientError, ClientOptions, File, OpenMode};
use zgate_nfs::v4::op::open;
use zgate_nfs::v4::wire::{ClientId, OpNum, StateOwner, Status};
use zgate_xdr::Opaque;

/// The shortest a gateway takes.
const LEASE_SECONDS: u32 = 5;
const DENY_READ: u32 = 1;
const WANT_NO_DELEGATION: u32 = 0x0400;

fn options() -> ClientOptions {
    loader_options(2)
}

/// Somebody else asks that nobody reads the file. A server gives them that when
/// nobody has it open, or only one whose lease has ended; it asks for patience
/// during grace and while it recalls a delegation.
fn lock_out(gateway: &Gateway, name: &str) -> Result<(), ClientError> {
    let mut other = Other::ready(gateway, &format!("other {name}"));
    let args = open::Args {
        seqid: 0,
        access: 2 | WANT_NO_DELEGATION,
        deny: DENY_READ,
        owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"other".to_vec()) },
        how: open::How::NoCreate,
        claim: open::Claim::Null(Opaque(name.as_bytes().to_vec())),
    };
    let root = other.root.clone();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut results = other.call(Ops::new().putfh(&root).op(OpNum::Open, &args))?;
        results.skip(OpNum::Putfh)?;
        match results.next::<open::Res>(OpNum::Open).map(|_| ()) {
            Err(error)
                if matches!(error.status(), Some(Status::Delay | Status::Grace))
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

fn refused(result: Result<(), ClientError>) -> Option<Status> {
    result.unwrap_err().status()
}

async fn open_file(gateway: &Gateway) -> (Client, File) {
    let client = Client::connect(gateway.address, &options()).await.unwrap();
    let dir = client.find("/export").await.unwrap().fh;
    let file = File::open(&client, &dir, "file", OpenMode::Read).await.unwrap();
    (client, file)
}

#[test]
fn what_is_open_stays_open_for_longer_than_a_lease() {
    let gateway = Gateway::start(LEASE_SECONDS);
    let content = noise(1, 100_000);
    std::fs::write(gateway.export().join("file"), &content).unwrap();
    runtime().block_on(async {
        let (client, file) = open_file(&gateway).await;
        tokio::time::sleep(Duration::from_secs(2 * u64::from(LEASE_SECONDS) + 1)).await;
        assert_eq!(refused(lock_out(&gateway, "file")), Some(Status::ShareDenied));
        let (_, read) = file.read(&client, 0, 100_000).await.unwrap();
        assert!(read == content[..]);

        // A client that is closed keeps nothing alive.
        client.close().await;
        tokio::time::sleep(Duration::from_secs(u64::from(LEASE_SECONDS) + 2)).await;
        lock_out(&gateway, "file").unwrap();
    });
}

#[test]
fn a_restart_is_noticed_while_nothing_is_asked() {
    if !handles_survive_restarts("a_restart_is_noticed_while_nothing_is_asked") {
        return;
    }
    let mut gateway = Gateway::start(LEASE_SECONDS);
    let content = noise(2, 100_000);
    std::fs::write(gateway.export().join("file"), &content).unwrap();
    runtime().block_on(async {
        let (client, file) = open_file(&gateway).await;
        for _ in 0..2 {
            gateway.kill();
            gateway.restart();
            tokio::time::sleep(Duration::from_secs(u64::from(LEASE_SECONDS) + 1)).await;
            assert_eq!(refused(lock_out(&gateway, "file")), Some(Status::ShareDenied));
        }
        let (_, read) = file.read(&client, 0, 100_000).await.unwrap();
        assert!(read == content[..]);
        file.close(&client).await.unwrap();
        lock_out(&gateway, "file").unwrap();
    });
}

#[test]
fn a_client_outlives_the_runtime_it_was_made_on() {
    let gateway = Gateway::start(LEASE_SECONDS);
    std::fs::write(gateway.export().join("file"), b"content").unwrap();
    let (client, file) = runtime().block_on(open_file(&gateway));
    let runtime = runtime();
    runtime.block_on(async {
        // The tasks of the first runtime are gone: what they held is made anew.
        let (_, read) = file.read(&client, 0, 100).await.unwrap();
        assert_eq!(&read[..], b"content");
    });
    drop(runtime);
    // Without a runtime it cannot say that it leaves, and does not try.
    drop((file, client));
}
