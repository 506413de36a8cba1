//! A disk below the state directory that hangs, and records that are damaged.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

use rig::{Client, Gateway};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the gateway writes the record of a client before it renames it.
fn record_being_written(dir: &Path, client: &str) -> PathBuf {
    let digest = Sha256::digest(client.as_bytes());
    let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    dir.join("state/clients").join(name).with_extension("new")
}

/// A file that lets nobody write who opens it, until it is released: opening a
/// FIFO for writing waits for a reader.
struct HangingFile(PathBuf);

impl HangingFile {
    fn make(path: PathBuf) -> Self {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        Self(path)
    }

    /// Lets the writer go on; its sync fails, as a FIFO has none.
    fn release(self) {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let reader = fs::File::options().read(true).custom_flags(nonblocking).open(&self.0);
        fs::remove_file(&self.0).unwrap();
        // Until the writer had its turn.
        std::thread::sleep(Duration::from_millis(100));
        drop(reader);
    }
}

#[test]
fn a_state_disk_that_hangs_makes_nobody_wait_but_new_clients() {
    let gateway = Gateway::start_with(10, "");
    let mut old = Client::ready(&gateway, "old");
    let root = old.root.clone();
    let file = old.create(&root, "f").unwrap();
    old.write(&file, 0, 2, b"content").unwrap();
    let hanging = HangingFile::make(record_being_written(gateway.dir.path(), "new"));
    std::thread::scope(|scope| {
        let new = scope.spawn(|| {
            // Told to come again while the disk hangs and when it fails.
            let until = Instant::now() + Duration::from_secs(60);
            loop {
                match Client::connect(&gateway, "new") {
                    Ok(client) => return client,
                    Err(error) => assert!(Instant::now() < until, "{error}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for round in 0..50 {
            std::thread::sleep(Duration::from_millis(10));
            assert!(!new.is_finished(), "a client was confirmed without a record");
            let opened = old.open_existing(&root, "f").expect("OPEN goes on");
            let (_, data) = old.read(&opened.fh, opened.stateid, 0, 7).expect("READ goes on");
            assert_eq!(data, b"content", "round {round}");
        }
        hanging.release();
        let mut new = new.join().unwrap();
        new.lookup(&root, "f").unwrap();
    });
}

#[test]
fn damaged_client_records_mean_the_whole_grace_period() {
    let gateway = Gateway::start_prepared(30, "", |dir| {
        let clients = dir.join("state/clients");
        fs::create_dir_all(&clients).unwrap();
        fs::write(clients.join("0123456789abcdef0123456789abcdef"), b"{\"name\":[1,").unwrap();
    });
    assert!(gateway.status()["grace_seconds_left"].as_u64().unwrap() > 0);
    let mut client = Client::connect(&gateway, "new").unwrap();
    client.session.reclaim_complete(&mut client.connection).unwrap();
    let root = client.root.clone();
    assert!(client.create(&root, "f").is_err(), "nobody opens during grace");
    let log = fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    assert!(log.contains("0123456789abcdef0123456789abcdef"), "{log}");
}
