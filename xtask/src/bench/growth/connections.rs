//! Idle connections.

use super::report::{Report, Series};
use super::{Bench, Fixture};
use crate::bench::nfs::load::{Load, other};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::TcpStream;
use std::time::Duration;
use zgate_loader::blocking::Connection;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Bitmap;

const SIZES: [u64; 6] = [1, 10, 100, 1_000, 4_000, 10_000];
/// Open files of the process for each connection of one host: a third is for
/// connections, and of these one host may have three quarters.
const FILES_PER_CONNECTION: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(30);
/// Attributes: type, change, size.
const ASKED: [u32; 3] = [1, 3, 4];

/// Opens connections that have sent one request each and then nothing, and
/// measures GETATTR over another one.
pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> io::Result<Vec<Series>> {
    let fixture = Fixture::with_export(bench)?;
    let mut load = Load::connect(fixture.nfs)?;
    let export = load.walk(&["export"])?;
    let mut series = Series::new("connections", "GETATTR");
    let mut idle: Vec<TcpStream> = Vec::new();
    let make = |_| Ops::new().putfh(&export).getattr(&Bitmap::of(&ASKED));
    // Buffers and threads that the first requests need are no connection's.
    load.pipeline(super::DEPTH, bench.requests, false, make)?;
    let at_first = fixture.server.resident_bytes()?;
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    for size in SIZES {
        if size > files / FILES_PER_CONNECTION {
            eprintln!("{size} connections are not tried: the limit of open files is {files}");
            break;
        }
        while (idle.len() as u64) < size {
            let stream = TcpStream::connect(fixture.nfs)?;
            let ours = stream.try_clone()?;
            Connection::over(stream, fixture.nfs, PATIENCE)
                .and_then(|mut c| c.ping())
                .map_err(other)?;
            idle.push(ours);
        }
        let grown = fixture.server.resident_bytes()?.saturating_sub(at_first);
        report.connection_bytes.push((size, grown as f64 / size as f64));
        series.points.push((size, fixture.cost_of(&mut load, bench.requests, false, make)?));
    }
    Ok(vec![series])
}
