//! Exports and logical units.

use super::report::Series;
use super::{Bench, Fixture, export};
use crate::bench::nfs::load::Load;
use bytes::Bytes;
use std::fs;
use std::io;
use std::path::Path;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Bitmap;
use zgate_test_initiator::{LoginScript, Lun, Session, read16};

const SIZES: [u64; 4] = [1, 10, 100, 1_000];
const TARGET: &str = "iqn.2026-11.test.zgate:growth";
const DISK_BYTES: u64 = 1 << 20;
const READ_BYTES: u32 = 4 << 10;
/// Attributes: type, change, size.
const ASKED: [u32; 3] = [1, 3, 4];

/// Walks to the last of many exports and reads its attributes, and reads those
/// of a known handle.
pub(super) fn exports(bench: &Bench<'_>) -> io::Result<Vec<Series>> {
    let mut series =
        [Series::new("exports", "LOOKUP from the root"), Series::new("exports", "GETATTR")];
    for size in SIZES {
        let fixture = Fixture::start(bench, |dir| {
            let one =
                |number| export(dir, &format!("export{number}"), &format!("/exports/{number}"));
            (0..size).map(one).collect()
        })?;
        let mut load = Load::connect(fixture.nfs)?;
        let last = (size - 1).to_string();
        let handle = load.walk(&["exports", &last])?;
        let want = Bitmap::of(&ASKED);
        let path = |_| {
            let root = Ops::new().putrootfh();
            root.lookup(b"exports").lookup(last.as_bytes()).getattr(&want)
        };
        let known = |_| Ops::new().putfh(&handle).getattr(&want);
        load.pipeline(super::DEPTH, bench.requests / 4, false, path)?;
        series[0].points.push((size, fixture.cost_of(&mut load, bench.requests, false, path)?));
        series[1].points.push((size, fixture.cost_of(&mut load, bench.requests, false, known)?));
    }
    Ok(series.into())
}

/// Reads from the last of many logical units.
pub(super) fn luns(bench: &Bench<'_>) -> io::Result<Vec<Series>> {
    let mut series = Series::new("logical units", "READ 4 KiB");
    for size in SIZES {
        let fixture = Fixture::start(bench, |dir| target(dir, size))?;
        let script = LoginScript::normal("iqn.2026-11.test.zgate:load", TARGET);
        let mut session = Session::login(fixture.iscsi, &script)?;
        let lun = address(size - 1);
        let mut reads = |count: u64| -> io::Result<()> {
            let (mut begun, mut ended) = (0, 0);
            while ended < count {
                while begun < count && begun - ended < u64::from(super::DEPTH) {
                    session.start(lun, &read16(8 * (begun % 256), 8), READ_BYTES, Bytes::new());
                    begun += 1;
                }
                let end = session.wait()?;
                if end.is_unit_attention() {
                    // Of a new session, or of a disk whose file system has little room.
                    begun -= 1;
                    continue;
                }
                if end.status != 0 {
                    return Err(io::Error::other(format!("a read failed: {end:?}")));
                }
                ended += 1;
            }
            Ok(())
        };
        reads(bench.requests / 4)?;
        series.points.push((size, fixture.cost(bench.requests, || reads(bench.requests))?));
    }
    Ok(vec![series])
}

/// The eight bytes of a LUN, in flat space addressing from 256 on (SAM-5 §4.7.7).
fn address(number: u64) -> Lun {
    let method = if number < 256 { 0 } else { 0x4000 };
    Lun((method | number) << 48)
}

fn target(dir: &Path, size: u64) -> io::Result<String> {
    let mut text = format!(
        "[iscsi]\nlisten = [\"ISCSI\"]\n[[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n"
    );
    for number in 0..size {
        let path = dir.join(format!("disk{number}"));
        fs::File::create(&path)?.set_len(DISK_BYTES)?;
        text += &format!("[[target.lun]]\nnumber = {number}\npath = \"{}\"\n", path.display());
    }
    Ok(text)
}
