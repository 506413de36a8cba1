//! `kill -9` under load: data acknowledged as stable is there afterwards, other
//! data is written again, and clients reclaim their state.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;
use zgate_nfs_wire::v4::op::lock::{self, Locker};
use zgate_nfs_wire::v4::op::open;
use zgate_nfs_wire::v4::{ClientId, LockType, OpNum, StateOwner, Status};
use zgate_test_harness::{Client, Gateway, Opened, Random, handles_survive_restarts};
use zgate_xdr::Opaque;

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 64;
/// Number of rounds in CI; `ZGATE_CRASH_ROUNDS` sets more.
const ROUNDS: u64 = 8;

fn block(seed: u64) -> Vec<u8> {
    (0..BLOCK_BYTES as u64).map(|at| (seed.wrapping_mul(0x9e37_79b9) ^ (at * 31)) as u8).collect()
}

/// Knowledge of a writer: the seed of each block that is stable, and of each
/// that may or may not be.
#[derive(Default)]
struct Promises {
    stable: HashMap<u64, u64>,
    open_question: HashMap<u64, u64>,
}

/// Writes until the connection breaks. FILE_SYNC writes count at once,
/// unstable ones when a COMMIT with the same verifier is answered.
fn write_until_cut(mut client: Client, file: Opened, mut random: Random) -> (Promises, Random) {
    let mut promises = Promises::default();
    let mut pending: HashMap<u64, (u64, [u8; 8])> = HashMap::new();
    loop {
        let (at, seed) = (random.below(BLOCKS), random.u64());
        let stable = if random.below(2) == 0 { 2 } else { 0 };
        promises.open_question.insert(at, seed);
        let offset = at * BLOCK_BYTES as u64;
        let Ok(written) = client.write(&file, offset, stable, &block(seed)) else { break };
        assert_eq!(written.count as usize, BLOCK_BYTES);
        assert!(written.committed >= stable);
        promises.open_question.remove(&at);
        // Until it is stable, either version may be found.
        promises.stable.remove(&at);
        if written.committed == 2 {
            pending.remove(&at);
            promises.stable.insert(at, seed);
        } else {
            pending.insert(at, (seed, written.verifier));
        }
        if random.below(8) == 0 {
            let Ok(verifier) = client.commit(&file.fh) else { break };
            for (at, (seed, promised)) in pending.drain() {
                assert_eq!(promised, verifier, "the verifier changed without a restart");
                promises.stable.insert(at, seed);
            }
        }
    }
    for at in promises.open_question.keys() {
        promises.stable.remove(at);
    }
    (promises, random)
}

fn verify(client: &mut Client, file: &Opened, promises: &Promises) {
    for (at, seed) in &promises.stable {
        let offset = at * BLOCK_BYTES as u64;
        let (_, data) = client.read(&file.fh, file.stateid, offset, BLOCK_BYTES as u32).unwrap();
        assert!(data == block(*seed), "block {at} was acknowledged as stable and is not there");
    }
}

fn rounds() -> u64 {
    std::env::var("ZGATE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn no_acknowledged_stable_write_is_lost() {
    if !handles_survive_restarts("no_acknowledged_stable_write_is_lost") {
        return;
    }
    let mut random = Random::from_environment();
    let mut gateway = Gateway::start(5);
    let mut client = Client::ready(&gateway, "writer");
    let root = client.root.clone();
    let mut file = client.create(&root, "file").unwrap();
    let mut last_verifier = None;
    for _ in 0..rounds() {
        let pause = Duration::from_millis(20 + random.below(200));
        let (done, result) = mpsc::channel();
        let (moved, opened) = (client, file.clone());
        std::thread::spawn(move || done.send(write_until_cut(moved, opened, random)));
        std::thread::sleep(pause);
        gateway.kill();
        let (promises, back) = result.recv_timeout(Duration::from_secs(60)).unwrap();
        random = back;
        gateway.restart();

        client = Client::connect(&gateway, "writer").unwrap();
        let reclaim = client.open(&file.fh, 3, open::How::NoCreate, open::Claim::Previous(0));
        file = reclaim.expect("an open held before the crash can be taken back");
        client.session.reclaim_complete(&mut client.connection).unwrap();
        verify(&mut client, &file, &promises);
        let verifier = client.commit(&file.fh).unwrap();
        assert_ne!(Some(verifier), last_verifier, "the write verifier tells restarts apart");
        last_verifier = Some(verifier);
    }
}

fn lock_args(file: &Opened, reclaim: bool, offset: u64) -> lock::Args {
    lock::Args {
        kind: LockType::Write,
        reclaim,
        offset,
        length: 10,
        locker: Locker::New {
            open_seqid: 0,
            open: file.stateid,
            lock_seqid: 0,
            owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"locker".to_vec()) },
        },
    }
}

