//! A stretch of a device's memory as the place of a READ.

use crate::transport::Place;
use bytes::BytesMut;
use std::any::Any;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_cuda::DeviceMemory;
use zgate_fabric::{Foreign, RemoteSlice, Window};

/// A device's memory as a fabric takes it.
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

/// A part of a window. Over a transport that cannot write there, data comes to
/// host memory instead, which [`DevicePlace::beside`] has.
#[derive(Debug)]
pub(super) struct DevicePlace {
    window: Arc<Window>,
    /// Within the window.
    start: usize,
    len: usize,
    beside: Option<BytesMut>,
}

impl DevicePlace {
    /// Bytes `start..start + len` of a window.
    pub(super) fn new(window: &Arc<Window>, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= window.len);
        Self { window: Arc::clone(window), start, len, beside: None }
    }

    /// What came beside the device's memory in the last READ.
    pub(super) fn beside(&mut self) -> Option<BytesMut> {
        self.beside.take()
    }

    /// What is left behind the first `bytes`, if anything is.
    pub(super) fn rest(mut self, bytes: usize) -> Option<Self> {
        let bytes = bytes.min(self.len);
        self.start += bytes;
        self.len -= bytes;
        (self.len > 0).then_some(self)
    }
}

impl Place for DevicePlace {
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
