//! WRITE (RFC 1813 §3.3.7).

use super::Procedure;
use crate::limits::{MAX_FH3_BYTES, MAX_TRANSFER_BYTES};
use crate::v3::cx::{Cx, Object};
use crate::v3::guard::Change;
use crate::v3::wire::{Fh3, StableHow, Status, WccData};
use bytes::Bytes;
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The procedure.
#[derive(Debug)]
pub struct Write;

/// WRITE3args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The file.
    pub file: Fh3,
    /// First byte.
    pub offset: u64,
    /// Bytes to write.
    pub count: u32,
    /// How stable they must be before the answer.
    pub stable: StableHow,
    /// The data.
    pub data: Bytes,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.file.encode(e);
        e.u64(self.offset);
        e.u32(self.count);
        self.stable.encode(e);
        e.bulk(Payload::Bytes(self.data.clone()));
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            file: Fh3::decode(d)?,
            offset: d.u64()?,
            count: d.u32()?,
            stable: StableHow::decode(d)?,
            data: d.bulk(MAX_TRANSFER_BYTES)?,
        })
    }
}

/// Where the data of a WRITE lies, from the first bytes of its arguments:
/// (offset of the body in `d`'s input, length in bytes). Lets a transport
/// receive the body where it is to stay.
///
/// # Errors
/// [`XdrError`] when the input ends before the body or is none of ours.
pub fn body_position(d: &mut Decoder<'_>) -> Result<(usize, usize), XdrError> {
    d.opaque(MAX_FH3_BYTES)?;
    d.take(8 + 4 + 4)?;
    d.bulk_position(MAX_TRANSFER_BYTES)
}

zgate_xdr::xdr_struct! {
    /// WRITE3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Written {
        /// The file.
        pub wcc: WccData,
        /// Bytes written.
        pub count: u32,
        /// How stable they are.
        pub committed: StableHow,
        /// Changes when unstable data may have been lost.
        pub verifier: [u8; 8],
    }
}

impl Procedure for Write {
    const NUMBER: u32 = 7;
    type Args = Args;
    type Ok = Written;
    type Fail = WccData;

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
    let change = cx.before_change(object, object.node, Change::Data).await?;
    let open = object.open(false, true).await?;
    // A short write is the server's right; the client sends the rest again.
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
    fn a_long_write_is_cut_at_the_exports_limit() {
        let rig = Rig::with(|export| export.max_transfer_bytes = 4096);
        let file = rig.file("f", b"");
        assert_eq!(rig.call::<Write>(&args(&file, 0, &[1; 5000])).unwrap().count, 4096);
    }

    #[test]
    fn the_body_is_found_before_it_arrives() {
        let mut e = Encoder::new();
        args(&Fh3(vec![1; 13]), 0, b"data!").encode(&mut e);
        let raw = e.finish().flatten().unwrap();
        let (at, len) = body_position(&mut Decoder::new(&raw[..raw.len() - 8])).unwrap();
        assert_eq!(&raw[at..at + len], b"data!");
    }
}
