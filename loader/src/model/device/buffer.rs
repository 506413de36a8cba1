//! A part of a device's memory as the destination of a READ.

use crate::transport::PlacementBuffer;
use bytes::BytesMut;
use std::any::Any;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_cuda::DeviceMemory;
use zgate_fabric::{Foreign, RemoteSlice, Window};

/// A device's memory in the form a fabric needs.
#[derive(Debug)]
pub(super) struct Reachable(pub(super) Arc<DeviceMemory>);

impl Foreign for Reachable {
    fn address(&self) -> u64 {
        self.0.address()
    }

    fn dmabuf(&self, range: Range<usize>) -> io::Result<OwnedFd> {
        Ok(self.0.dmabuf(range)?)
    }

    fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        Ok(self.0.write(at, data)?)
    }
}

/// A part of a window. A transport that cannot write there puts the data into
/// host memory instead, which [`DeviceBuffer::beside`] returns.
#[derive(Debug)]
pub(super) struct DeviceBuffer {
    window: Arc<Window>,
    /// Offset within the window.
    start: usize,
    len: usize,
    beside: Option<BytesMut>,
}

impl DeviceBuffer {
    /// Creates a buffer of bytes `start..start + len` of a window.
    pub(super) fn new(window: &Arc<Window>, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= window.len);
        Self { window: Arc::clone(window), start, len, beside: None }
    }

    /// Returns the data that the last READ put into host memory.
    pub(super) fn beside(&mut self) -> Option<BytesMut> {
        self.beside.take()
    }

    /// Returns the part behind the first `bytes`, if there is any.
    pub(super) fn rest(mut self, bytes: usize) -> Option<Self> {
        let bytes = bytes.min(self.len);
        self.start += bytes;
        self.len -= bytes;
        (self.len > 0).then_some(self)
    }
}

impl PlacementBuffer for DeviceBuffer {
    fn bytes(&mut self) -> &mut [u8] {
        let len = self.len;
        self.beside.get_or_insert_with(|| BytesMut::zeroed(len))
    }

    fn length(&mut self) -> usize {
        self.len
    }

    fn registered(&self) -> Option<RemoteSlice> {
        Some(RemoteSlice {
            rkey: self.window.rkey,
            address: self.window.address + self.start as u64,
            len: u32::try_from(self.len).ok()?,
        })
    }

    fn written_by_peer(&mut self) {
        self.beside = None;
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
