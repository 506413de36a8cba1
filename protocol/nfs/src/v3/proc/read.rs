//! READ (RFC 1813 §3.3.6).

use super::Rule;
use crate::limits::MAX_TRANSFER_BYTES;
use crate::v3::cx::{Cx, Object};
use bytes::Bytes;
use zgate_nfs_wire::v3::proc::Read;
use zgate_nfs_wire::v3::proc::read::{Args, Data};
use zgate_nfs_wire::v3::{Attributes, Status};
use zgate_store::Payload;
use zgate_store::file_store::{ReadData, ReadHow};

impl Rule for Read {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut Option<Attributes>) -> Result<Data, Status> {
        let object = cx.enter(&args.file)?;
        let read = read(cx, &object, &args).await;
        *fail = object.post_op_attr().await;
        let ReadData { data, eof, .. } = read?;
        Ok(Data { attributes: fail.take(), eof, data })
    }
}

async fn read(cx: &Cx<'_>, object: &Object, args: &Args) -> Result<ReadData, Status> {
    cx.before_read(object).await?;
    let open = object.open(true, false).await?;
    // An offset that no file can have is beyond the end of every file.
    if args.offset >= i64::MAX as u64 {
        return Ok(ReadData::new(Payload::Bytes(Bytes::new()), true));
    }
    let most = (object.export.max_transfer_bytes as usize).min(MAX_TRANSFER_BYTES);
    let len = (args.count as usize).min(most);
    let how = ReadHow { span_allowed: cx.call.span_allowed, tells_holes: false };
    Ok(object.store().read(&open, args.offset, len, how).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::Fh3;

    fn read(rig: &Rig, file: &Fh3, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let args = Args { file: file.clone(), offset, count };
        let data = rig.call::<Read>(&args).unwrap();
        let Payload::Bytes(bytes) = data.data else { panic!() };
        (bytes.to_vec(), data.eof)
    }

    #[test]
    fn parts_the_end_and_beyond() {
        let rig = Rig::new();
        let file = rig.file("f", b"hello world");
        assert_eq!(read(&rig, &file, 0, 5), (b"hello".to_vec(), false));
        assert_eq!(read(&rig, &file, 6, 100), (b"world".to_vec(), true));
        assert_eq!(read(&rig, &file, 50, 1), (Vec::new(), true));
        assert_eq!(read(&rig, &file, u64::MAX, u32::MAX), (Vec::new(), true));
    }

    #[test]
    fn a_long_read_is_cut_at_the_exports_limit() {
        let rig = Rig::with(|export| export.max_transfer_bytes = 4096);
        let file = rig.file("f", &[7; 10_000]);
        assert_eq!(read(&rig, &file, 0, 10_000), (vec![7; 4096], false));
    }

    #[test]
    fn directories_and_held_files_are_not_read() {
        let rig = Rig::new();
        let args = |file| Args { file, offset: 0, count: 1 };
        assert_eq!(rig.call::<Read>(&args(rig.root())).unwrap_err().0, Status::Inval);
        let file = rig.file("f", b"x");
        let rig = rig.held();
        assert_eq!(rig.call::<Read>(&args(file)).unwrap_err().0, Status::Jukebox);
    }
}
