//! Names in a directory.

use super::report::Series;
use super::{Bench, DEPTH, Fixture};
use crate::bench::nfs::load::{Load, other};
use std::fs::File;
use std::io;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::op::{close, readdir};
use zgate_nfs_wire::v4::{Bitmap, Fh, OpNum, Stateid};

const SMALLEST: u64 = 1_000;
/// Attributes that `ls -l` needs beside the name: type, size, fileid.
const LISTED: [u32; 3] = [1, 4, 20];

/// Looks names up, creates and removes some, and lists directories of growing
/// size.
pub(super) fn measure(bench: &Bench<'_>) -> io::Result<Vec<Series>> {
    let [mut lookup, mut create, mut remove, mut list] =
        ["LOOKUP", "CREATE", "REMOVE", "READDIR, an entry"].map(|what| Series::new("names", what));
    let mut size = SMALLEST;
    while size <= bench.names.max(SMALLEST) {
        let fixture = Fixture::with_export(bench)?;
        let dir = fixture.exported().join("dir");
        std::fs::create_dir(&dir)?;
        for number in 0..size {
            File::create(dir.join(name(number)))?;
        }
        let mut load = Load::connect(fixture.nfs)?;
        let handle = load.walk(&["export", "dir"])?;
        let count = bench.requests;
        let want = Bitmap::of(&LISTED);
        let find = |number: u64| {
            let any = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % size;
            Ops::new().putfh(&handle).lookup(name(any).as_bytes()).getattr(&want)
        };
        load.pipeline(DEPTH, count / 4, false, find)?;
        lookup.points.push((size, fixture.cost_of(&mut load, count, false, find)?));
        let close = close::Args { seqid: 0, stateid: Stateid::CURRENT };
        let make = |number: u64| {
            let args = Load::open_args(&format!("new{number:06}"), 3, true);
            Ops::new().putfh(&handle).op(OpNum::Open, &args).op(OpNum::Close, &close)
        };
        let unmake =
            |number: u64| Ops::new().putfh(&handle).remove(format!("new{number:06}").as_bytes());
        let some = count / 4;
        // The file system prepares its journal and tables for the first ones.
        load.pipeline(DEPTH, some, true, make)?;
        load.pipeline(DEPTH, some, true, unmake)?;
        create.points.push((size, fixture.cost_of(&mut load, some, true, make)?));
        remove.points.push((size, fixture.cost_of(&mut load, some, true, unmake)?));
        let mut entries = 0;
        let mut whole = |least: u64| {
            // Small directories several times: the clock of CPU time is coarse.
            entries = 0;
            fixture.cost(1, || {
                while entries < least {
                    entries += list_all(&mut load, &handle)?;
                }
                Ok(())
            })
        };
        whole(1)?;
        let all = whole(count * 10)?;
        list.points.push((size, all / entries as f64));
        size *= 10;
    }
    Ok(vec![lookup, create, remove, list])
}

fn name(number: u64) -> String {
    format!("file{number:07}")
}

/// Lists the directory once; returns the number of entries.
fn list_all(load: &mut Load, dir: &Fh) -> io::Result<u64> {
    let (mut cookie, mut verifier, mut entries) = (0, [0; 8], 0);
    loop {
        let want = Bitmap::of(&LISTED);
        let args = readdir::Args { cookie, verifier, dircount: 8192, maxcount: 64 << 10, want };
        let ops = Ops::new().putfh(dir).op(OpNum::Readdir, &args);
        let call = load.session.call_uncached(&mut load.connection, ops);
        let mut results = call.map_err(other)?;
        results.skip(OpNum::Putfh).map_err(other)?;
        let page: readdir::Res = results.next(OpNum::Readdir).map_err(other)?;
        entries += page.entries.len() as u64;
        verifier = page.verifier;
        match page.entries.last() {
            Some(last) if !page.eof => cookie = last.cookie,
            _ => return Ok(entries),
        }
    }
}
