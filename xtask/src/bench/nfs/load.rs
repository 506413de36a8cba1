//! Load generator: a pipelined NFSv4.1 client with one thread and one
//! connection, in a separate process so that its CPU time is its own.

use super::work::{LoadReport, Work};
use crate::bench::stats::percentile;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zgate_loader::blocking::{Connection, Session};
use zgate_loader::compound::Ops;
use zgate_loader::session::SessionRequest;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::open;
use zgate_nfs_wire::v4::{Bitmap, ClientId, Fattr, OpNum, StableHow, StateOwner, Stateid};
use zgate_rpc::{AuthSys, Credential};
use zgate_xdr::Opaque;

const LARGE_BYTES: u32 = 1 << 20;
const SMALL_BYTES: u32 = 4 << 10;
/// Number of low bits of a transaction id that hold the slot number.
const SLOT_BITS: u32 = 8;
const WANT_NO_DELEGATION: u32 = 0x0400;

/// Parameters of one run of the generator.
#[derive(Clone, Debug)]
pub(crate) struct LoadRequest {
    pub(crate) address: SocketAddr,
    pub(crate) work: Work,
    /// Size of the large file in bytes, for reads and writes.
    pub(crate) size: u64,
    /// Number of operations, for random reads and metadata.
    pub(crate) operations: u64,
    /// Directory under `/export`.
    pub(crate) dir: String,
}

/// Converts an error of the client.
pub(in crate::bench) fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// A session with the server.
pub(in crate::bench) struct Load {
    pub(in crate::bench) connection: Connection,
    pub(in crate::bench) session: Session,
    pub(in crate::bench) samples: Vec<u32>,
}

/// Runs the load.
///
/// # Errors
/// The error of the server or the connection.
pub(crate) fn run(request: &LoadRequest) -> io::Result<LoadReport> {
    let mut load = Load::connect(request.address)?;
    let dir = load.walk(&["export", &request.dir])?;
    let mut report = match request.work {
        Work::ReadOne | Work::Read | Work::RandomReadOne | Work::RandomRead => {
            load.reads(request, &dir)?
        }
        Work::Write => load.writes(request, &dir)?,
        Work::Readdir => load.list(request, &dir)?,
        Work::Create | Work::Stat | Work::Open | Work::Remove => load.one_by_one(request, &dir)?,
        Work::CreateMany | Work::StatMany | Work::OpenMany | Work::RemoveMany => {
            load.many(request, &dir)?
        }
    };
    load.samples.sort_unstable();
    report.p50_microseconds = percentile(&load.samples, 0.50);
    report.p99_microseconds = percentile(&load.samples, 0.99);
    Ok(report)
}

/// Measures latencies in microseconds of 4 KiB random reads of `/export/big`,
/// one at a time, for `duration`.
///
/// # Errors
/// The error of the server or the connection.
pub(crate) fn read_for(address: SocketAddr, size: u64, duration: Duration) -> io::Result<Vec<u32>> {
    let mut load = Load::connect(address)?;
    let dir = load.walk(&["export"])?;
    let (fh, stateid) = load.open(&dir, "big", 1, false)?;
    let blocks = size / u64::from(SMALL_BYTES);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let begun = Instant::now();
    while begun.elapsed() < duration {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let at = seed % blocks * u64::from(SMALL_BYTES);
        load.pipeline(1, 1, false, |_| Ops::new().putfh(&fh).read(stateid, at, SMALL_BYTES))?;
    }
    Ok(load.samples)
}

pub(super) fn report(operations: u64, bytes: u64, seconds: f64) -> LoadReport {
    LoadReport {
        operations,
        bytes,
        seconds,
        commit_seconds: 0.0,
        p50_microseconds: 0,
        p99_microseconds: 0,
    }
}

/// Returns whether a reply is an accepted call whose COMPOUND succeeded.
fn succeeded(reply: &[u8]) -> io::Result<()> {
    // xid, reply, accepted, verifier (flavour, length 0), success, status.
    match reply.get(8..28) {
        Some(head) if head.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err(io::Error::other(format!("refused: {:?}", reply.get(..64)))),
    }
}

