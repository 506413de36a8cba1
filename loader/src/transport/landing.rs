//! Where the data of a READ is to lie. The transport writes it there straight
//! from the wire, and gives the memory back with the answer.

use bytes::{Bytes, BytesMut};
use std::any::Any;
use std::fmt;
use zgate_fabric::RemoteSlice;
use zgate_nfs::v4::op::sequence;
use zgate_nfs::v4::wire::{OpNum, Status};
use zgate_store::AlignedBuf;
use zgate_xdr::{Decode, Decoder};

use crate::error::ClientError;

/// Memory that data can be placed into: host memory of any origin, or another
/// device's memory that an RDMA device can write.
pub trait Place: Send + 'static {
    /// All of it. For memory of another device, host memory in its place, which
    /// its owner has to copy afterwards.
    fn bytes(&mut self) -> &mut [u8];
    /// Its length in bytes.
    fn length(&mut self) -> usize {
        self.bytes().len()
    }
    /// Where it is for peers, if it is another device's memory and registered.
    fn registered(&self) -> Option<RemoteSlice> {
        None
    }
    /// A peer has written there: what [`Self::bytes`] may have is void.
    fn written_by_peer(&mut self) {}
    /// For the owner, to get its own type back.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    /// Whether it is a [`BytesMut`], which can be registered with a device as
    /// it is.
    fn is_bytes(&self) -> bool {
        false
    }
}

impl Place for BytesMut {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
    fn is_bytes(&self) -> bool {
        true
    }
}

/// Memory under way.
pub struct Landing(Box<dyn Place>);

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Landing")
    }
}

impl Landing {
    /// Of memory.
    #[must_use]
    pub fn new(place: impl Place) -> Self {
        Self(Box::new(place))
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.0.bytes()
    }

    /// Its length in bytes.
    pub(crate) fn length(&mut self) -> usize {
        self.0.length()
    }

    /// Where it is for peers, if they can reach it already.
    pub(crate) fn registered(&self) -> Option<RemoteSlice> {
        self.0.registered()
    }

    /// A peer has written there.
    pub(crate) fn written_by_peer(&mut self) {
        self.0.written_by_peer();
    }

    /// Whether a device can write to the memory itself.
    pub(crate) fn can_be_lent(&self) -> bool {
        self.0.is_bytes()
    }

    /// The memory for a device; nothing if it is of another kind.
    pub(crate) fn lend(self) -> AlignedBuf {
        AlignedBuf::lent(self.into::<BytesMut>().unwrap_or_default())
    }

    /// The memory, if it is a `T`.
    #[must_use]
    pub fn into<T: 'static>(self) -> Option<T> {
        self.0.into_any().downcast().ok().map(|place| *place)
    }
}

/// How a call ended.
#[derive(Debug)]
pub struct Arrived {
    /// The RPC message; without the data, if that was placed.
    pub reply: Result<Bytes, ClientError>,
    /// The memory that was lent.
    pub landing: Option<Landing>,
    /// How many bytes were placed in it; none if the data, if there is any, is
    /// in the reply.
    pub placed: Option<usize>,
}

/// Bytes of a reply that are looked at to find the data of its READ.
pub(crate) const LOOK_BYTES: usize = 512;

/// Finds the data of `SEQUENCE, PUTFH, READ` in the beginning of a reply:
/// where it begins and how long it is. `None`: it is no such reply, and is
/// received whole.
pub(crate) fn locate(beginning: &[u8]) -> Option<(usize, usize)> {
    let mut d = Decoder::new(beginning);
    zgate_rpc::message::decode_reply(&mut d).ok()?;
    if Status::decode(&mut d).ok()? != Status::Ok {
        return None;
    }
    d.opaque(zgate_nfs::limits::MAX_TAG_BYTES).ok()?;
    d.u32().ok()?;
    for expected in [OpNum::Sequence, OpNum::Putfh, OpNum::Read] {
        let (seen, status) = (d.u32().ok()?, Status::decode(&mut d).ok()?);
        if seen != expected as u32 || status != Status::Ok {
            return None;
        }
        if expected == OpNum::Sequence {
            sequence::Res::decode(&mut d).ok()?;
        }
    }
    bool::decode(&mut d).ok()?;
    let len = d.length(zgate_nfs::limits::MAX_TRANSFER_BYTES).ok()?;
    Some((d.position(), len))
}
