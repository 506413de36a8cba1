//! Memory outside the host, such as a GPU's, and access of peers to it.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// Memory of another device, allocated as long as this value exists.
pub trait Foreign: Send + Sync + fmt::Debug {
    /// Returns its address as known to the drivers.
    fn address(&self) -> u64;

    /// Exports a dmabuf that begins with the first byte of `range`.
    ///
    /// # Errors
    /// The reason for which there is none.
    fn dmabuf(&self, range: Range<usize>) -> io::Result<OwnedFd>;

    /// Copies data into the memory, for a fabric without hardware.
    ///
    /// # Errors
    /// The device's error.
    fn write(&self, at: usize, data: &[u8]) -> io::Result<()>;
}

/// A part of foreign memory that peers may write until this is dropped.
pub struct Window {
    /// Key by which peers name it.
    pub rkey: u32,
    /// Address by which peers name its first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
    /// Method of registration: "dmabuf", "peer memory".
    pub how: &'static str,
    registration: Box<dyn Any + Send + Sync>,
}

impl Window {
    /// Creates a window. `registration` ends the access when it is dropped, and
    /// keeps the memory alive.
    #[must_use]
    pub fn new(
        (rkey, address, len): (u32, u64, usize),
        how: &'static str,
        registration: impl Any + Send + Sync,
    ) -> Self {
        Self { rkey, address, len, how, registration: Box::new(registration) }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = &self.registration;
        write!(f, "Window({} bytes, {})", self.len, self.how)
    }
}
