//! WRITE (RFC 1813 §3.3.7).

use super::Rule;
use crate::limits::MAX_TRANSFER_BYTES;
use crate::v3::cx::{Cx, Object};
use zgate_nfs_wire::v3::proc::Write;
use zgate_nfs_wire::v3::proc::write::{Args, Written};
use zgate_nfs_wire::v3::{StableHow, Status, WccData};

impl Rule for Write {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Written, Status> {
        let object = cx.enter_writable(&args.file)?;
        let verifier = cx.server.write_verifier.of(object.store());
        let written = write(cx, &object, args).await;
        *fail = object.wcc_after().await;
        let (count, committed) = written?;
        Ok(Written { wcc: std::mem::take(fail), count, committed, verifier })
    }
}

async fn write(cx: &Cx<'_>, object: &Object, args: Args) -> Result<(u32, StableHow), Status> {
    if args.count as usize != args.data.len() {
        return Err(Status::Inval);
    }
    let change = cx.before_write(object, args.data.len()).await?;
    let open = object.open(false, true).await?;
    // The server may write less than requested; the client sends the rest
    // again.
    let most = (object.export.max_transfer_bytes as usize).min(MAX_TRANSFER_BYTES);
    let data = args.data.slice(..args.data.len().min(most));
    let end = args.offset.checked_add(data.len() as u64).ok_or(Status::FBig)?;
    if end > object.store().traits().max_file_bytes {
        return Err(Status::FBig);
    }
    if data.is_empty() {
        return Ok((0, args.stable));
    }
    let write = object.store().write(&open, args.offset, data, args.stable.into());
    let written = change.in_store(write).await;
    let (count, stability) = written?;
    Ok((count as u32, stability.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use bytes::Bytes;
    use std::sync::Arc;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_nfs_wire::v3::Fh3;
    use zgate_store::StoreError;

    fn args(file: &Fh3, offset: u64, data: &[u8]) -> Args {
        Args {
            file: file.clone(),
            offset,
            count: data.len() as u32,
            stable: StableHow::FileSync,
            data: Bytes::copy_from_slice(data),
        }
    }

    #[test]
    fn data_lands_at_its_offset() {
        let rig = Rig::new();
        let file = rig.file("f", b"hello");
        let written = rig.call::<Write>(&args(&file, 3, b"XYZ")).unwrap();
        assert_eq!((written.count, written.committed), (3, StableHow::FileSync));
        assert_eq!(written.verifier, rig.verifier());
        assert_eq!(written.wcc.after.unwrap().size, 6);
        assert_eq!(rig.content(&file), b"helXYZ");
        assert_eq!(rig.call::<Write>(&args(&file, 9, b"")).unwrap().count, 0);
        assert_eq!(rig.content(&file).len(), 6);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let rig = Rig::new();
        let file = rig.file("f", b"");
        let status = |args: &Args| rig.call::<Write>(args).unwrap_err().0;
        assert_eq!(status(&Args { count: 9, ..args(&file, 0, b"x") }), Status::Inval);
        assert_eq!(status(&args(&file, u64::MAX, b"xy")), Status::FBig);
        assert_eq!(status(&args(&rig.root(), 0, b"x")), Status::Inval);
        let held = rig.held();
        assert_eq!(held.call::<Write>(&args(&file, 0, b"x")).unwrap_err().0, Status::Jukebox);
    }

    #[test]
    fn a_running_program_is_refused_for_good() {
        let memory = MemoryStore::new();
        let rig = Rig::with(|export| export.store = Arc::new(memory.clone()));
        let program = rig.file("program", b"old");
        for call in [FileOp::Open, FileOp::Write] {
            memory.faults().fail_every(call, StoreError::TextBusy);
            let status = rig.call::<Write>(&args(&program, 0, b"new")).unwrap_err().0;
            memory.faults().clear();
            assert_eq!(status, Status::Acces, "{call:?}");
        }
        assert_eq!(rig.content(&program), b"old");
    }

    #[test]
    fn a_long_write_is_cut_at_the_exports_limit() {
        let rig = Rig::with(|export| export.max_transfer_bytes = 4096);
        let file = rig.file("f", b"");
        assert_eq!(rig.call::<Write>(&args(&file, 0, &[1; 5000])).unwrap().count, 4096);
    }
}
