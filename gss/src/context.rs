//! Contexts: signing and encryption of messages.

use crate::abi::{BufferDesc, ContextId, ERROR_BITS, Status};
use crate::buffer::Filled;
use crate::library::Functions;
use crate::name::OwnedName;
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A security context; the library zeroes its keys when it is dropped.
///
/// The library's contexts are not for several threads at a time: calls on one
/// context follow each other.
pub struct Context {
    functions: &'static Functions,
    raw: Mutex<RawContext>,
}

/// Pointer to a context of the library; null: none.
pub(crate) struct RawContext(pub(crate) ContextId);

// SAFETY: a context may be used by any thread, one at a time; the mutex around
// it sees to that.
unsafe impl Send for RawContext {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context")
    }
}

fn is_error(major: Status) -> bool {
    major & ERROR_BITS != 0
}

impl Context {
    /// A context that is not begun.
    pub(crate) fn empty(functions: &'static Functions) -> Self {
        Self { functions, raw: Mutex::new(RawContext(ptr::null_mut())) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RawContext> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the principal of the side that has accepted the context.
    pub(crate) fn acceptor(&self) -> Option<String> {
        let raw = self.lock();
        let (mut minor, mut name) = (0, OwnedName::empty(self.functions));
        let none = ptr::null_mut();
        // SAFETY: the context is the library's, established and locked; other
        // results are not asked for.
        let major = unsafe {
            (self.functions.inquire_context)(
                &mut minor,
                raw.0,
                ptr::null_mut(),
                &mut name.raw,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                none,
                none,
            )
        };
        if is_error(major) { None } else { name.text() }
    }

    /// Returns whether `mic` is the peer's code over `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        let raw = self.lock();
        let (message, mic) = (BufferDesc::of(message), BufferDesc::of(mic));
        let (mut minor, mut qop) = (0, 0);
        // SAFETY: the context is the library's and locked; both buffers are only
        // read, and outlive the call.
        let major =
            unsafe { (self.functions.verify_mic)(&mut minor, raw.0, &message, &mic, &mut qop) };
        !is_error(major)
    }

    /// Computes the code over `message`; `None` if the context cannot (it has
    /// expired, for example).
    #[must_use]
    pub fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        let raw = self.lock();
        let message = BufferDesc::of(message);
        let (major, _, token) = Filled::by(self.functions, |minor, token| {
            // SAFETY: the context is the library's and locked; the message is
            // only read, and outlives the call; the token is empty.
            unsafe { (self.functions.get_mic)(minor, raw.0, 0, &message, token) }
        });
        (!is_error(major)).then(|| token.bytes().to_vec())
    }

    /// Encrypts `message`; `None` if the context cannot.
    #[must_use]
    pub fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        let raw = self.lock();
        let message = BufferDesc::of(message);
        let mut is_encrypted: c_int = 0;
        let (major, _, token) = Filled::by(self.functions, |minor, token| {
            // SAFETY: as in `mic`.
            unsafe { (self.functions.wrap)(minor, raw.0, 1, 0, &message, &mut is_encrypted, token) }
        });
        (!is_error(major) && is_encrypted != 0).then(|| token.bytes().to_vec())
    }

    /// Decrypts a token; `None` if the peer has not made it, or has not
    /// encrypted it.
    #[must_use]
    pub fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        let raw = self.lock();
        let token = BufferDesc::of(token);
        let (mut is_encrypted, mut qop): (c_int, u32) = (0, 0);
        let (major, _, message) = Filled::by(self.functions, |minor, message| {
            // SAFETY: the context is the library's and locked; the token is only
            // read, and outlives the call; the message is empty.
            unsafe {
                let encrypted = &mut is_encrypted;
                (self.functions.unwrap)(minor, raw.0, &token, message, encrypted, &mut qop)
            }
        });
        (!is_error(major) && is_encrypted != 0).then(|| message.bytes().to_vec())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !raw.0.is_null() {
            let mut minor = 0;
            // SAFETY: the context is the library's, and nobody uses it any more.
            unsafe {
                (self.functions.delete_sec_context)(&mut minor, &mut raw.0, ptr::null_mut());
            }
        }
    }
}
