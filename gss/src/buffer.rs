//! Memory of the library that holds a result.

use crate::abi::{BufferDesc, Status};
use crate::library::Functions;
use std::slice;

/// A buffer that the library has filled; released when dropped.
pub(crate) struct Filled {
    functions: &'static Functions,
    buffer: BufferDesc,
}

impl Filled {
    /// Runs a call that fills the buffer it is given; returns the major and
    /// minor status besides the buffer.
    pub(crate) fn by(
        functions: &'static Functions,
        call: impl FnOnce(&mut Status, &mut BufferDesc) -> Status,
    ) -> (Status, Status, Self) {
        let mut filled = Self { functions, buffer: BufferDesc::empty() };
        let mut minor = 0;
        let major = call(&mut minor, &mut filled.buffer);
        (major, minor, filled)
    }

    /// Returns the content.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.buffer.value.is_null() || self.buffer.length == 0 {
            return &[];
        }
        // SAFETY: the library has set a pointer to that many bytes, which stay
        // until `gss_release_buffer`.
        unsafe { slice::from_raw_parts(self.buffer.value.cast::<u8>(), self.buffer.length) }
    }

    /// Returns the content as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the buffer is empty or was filled by the library, and is used
        // no more.
        unsafe { (self.functions.release_buffer)(&mut minor, &mut self.buffer) };
    }
}