impl Load {
    pub(in crate::bench) fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut connection =
            Connection::connect(address, Duration::from_secs(60)).map_err(other)?;
        // Each is a client of its own.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let ask = SessionRequest {
            owner: format!("zgate-bench-{}-{number}", std::process::id()).into_bytes(),
            verifier: u64::from(std::process::id()).to_be_bytes(),
            minor: 1,
            credential: Credential::Sys(AuthSys::default()),
            slots: 64,
            max_message_bytes: LARGE_BYTES + (16 << 10),
        };
        let mut session = Session::create(&mut connection, &ask).map_err(other)?;
        session.reclaim_complete(&mut connection).map_err(other)?;
        Ok(Self { connection, session, samples: Vec::new() })
    }

    pub(in crate::bench) fn walk(&mut self, names: &[&str]) -> io::Result<Fh> {
        let mut ops = Ops::new().putrootfh();
        for name in names {
            ops = ops.lookup(name.as_bytes());
        }
        let mut results = self.session.call(&mut self.connection, ops.getfh()).map_err(other)?;
        results.skip(OpNum::Putrootfh).map_err(other)?;
        for _ in names {
            results.skip(OpNum::Lookup).map_err(other)?;
        }
        results.next(OpNum::Getfh).map_err(other)
    }

    pub(in crate::bench) fn open_args(name: &str, access: u32, create: bool) -> open::Args {
        let mode =
            Fattr { mask: Bitmap::of(&[33]), values: Opaque(0o644u32.to_be_bytes().to_vec()) };
        open::Args {
            seqid: 0,
            access: access | WANT_NO_DELEGATION,
            deny: 0,
            owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"bench".to_vec()) },
            how: if create { open::How::Unchecked(mode) } else { open::How::NoCreate },
            claim: open::Claim::Null(Opaque(name.as_bytes().to_vec())),
        }
    }

    pub(in crate::bench) fn open(
        &mut self,
        dir: &Fh,
        name: &str,
        access: u32,
        create: bool,
    ) -> io::Result<(Fh, Stateid)> {
        let args = Self::open_args(name, access, create);
        let ops = Ops::new().putfh(dir).op(OpNum::Open, &args).getfh();
        let mut results = self.session.call(&mut self.connection, ops).map_err(other)?;
        results.skip(OpNum::Putfh).map_err(other)?;
        let opened: open::Res = results.next(OpNum::Open).map_err(other)?;
        Ok((results.next(OpNum::Getfh).map_err(other)?, opened.stateid))
    }

    /// Keeps `depth` requests in flight until `count` were answered. With
    /// `keep`, the server caches the replies, as clients request for operations
    /// that must not run twice.
    pub(in crate::bench) fn pipeline(
        &mut self,
        depth: u32,
        count: u64,
        keep: bool,
        mut make: impl FnMut(u64) -> Ops,
    ) -> io::Result<f64> {
        let begun = Instant::now();
        let mut sent_at = vec![begun; depth as usize];
        let mut next = 0;
        for slot in 0..depth.min(count.min(u64::from(u32::MAX)) as u32) {
            self.queue(slot, next, keep, make(next))?;
            next += 1;
        }
        self.connection.flush().map_err(other)?;
        for _ in 0..count {
            let reply = self.connection.receive().map_err(other)?;
            succeeded(reply)?;
            let slot = u32::from(reply[3]);
            let now = Instant::now();
            let sent = &mut sent_at[slot as usize];
            self.samples.push((now - *sent).as_micros().min(u128::from(u32::MAX)) as u32);
            *sent = now;
            if next < count {
                self.queue(slot, next, keep, make(next))?;
                next += 1;
            }
            if !self.connection.has_reply() {
                self.connection.flush().map_err(other)?;
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn queue(&mut self, slot: u32, number: u64, keep: bool, ops: Ops) -> io::Result<()> {
        let xid = (number as u32) << SLOT_BITS | slot;
        let message = self.session.request(xid, slot, keep, ops);
        self.connection.queue(&message).map_err(other)
    }

    fn reads(&mut self, request: &LoadRequest, dir: &Fh) -> io::Result<LoadReport> {
        let (fh, stateid) = self.open(dir, "big", 1, false)?;
        let random = matches!(request.work, Work::RandomRead | Work::RandomReadOne);
        let unit = if random { SMALL_BYTES } else { LARGE_BYTES };
        let blocks = request.size / u64::from(unit);
        let count = if random { request.operations } else { blocks };
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let seconds = self.pipeline(request.work.depth(), count, false, |number| {
            let block = if random {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed % blocks
            } else {
                number
            };
            Ops::new().putfh(&fh).read(stateid, block * u64::from(unit), unit)
        })?;
        Ok(report(count, count * u64::from(unit), seconds))
    }

    fn writes(&mut self, request: &LoadRequest, dir: &Fh) -> io::Result<LoadReport> {
        let (fh, stateid) = self.open(dir, "written", 2, true)?;
        let count = request.size / u64::from(LARGE_BYTES);
        let block = Bytes::from((0..LARGE_BYTES).map(|i| (i / 7) as u8).collect::<Vec<u8>>());
        let seconds = self.pipeline(request.work.depth(), count, false, |number| {
            let offset = number * u64::from(LARGE_BYTES);
            Ops::new().putfh(&fh).write(stateid, offset, StableHow::Unstable, block.clone())
        })?;
        let mut done = report(count, request.size, seconds);
        let begun = Instant::now();
        let ops = Ops::new().putfh(&fh).commit(0, 0);
        let mut results = self.session.call(&mut self.connection, ops).map_err(other)?;
        results.skip(OpNum::Putfh).map_err(other)?;
        results.next::<[u8; 8]>(OpNum::Commit).map_err(other)?;
        done.commit_seconds = begun.elapsed().as_secs_f64();
        Ok(done)
    }
}
