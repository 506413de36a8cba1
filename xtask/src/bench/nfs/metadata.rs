//! Loads on names and attributes.

use super::load::{Load, LoadRequest, other, report};
use super::work::{LoadReport, Work};
use std::io;
use std::time::Instant;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::{close, readdir};
use zgate_nfs_wire::v4::{Bitmap, ChangeInfo, Fattr, OpNum, Stateid};

/// Attributes that `ls -l` needs: type, change, size, fileid, mode, numlinks,
/// owner, group, time_modify.
const LISTED: &[u32] = &[1, 3, 4, 20, 33, 35, 36, 37, 53];
/// Access: read, and both.
const READ: u32 = 1;
const BOTH: u32 = 3;

impl Load {
    /// Runs one request at a time, as a single process on a plain client does.
    pub(super) fn one_by_one(&mut self, request: &LoadRequest, dir: &Fh) -> io::Result<LoadReport> {
        let mut close_at = None;
        let begun = Instant::now();
        for number in 0..request.operations {
            let name = format!("file{number:06}");
            let sent = Instant::now();
            match request.work {
                Work::Create | Work::Open => {
                    let create = request.work == Work::Create;
                    let access = if create { BOTH } else { READ };
                    let (fh, stateid) = self.open(dir, &name, access, create)?;
                    close_at = Some((fh, stateid));
                }
                Work::Stat => {
                    let want = Bitmap::of(LISTED);
                    let ops = Ops::new().putfh(dir).lookup(name.as_bytes()).getattr(&want);
                    let call = self.session.call_uncached(&mut self.connection, ops);
                    let mut results = call.map_err(other)?;
                    results.skip(OpNum::Putfh).map_err(other)?;
                    results.skip(OpNum::Lookup).map_err(other)?;
                    results.next::<Fattr>(OpNum::Getattr).map_err(other)?;
                }
                _ => {
                    let ops = Ops::new().putfh(dir).remove(name.as_bytes());
                    let call = self.session.call(&mut self.connection, ops);
                    let mut results = call.map_err(other)?;
                    results.skip(OpNum::Putfh).map_err(other)?;
                    results.next::<ChangeInfo>(OpNum::Remove).map_err(other)?;
                }
            }
            if let Some((fh, stateid)) = close_at.take() {
                let args = close::Args { seqid: 0, stateid };
                let ops = Ops::new().putfh(&fh).op(OpNum::Close, &args);
                let mut results = self.session.call(&mut self.connection, ops).map_err(other)?;
                results.skip(OpNum::Putfh).map_err(other)?;
                results.next::<close::Res>(OpNum::Close).map_err(other)?;
            }
            self.samples.push(sent.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
        }
        Ok(report(request.operations, 0, begun.elapsed().as_secs_f64()))
    }

    /// Keeps many requests in flight, each one COMPOUND, as many processes do,
    /// or a client that combines operations.
    pub(super) fn many(&mut self, request: &LoadRequest, dir: &Fh) -> io::Result<LoadReport> {
        let work = request.work;
        let close = close::Args { seqid: 0, stateid: Stateid::CURRENT };
        let want = Bitmap::of(LISTED);
        let keep = work != Work::StatMany;
        let seconds = self.pipeline(work.depth(), request.operations, keep, |number| {
            let ops = Ops::new().putfh(dir);
            match work {
                Work::CreateMany => {
                    let args = Self::open_args(&format!("many{number:06}"), BOTH, true);
                    ops.op(OpNum::Open, &args).op(OpNum::Close, &close)
                }
                Work::OpenMany => {
                    let args = Self::open_args(&format!("file{number:06}"), READ, false);
                    ops.op(OpNum::Open, &args).op(OpNum::Close, &close)
                }
                Work::StatMany => ops.lookup(format!("file{number:06}").as_bytes()).getattr(&want),
                _ => ops.remove(format!("many{number:06}").as_bytes()),
            }
        })?;
        Ok(report(request.operations, 0, seconds))
    }

    /// Lists the directory until about `operations` entries were seen.
    pub(super) fn list(&mut self, request: &LoadRequest, dir: &Fh) -> io::Result<LoadReport> {
        let begun = Instant::now();
        let mut entries = 0;
        while entries < request.operations {
            let before = entries;
            let (mut cookie, mut verifier) = (0, [0; 8]);
            loop {
                let args = readdir::Args {
                    cookie,
                    verifier,
                    dircount: 8192,
                    maxcount: 64 << 10,
                    want: Bitmap::of(LISTED),
                };
                let sent = Instant::now();
                let ops = Ops::new().putfh(dir).op(OpNum::Readdir, &args);
                let call = self.session.call_uncached(&mut self.connection, ops);
                let mut results = call.map_err(other)?;
                results.skip(OpNum::Putfh).map_err(other)?;
                let page: readdir::Res = results.next(OpNum::Readdir).map_err(other)?;
                self.samples.push(sent.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
                entries += page.entries.len() as u64;
                verifier = page.verifier;
                match page.entries.last() {
                    Some(last) if !page.eof => cookie = last.cookie,
                    _ => break,
                }
            }
            if entries == before {
                return Err(io::Error::other("the directory is empty"));
            }
        }
        Ok(report(entries, 0, begun.elapsed().as_secs_f64()))
    }
}
