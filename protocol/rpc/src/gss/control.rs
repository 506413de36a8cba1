//! Establishment of a context (RFC 2203 §5.2): what client and server say, and
//! the step of the mechanism in between.

use super::contexts::Handle;
use super::limits::MAX_TOKEN_BYTES;
use super::{COMPLETE, CONTINUE_NEEDED};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Arguments of INIT and CONTINUE_INIT: a token of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitToken(pub Vec<u8>);

impl Decode for InitToken {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.opaque(MAX_TOKEN_BYTES).map(|token| Self(token.to_vec()))
    }
}

impl Encode for InitToken {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

/// A step of the mechanism with one token of the client.
#[derive(Debug)]
pub enum Step<C> {
    /// The context is established.
    Complete {
        /// The context.
        context: C,
        /// Token for the client.
        token: Vec<u8>,
        /// Time for which it is valid, in seconds.
        lifetime_seconds: u64,
    },
    /// The client must send another token.
    Continue {
        /// The context so far.
        context: C,
        /// Token for the client.
        token: Vec<u8>,
    },
    /// The token was refused.
    Failed {
        /// Major status.
        major: u32,
        /// The mechanism's status.
        minor: u32,
    },
}

/// Results of INIT and CONTINUE_INIT (RFC 2203 §5.2.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitResult {
    /// The context; `None` after a failure.
    pub handle: Option<Handle>,
    /// Major status.
    pub major: u32,
    /// The mechanism's status.
    pub minor: u32,
    /// Calls that may be outstanding.
    pub sequence_window: u32,
    /// Token for the client.
    pub token: Vec<u8>,
}

impl InitResult {
    /// The result of a failure.
    #[must_use]
    pub fn failed(major: u32, minor: u32) -> Self {
        Self { handle: None, major, minor, sequence_window: 0, token: Vec::new() }
    }

    /// Returns whether the context is established.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.major == COMPLETE
    }

    /// Returns whether the client must send another token.
    #[must_use]
    pub fn needs_more(&self) -> bool {
        self.major == CONTINUE_NEEDED
    }
}

impl Encode for InitResult {
    fn encode(&self, e: &mut Encoder) {
        match self.handle {
            Some(handle) => e.opaque(&handle.to_bytes()),
            None => e.opaque(&[]),
        }
        for word in [self.major, self.minor, self.sequence_window] {
            e.u32(word);
        }
        e.opaque(&self.token);
    }
}

impl Decode for InitResult {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let handle = d.opaque(super::limits::MAX_HANDLE_BYTES)?;
        Ok(Self {
            handle: handle.try_into().ok().map(Handle::from_bytes),
            major: d.u32()?,
            minor: d.u32()?,
            sequence_window: d.u32()?,
            token: d.opaque(MAX_TOKEN_BYTES)?.to_vec(),
        })
    }
}
