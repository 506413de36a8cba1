//! Opens and byte-range locks of one file.

use super::report::Series;
use super::{Bench, DEPTH, Fixture};
use crate::bench::nfs::load::{Load, other};
use std::io;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::op::lock::{self, Locker};
use zgate_nfs_wire::v4::op::{close, locku, open};
use zgate_nfs_wire::v4::{ClientId, Fh, LockType, OpNum, StateOwner, Stateid};
use zgate_xdr::Opaque;

const OPENS: [u64; 5] = [1, 100, 1_000, 10_000, 50_000];
const LOCKS: [u64; 5] = [1, 100, 1_000, 10_000, 16_000];
const READ_BYTES: u32 = 4 << 10;

/// A gateway, a session, and an open file of 64 KiB.
fn opened(bench: &Bench<'_>) -> io::Result<(Fixture, Load, Fh, (Fh, Stateid))> {
    let fixture = Fixture::with_export(bench)?;
    std::fs::write(fixture.exported().join("file"), vec![7; 64 << 10])?;
    let mut load = Load::connect(fixture.nfs)?;
    let dir = load.walk(&["export"])?;
    let file = load.open(&dir, "file", 3, false)?;
    Ok((fixture, load, dir, file))
}

fn owned(number: u64) -> open::Args {
    let owner = Opaque(format!("owner{number}").into_bytes());
    let owner = StateOwner { clientid: ClientId(0), owner };
    open::Args { owner, ..Load::open_args("file", 1, false) }
}

/// Opens a file for many owners, then opens and closes it for further ones, and
/// reads.
pub(super) fn opens(bench: &Bench<'_>) -> io::Result<Vec<Series>> {
    let (fixture, mut load, dir, (file, stateid)) = opened(bench)?;
    let [mut pairs, mut reads] =
        ["OPEN and CLOSE", "READ 4 KiB"].map(|what| Series::new("opens of a file", what));
    let mut held = 1;
    for size in OPENS {
        let more = size - held;
        let keep = |number| Ops::new().putfh(&dir).op(OpNum::Open, &owned(held + number));
        load.pipeline(DEPTH, more, true, keep)?;
        held = size;
        let close = close::Args { seqid: 0, stateid: Stateid::CURRENT };
        let pair = |number: u64| {
            // The owners of requests in flight differ.
            let args = owned(u64::MAX - number % u64::from(2 * DEPTH));
            Ops::new().putfh(&dir).op(OpNum::Open, &args).op(OpNum::Close, &close)
        };
        let read = |_| Ops::new().putfh(&file).read(stateid, 0, READ_BYTES);
        pairs.points.push((size, fixture.cost_of(&mut load, bench.requests, true, pair)?));
        reads.points.push((size, fixture.cost_of(&mut load, bench.requests, false, read)?));
    }
    Ok(vec![pairs, reads])
}

/// Locks every second byte of a file, then locks and unlocks further ones, and
/// reads.
pub(super) fn locks(bench: &Bench<'_>) -> io::Result<Vec<Series>> {
    let (fixture, mut load, _, (file, open)) = opened(bench)?;
    let [mut pairs, mut reads] =
        ["LOCK and LOCKU", "READ 4 KiB"].map(|what| Series::new("locks of a file", what));
    let owner = StateOwner { clientid: ClientId(0), owner: Opaque(b"locker".to_vec()) };
    let locker = Locker::New { open_seqid: 0, open, lock_seqid: 0, owner };
    let first = lock::Args { kind: LockType::Write, reclaim: false, offset: 0, length: 1, locker };
    let ops = Ops::new().putfh(&file).op(OpNum::Lock, &first);
    let mut results = load.session.call(&mut load.connection, ops).map_err(other)?;
    results.skip(OpNum::Putfh).map_err(other)?;
    let locked: lock::Res = results.next(OpNum::Lock).map_err(other)?;
    // Sequence number zero: the present version.
    let stateid = Stateid { seqid: 0, ..locked.stateid };
    let byte = |offset: u64| lock::Args {
        kind: LockType::Write,
        reclaim: false,
        offset,
        length: 1,
        locker: Locker::Existing { stateid, seqid: 0 },
    };
    let mut held = 1;
    for size in LOCKS {
        let keep =
            |number: u64| Ops::new().putfh(&file).op(OpNum::Lock, &byte(2 * (held + number)));
        load.pipeline(DEPTH, size - held, true, keep)?;
        held = size;
        let pair = |number: u64| {
            // In the middle of the others, and behind them.
            let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (2 * size);
            let offset = if place % 2 == 0 { place + 1 } else { place };
            let free = locku::Args { kind: LockType::Write, seqid: 0, stateid, offset, length: 1 };
            let ops = Ops::new().putfh(&file).op(OpNum::Lock, &byte(offset));
            ops.op(OpNum::Locku, &free)
        };
        let read = |_| Ops::new().putfh(&file).read(open, 0, READ_BYTES);
        pairs.points.push((size, fixture.cost_of(&mut load, bench.requests, true, pair)?));
        reads.points.push((size, fixture.cost_of(&mut load, bench.requests, false, read)?));
    }
    Ok(vec![pairs, reads])
}
