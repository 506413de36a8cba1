//! RPCSEC_GSS (RFC 2203): calls whose caller has proven who it is.
//!
//! Everything here is pure. The mechanism, Kerberos in the gateway, is behind
//! [`SecurityContext`]; whoever uses this module runs it where it may take its
//! time.

mod body;
mod contexts;
mod control;
mod credential;
mod incoming;
mod limits;
mod outgoing;
mod service;
mod window;

pub use body::{open_arguments, reply_overhead_bytes, seal_results};
pub use contexts::{Contexts, Established, Handle};
pub use control::{InitResult, InitToken, Step};
pub use credential::{GssCredential, Procedure, signed_header};
pub use incoming::{Refusal, Told, check_token_call, results_reply, token_reply};
pub use limits::{
    CONTEXT_IDLE_SECONDS, MAX_CONTEXTS, MAX_CONTEXTS_PER_HOST, MAX_HANDLE_BYTES,
    MAX_INIT_EXCHANGES, MAX_PENDING, MAX_PENDING_PER_HOST, MAX_SEQUENCE, MAX_TOKEN_BYTES,
    MIN_OUTGOING_WINDOW, PENDING_SECONDS, SEQUENCE_WINDOW,
};
pub use outgoing::{
    BoxedSecurityContext, Establishing, OutgoingContext, OutgoingFault, ProtectedCall, ServerStep,
    WindowProof,
};
pub use service::Service;
pub use window::{SequenceFault, SequenceWindow};

/// Major status of a mechanism that is done (RFC 2743 §1.2.1.1).
pub const COMPLETE: u32 = 0;
/// Major status of a mechanism that waits for another token.
pub const CONTINUE_NEEDED: u32 = 1;
/// Major status of a fault that the mechanism does not explain.
pub const FAILURE: u32 = 13 << 16;
/// Major status of a token or handle of a context that does not exist.
pub const NO_CONTEXT: u32 = 8 << 16;

/// Object identifier of Kerberos 5 in DER, without tag and length: 1.2.840.113554.1.2.2
/// (RFC 4121 §4.1).
pub const KERBEROS_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// A security context that is established: the mechanism's part of each call.
pub trait SecurityContext {
    /// Returns whether `mic` is the peer's code over `message`.
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool;

    /// Computes the code over `message`; `None` if the context no longer can.
    fn mic(&self, message: &[u8]) -> Option<Vec<u8>>;

    /// Encrypts `message`; `None` if the context cannot.
    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>>;

    /// Decrypts a token; `None` if the peer has not made it, or has not
    /// encrypted it.
    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>>;
}

#[cfg(any(test, feature = "test-mechanism"))]
pub mod fake;
