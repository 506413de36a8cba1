//! Destination of a READ's data. The transport writes the data there directly,
//! and returns the memory with the reply.

use bytes::{Bytes, BytesMut};
use std::any::Any;
use std::fmt;
use zgate_fabric::RemoteSlice;
use zgate_store::AlignedBuf;

use crate::error::ClientError;

/// Memory that data can be placed into: host memory of any kind, or another
/// device's memory that an RDMA device can write.
pub trait PlacementBuffer: Send + 'static {
    /// Returns all bytes. For memory of another device, returns host memory in
    /// its place, which its owner must copy afterwards.
    fn bytes(&mut self) -> &mut [u8];
    /// Returns its length in bytes.
    fn length(&mut self) -> usize {
        self.bytes().len()
    }
    /// Returns its remote address, if it is another device's memory and
    /// registered.
    fn registered(&self) -> Option<RemoteSlice> {
        None
    }
    /// Records that a peer has written there: [`Self::bytes`] is invalid.
    fn written_by_peer(&mut self) {}
    /// Returns itself for a downcast by the owner.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    /// Returns whether it is a [`BytesMut`], which can be registered with a
    /// device as it is.
    fn is_bytes(&self) -> bool {
        false
    }
}

impl PlacementBuffer for BytesMut {
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

/// Memory lent to the transport.
pub struct ReadBuffer(Box<dyn PlacementBuffer>);

impl fmt::Debug for ReadBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadBuffer")
    }
}

impl ReadBuffer {
    /// Wraps memory.
    #[must_use]
    pub fn new(buffer: impl PlacementBuffer) -> Self {
        Self(Box::new(buffer))
    }

    /// Returns the bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.0.bytes()
    }

    /// Returns its length in bytes.
    pub(crate) fn length(&mut self) -> usize {
        self.0.length()
    }

    /// Returns its remote address, if peers can access it already.
    pub(crate) fn registered(&self) -> Option<RemoteSlice> {
        self.0.registered()
    }

    /// Records that a peer has written there.
    pub(crate) fn written_by_peer(&mut self) {
        self.0.written_by_peer();
    }

    /// Returns whether a device can write to the memory itself.
    pub(crate) fn can_be_lent(&self) -> bool {
        self.0.is_bytes()
    }

    /// Returns the memory for a device; empty if it is of another kind.
    pub(crate) fn lend(self) -> AlignedBuf {
        AlignedBuf::lent(self.into::<BytesMut>().unwrap_or_default())
    }

    /// Returns the memory, if it is a `T`.
    #[must_use]
    pub fn into<T: 'static>(self) -> Option<T> {
        self.0.into_any().downcast().ok().map(|buffer| *buffer)
    }
}

/// Result of a call.
#[derive(Debug)]
pub struct Arrived {
    /// RPC message; without the data, if that was placed.
    pub reply: Result<Bytes, ClientError>,
    /// Memory that was lent.
    pub read_buffer: Option<ReadBuffer>,
    /// Number of bytes placed in it; none if the data, if there is any, is in
    /// the reply.
    pub placed: Option<usize>,
}

/// Number of bytes of a reply in which the data of its READ is searched.
pub(crate) const LOOK_BYTES: usize = 512;
