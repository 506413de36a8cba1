//! `kill -9` under a disk's load: data written with FUA, or before an answered
//! SYNCHRONIZE CACHE, is there afterwards.

use bytes::Bytes;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;
use zgate_test_harness::{Gateway, Random, free_port};
use zgate_test_initiator::{LoginScript, Lun, Session, read16, synchronize16, write16};

const TARGET: &str = "iqn.2026-11.test.zgate:crash";
const INITIATOR: &str = "iqn.2026-11.test.zgate:initiator";
const BLOCK_BYTES: usize = 512;
/// Number of blocks of one write.
const SPAN: u32 = 8;
const SPANS: u64 = 64;
/// Number of rounds by default; `ZGATE_CRASH_ROUNDS` sets more.
const ROUNDS: u64 = 8;

fn pattern(seed: u64) -> Bytes {
    let bytes = BLOCK_BYTES as u64 * u64::from(SPAN);
    Bytes::from_iter((0..bytes).map(|at| (seed.wrapping_mul(0x9e37_79b9) ^ (at * 31)) as u8))
}

fn login(address: SocketAddr) -> Session {
    Session::login(address, &LoginScript::normal(INITIATOR, TARGET)).unwrap()
}

/// Blocks that are stable, and blocks that may or may not have arrived.
#[derive(Default)]
struct Promises {
    stable: HashMap<u64, u64>,
    open_question: HashMap<u64, u64>,
}

fn write_until_cut(mut session: Session, mut random: Random) -> (Promises, Random) {
    let mut promises = Promises::default();
    let mut cached: HashMap<u64, u64> = HashMap::new();
    loop {
        let (at, seed, fua) = (random.below(SPANS), random.u64(), random.below(3) == 0);
        promises.open_question.insert(at, seed);
        let cdb = write16(at * u64::from(SPAN), SPAN, fua);
        if session.run(Lun(0), &cdb, 0, &pattern(seed)).is_err() {
            break;
        }
        promises.open_question.remove(&at);
        promises.stable.remove(&at);
        if fua {
            cached.remove(&at);
            promises.stable.insert(at, seed);
        } else {
            cached.insert(at, seed);
        }
        if random.below(8) == 0 {
            if session.run(Lun(0), &synchronize16(), 0, &Bytes::new()).is_err() {
                break;
            }
            promises.stable.extend(cached.drain());
        }
    }
    for at in promises.open_question.keys() {
        promises.stable.remove(at);
    }
    (promises, random)
}

#[test]
fn no_acknowledged_sync_is_lost() {
    let mut random = Random::from_environment();
    let port = free_port();
    let more = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{{dir}}/disk.img\"\nsize = \"16MiB\"\n"
    );
    let mut gateway = Gateway::start_with(60, &more);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let rounds = std::env::var("ZGATE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let session = login(address);
        let pause = Duration::from_millis(10 + random.below(100));
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || done.send(write_until_cut(session, random)));
        std::thread::sleep(pause);
        gateway.kill();
        let (promises, back) = result.recv_timeout(Duration::from_secs(90)).unwrap();
        random = back;
        gateway.restart();
        let mut session = login(address);
        for (at, seed) in &promises.stable {
            let cdb = read16(at * u64::from(SPAN), SPAN);
            let bytes = BLOCK_BYTES as u32 * SPAN;
            let data = session.run(Lun(0), &cdb, bytes, &Bytes::new()).unwrap();
            assert!(data == pattern(*seed), "round {round}: span {at} was synced and is lost");
        }
    }
}
