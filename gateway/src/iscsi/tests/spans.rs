//! Large reads, whose data a socket takes from the file of the disk.

use super::host::{BLOCK, Host};
use super::{Fixture, Over, TARGET};
use bytes::Bytes;
use zgate_test_initiator::{LoginScript, Lun, Session, read16};

const MIB: usize = 1 << 20;
const LUN: Lun = Lun(0);

/// Content of the disk: each block names its place.
fn content() -> Vec<u8> {
    (0..4 * MIB).map(|at| ((at / BLOCK * 7 + at / 3) % 251) as u8 + 1).collect()
}

impl Fixture {
    fn filled() -> (Self, Vec<u8>) {
        let (fixture, content) = (Self::start(), content());
        std::fs::write(fixture._dir.path().join("disk.img"), &content).unwrap();
        (fixture, content)
    }

    fn reader(&self, keys: &[(&str, &str)]) -> Session {
        let script = LoginScript::normal("iqn.2026-11.test.zgate:reader", TARGET);
        let script = keys.iter().fold(script, |script, (key, value)| script.with(key, value));
        let mut session = Session::login(self.tcp, &script).unwrap();
        session.run(LUN, &[0; 6], 0, &Bytes::new()).unwrap();
        session
    }
}

/// Every way in which the data is split, and from which it is taken.
#[test]
fn large_reads_are_exact_however_they_are_split() {
    let (fixture, content) = Fixture::filled();
    for keys in [
        &[("MaxRecvDataSegmentLength", "262144"), ("MaxBurstLength", "1048576")][..],
        &[("MaxRecvDataSegmentLength", "65536"), ("MaxBurstLength", "131072")],
        &[("MaxRecvDataSegmentLength", "100000"), ("MaxBurstLength", "262144")],
        &[("MaxRecvDataSegmentLength", "8192")],
        &[("MaxRecvDataSegmentLength", "262144"), ("DataDigest", "CRC32C")],
        &[("MaxRecvDataSegmentLength", "262144"), ("HeaderDigest", "CRC32C")],
    ] {
        let mut session = fixture.reader(keys);
        for (lba, blocks) in [(0, 8192), (1, 2048), (7, 128), (3, 127), (8191, 1)] {
            let (at, len) = (lba as usize * BLOCK, blocks as usize * BLOCK);
            let data = session.run(LUN, &read16(lba, blocks), len as u32, &Bytes::new()).unwrap();
            assert!(data == content[at..at + len], "{keys:?} {lba}+{blocks}");
        }
        // Less room than the command has data: the rest stays behind (residual).
        let itt = session.start(LUN, &read16(0, 2048), 300 * 1024, Bytes::new());
        let done = session.wait().unwrap();
        assert_eq!((done.itt, done.status), (itt, 0));
        assert!(done.data == content[..300 * 1024]);
    }
}

/// Over TCP the data is still in the file when it is cut: the connection ends, and
/// no byte is invented. Over RDMA all of it is in memory.
#[test]
fn a_file_cut_while_it_is_sent_ends_the_connection() {
    let (fixture, content) = Fixture::filled();
    let mut session = fixture.reader(&[("MaxRecvDataSegmentLength", "262144")]);
    let before: Vec<_> =
        (0..64).map(|_| session.start(LUN, &read16(0, 2048), MIB as u32, Bytes::new())).collect();
    session.flush().unwrap();
    // The socket is full, and the gateway has more to send.
    fixture.until("replies wait", || fixture.gateway.shared.network.quota.held() > 4 * MIB);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let disk = fixture._dir.path().join("disk.img");
    std::fs::File::options().write(true).open(disk).unwrap().set_len(0).unwrap();
    let mut good = 0;
    let ended = loop {
        match session.wait() {
            Ok(done) if done.status == 0 => {
                assert!(done.data == content[..MIB], "read {good}");
                good += 1;
            }
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(good < before.len(), "{ended}");
    let mut host = fixture.login(Over::Tcp, "another");
    assert!(matches!(host, Host::Tcp(_)));
    assert_eq!(host.run(&[0x12, 0, 0, 0, 36, 0], &Bytes::new()).status, 0, "others are served");
}
