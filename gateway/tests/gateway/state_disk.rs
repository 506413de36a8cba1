//! A disk below the state directory that hangs, and records that are damaged.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zgate_nfs_wire::v4::Status;
use zgate_test_harness::{Client, Gateway, free_port};
use zgate_test_initiator::{LoginScript, Lun, Session};

/// Path at which the gateway writes the record of a client before it renames
/// it.
fn record_being_written(dir: &Path, client: &str) -> PathBuf {
    let digest = Sha256::digest(client.as_bytes());
    let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    dir.join("state/clients").join(name).with_extension("new")
}

/// A file that blocks its writer until it is released: opening a FIFO for
/// writing waits for a reader.
struct HangingFile(PathBuf);

impl HangingFile {
    fn make(path: PathBuf) -> Self {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        Self(path)
    }

    /// Releases the writer; its sync fails, because a FIFO has none.
    fn release(self) {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let reader = fs::File::options().read(true).custom_flags(nonblocking).open(&self.0);
        fs::remove_file(&self.0).unwrap();
        // Until the writer has run.
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
            // Clients get NFS4ERR_DELAY while the disk hangs and when it fails.
            let until = Instant::now() + Duration::from_secs(60);
            let mut client = Client::connect(&gateway, "new").unwrap();
            loop {
                match client.session.reclaim_complete(&mut client.connection) {
                    Ok(()) => return client,
                    Err(error) => assert!(Instant::now() < until, "{error}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for round in 0..50 {
            std::thread::sleep(Duration::from_millis(10));
            assert!(!new.is_finished(), "a client may open files without a record");
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
    let refused = client.create(&root, "f").unwrap_err();
    assert_eq!(refused.status(), Some(Status::Grace), "nobody opens during grace");
    let log = fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    assert!(log.contains("0123456789abcdef0123456789abcdef"), "{log}");
}

/// As many as there are threads for data (`worker_threads`).
const LUNS: u64 = 8;
const TARGET: &str = "iqn.2026-11.test.zgate:state";

/// A logical unit number in peripheral device addressing (SAM-5 §4.7.7.2).
fn lun(number: u64) -> Lun {
    Lun(number << 48)
}

/// PERSISTENT RESERVE OUT, REGISTER, with APTPL: the registration must survive
/// a power loss (SPC-4 §6.16).
fn register_for_good(session: &mut Session, lun: Lun) {
    let mut data = [0; 24];
    (data[15], data[20]) = (0x22, 1);
    let cdb = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    session.start(lun, &cdb, 0, Bytes::copy_from_slice(&data));
}

#[test]
fn reservations_that_cannot_be_kept_hold_up_no_data() {
    let port = free_port();
    let mut more = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n"
    );
    for number in 0..LUNS {
        let path = format!("{{dir}}/disk{number}.img");
        writeln!(more, "[[target.lun]]\nnumber = {number}\npath = \"{path}\"\nsize = \"1MiB\"")
            .unwrap();
    }
    let gateway = Gateway::start_with(10, &more);
    let state = gateway.dir.path().join("state");
    let hanging: Vec<_> = fs::read_dir(state.join("files"))
        .unwrap()
        .map(|unit| state.join("reservations").join(unit.unwrap().file_name()))
        .map(|path| HangingFile::make(path.with_extension("new")))
        .collect();
    assert_eq!(hanging.len() as u64, LUNS);
    let script = LoginScript::normal("iqn.2026-11.test.zgate:host", TARGET);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut session = Session::login(address, &script).unwrap();
    for number in 0..LUNS {
        session.run(lun(number), &[0; 6], 0, &Bytes::new()).unwrap();
    }
    (0..LUNS).for_each(|number| register_for_good(&mut session, lun(number)));
    session.flush().unwrap();
    let mut client = Client::ready(&gateway, "client");
    let root = client.root.clone();
    for round in 0..20 {
        let file = client.create(&root, "f").unwrap();
        client.write(&file, 0, 0, &[round; 4096]).expect("WRITE goes on");
        client.write(&file, 0, 2, &[round; 4096]).expect("a stable WRITE goes on");
        client.close(&file).unwrap();
    }
}