pub(crate) fn lock(
    client: &mut Client,
    file: &Opened,
    reclaim: bool,
    offset: u64,
) -> Result<(), Status> {
    use zgate_loader::compound::Ops;
    let ops = Ops::new().putfh(&file.fh).op(OpNum::Lock, &lock_args(file, reclaim, offset));
    let mut results = client.call(ops).unwrap();
    results.skip(OpNum::Putfh).unwrap();
    results.next::<lock::Res>(OpNum::Lock).map(|_| ()).map_err(|error| error.status().unwrap())
}

#[test]
fn locks_are_taken_back_and_nobody_slips_in_during_grace() {
    if !handles_survive_restarts("locks_are_taken_back_and_nobody_slips_in_during_grace") {
        return;
    }
    let mut gateway = Gateway::start(5);
    let mut owner = Client::ready(&gateway, "owner");
    let root = owner.root.clone();
    let file = owner.create(&root, "locked").unwrap();
    lock(&mut owner, &file, false, 100).unwrap();
    let mut other = Client::ready(&gateway, "other");
    let others = other.open_existing(&root, "locked").unwrap();
    assert_eq!(lock(&mut other, &others, false, 105), Err(Status::Denied));

    gateway.kill();
    gateway.restart();

    // A client that is new to the server has nothing to reclaim.
    let mut stranger = Client::ready(&gateway, "stranger");
    let refused = stranger.open_existing(&root, "locked").unwrap_err();
    assert_eq!(refused.status(), Some(Status::Grace));
    let mut owner = Client::connect(&gateway, "owner").unwrap();
    let reclaim = owner.open(&file.fh, 3, open::How::NoCreate, open::Claim::Previous(0));
    let file = reclaim.unwrap();
    lock(&mut owner, &file, true, 100).unwrap();
    owner.session.reclaim_complete(&mut owner.connection).unwrap();
    assert_eq!(
        owner
            .open(&file.fh, 3, open::How::NoCreate, open::Claim::Previous(0))
            .unwrap_err()
            .status(),
        Some(Status::NoGrace),
        "who said RECLAIM_COMPLETE is done"
    );
    // The last client with state ends the grace period for all.
    let mut other = Client::ready(&gateway, "other");
    let others = other.open_existing(&root, "locked").unwrap();
    assert_eq!(lock(&mut other, &others, false, 105), Err(Status::Denied));
    lock(&mut other, &others, false, 200).unwrap();
}

#[test]
fn an_orderly_stop_loses_nothing_either() {
    if !handles_survive_restarts("an_orderly_stop_loses_nothing_either") {
        return;
    }
    let mut gateway = Gateway::start(5);
    let mut client = Client::ready(&gateway, "writer");
    let root = client.root.clone();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, 2, b"kept").unwrap();
    assert!(gateway.stop(), "SIGTERM ends it in order");
    gateway.restart();
    let mut client = Client::connect(&gateway, "writer").unwrap();
    let reclaim = client.open(&file.fh, 3, open::How::NoCreate, open::Claim::Previous(0)).unwrap();
    let (_, data) = client.read(&reclaim.fh, reclaim.stateid, 0, 10).unwrap();
    assert_eq!(data, b"kept");
}
