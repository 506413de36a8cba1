//! Serving threads, each with a client of its own.

use super::report::Series;
use super::{Bench, DEPTH, Fixture, export};
use crate::bench::nfs::load::Load;
use std::io;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::{Bitmap, Fh, Stateid};

const SIZES: [u64; 5] = [1, 2, 4, 8, 16];
const READ_BYTES: u32 = 4 << 10;
/// Attributes: type, change, size.
const ASKED: [u32; 3] = [1, 3, 4];

/// A client with one file open, which all clients read.
struct Client {
    load: Load,
    file: Fh,
    stateid: Stateid,
}

/// Reads and asks for attributes of one file by as many clients as there are serving
/// threads, all at once. What threads write in common makes requests cost more.
pub(super) fn measure(bench: &Bench<'_>) -> io::Result<Vec<Series>> {
    let mut series = ["READ 4 KiB", "GETATTR"].map(|what| Series::new("serving threads", what));
    let processors = std::thread::available_parallelism()?.get() as u64;
    for size in SIZES.into_iter().take_while(|size| *size <= processors) {
        let fixture = Fixture::start(bench, |dir| {
            Ok(format!("cores = {size}\n{}", export(dir, "export", "/export")?))
        })?;
        std::fs::write(fixture.exported().join("file"), vec![7; 64 << 10])?;
        let mut clients = (0..size).map(|_| open(&fixture)).collect::<io::Result<Vec<_>>>()?;
        let mut cost = |make: &(dyn Fn(&Client) -> Ops + Sync)| {
            all_at_once(&mut clients, bench.requests / 4, make)?;
            let count = bench.requests * size;
            fixture.cost(count, || all_at_once(&mut clients, bench.requests, make))
        };
        let read =
            |client: &Client| Ops::new().putfh(&client.file).read(client.stateid, 0, READ_BYTES);
        let want = Bitmap::of(&ASKED);
        series[0].points.push((size, cost(&read)?));
        series[1].points.push((size, cost(&|one| Ops::new().putfh(&one.file).getattr(&want))?));
    }
    Ok(series.into())
}

fn open(fixture: &Fixture) -> io::Result<Client> {
    let mut load = Load::connect(fixture.nfs)?;
    let dir = load.walk(&["export"])?;
    let (file, stateid) = load.open(&dir, "file", 1, false)?;
    Ok(Client { load, file, stateid })
}

/// Has each client send `count` requests.
fn all_at_once(
    clients: &mut [Client],
    count: u64,
    make: &(dyn Fn(&Client) -> Ops + Sync),
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let run = |client: &mut Client| {
            let request = make(client);
            client.load.pipeline(DEPTH, count, false, |_| request.clone()).map(|_| ())
        };
        let running: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || run(client))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
        };
        running.into_iter().try_for_each(ended)
    })
}
