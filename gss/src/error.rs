//! Errors of the library, with its own words.

use crate::abi::{GSS_CODE, MECH_CODE, OidDesc, Status};
use crate::buffer::Filled;
use crate::library::{Functions, LoadError};
use std::ffi::c_int;
use thiserror::Error;

/// Most messages of one status; each step of the library's chain has one.
const MAX_MESSAGES: usize = 8;

/// Failure of the library.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GssError {
    /// The library cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call failed.
    #[error("{text}")]
    Failed {
        /// Major status (RFC 2743 §1.2.1.1).
        major: u32,
        /// Status of Kerberos.
        minor: u32,
        /// The library's words.
        text: String,
    },
    /// A setting contains a byte that C strings cannot.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// The other side of a context has not proven itself.
    #[error("the other side has not authenticated itself")]
    OneSided,
}

impl GssError {
    /// The error of a call. Must follow the call on the same thread: the library
    /// keeps details by thread.
    pub(crate) fn of(functions: &'static Functions, major: Status, minor: Status) -> Self {
        // Kerberos' own message is the useful one; the general one repeats
        // "Unspecified GSS failure".
        let mut text = messages(functions, minor, MECH_CODE);
        if text.is_empty() || minor == 0 {
            text = messages(functions, major, GSS_CODE);
        }
        Self::Failed { major, minor, text }
    }
}

fn messages(functions: &'static Functions, status: Status, kind: c_int) -> String {
    let (mut more, mut found) = (0_u32, Vec::new());
    let mechanism = OidDesc::kerberos();
    for _ in 0..MAX_MESSAGES {
        let (major, _, message) = Filled::by(functions, |minor, buffer| {
            // SAFETY: `more` is 0 or what the last call has set; the buffer is
            // empty; the mechanism lives as long as the call.
            unsafe {
                (functions.display_status)(minor, status, kind, &mechanism, &mut more, buffer)
            }
        });
        if major != 0 {
            break;
        }
        found.push(message.text());
        if more == 0 {
            break;
        }
    }
    found.join(": ")
}
