//! Memory that is not the host's, a GPU's for instance, and peers that write it.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// Memory of another device. It is there as long as this is.
pub trait Foreign: Send + Sync + fmt::Debug {
    /// Its address, by which the system's drivers know it.
    fn address(&self) -> u64;

    /// A dmabuf that begins with the first byte of `range`.
    ///
    /// # Errors
    /// Why there is none.
    fn dmabuf(&self, range: Range<usize>) -> io::Result<OwnedFd>;

    /// Copies into it, for a fabric that has no hardware to do it.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, at: usize, data: &[u8]) -> io::Result<()>;
}

/// A part of foreign memory that peers may write. Out of reach when this is
/// dropped.
pub struct Window {
    /// The key peers name it by.
    pub rkey: u32,
    /// The address peers name its first byte by.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
    /// How it was registered: "dmabuf", "peer memory".
    pub how: &'static str,
    registration: Box<dyn Any + Send + Sync>,
}

impl Window {
    /// `registration` ends the reach when it is dropped, and keeps the memory.
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
