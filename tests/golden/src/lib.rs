//! Messages of other implementations as tests of our codecs: each is decoded
//! and encoded again, and the bytes must be the same.
//!
//! The messages are in `captures/`, one per file ([`Capture`]).
//! `cargo xtask golden` extracts them from packet captures of the lab;
//! `cargo xtask golden record` records clients and servers that need no virtual
//! machine.

mod callback;
mod capture;
mod coverage;
mod iscsi;
mod mount;
mod nfs3;
mod nfs4;
mod rpc;

pub use capture::{Capture, all};
pub use coverage::{Coverage, Missing};

use std::fmt;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The protocol of a message, and the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A call of the NFSv4 program, with its RPC header.
    Nfs4Call,
    /// A client's reply to a callback, with its RPC header.
    CallbackReply,
    /// A call of the NFSv3 program, with its RPC header.
    Nfs3Call,
    /// A call of the MOUNT program, with its RPC header.
    MountCall,
    /// A server's callback, with its RPC header.
    CallbackCall,
    /// An initiator's PDU without digests.
    Iscsi,
    /// A target's PDU without digests.
    IscsiTarget,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Nfs4Call,
        Self::CallbackReply,
        Self::CallbackCall,
        Self::Nfs3Call,
        Self::MountCall,
        Self::Iscsi,
        Self::IscsiTarget,
    ];

    /// The name in a capture's header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs4Call => "nfs4-call",
            Self::CallbackReply => "callback-reply",
            Self::Nfs3Call => "nfs3-call",
            Self::MountCall => "mount-call",
            Self::CallbackCall => "callback-call",
            Self::Iscsi => "iscsi",
            Self::IscsiTarget => "iscsi-target",
        }
    }

    /// Operations, procedures or PDUs that our codec supports for it.
    #[must_use]
    pub fn known(self) -> Vec<&'static str> {
        match self {
            Self::Nfs4Call => nfs4::names(),
            Self::CallbackReply => callback::reply_names(),
            Self::CallbackCall => callback::call_names(),
            Self::Nfs3Call => nfs3::names(),
            Self::MountCall => mount::names(),
            Self::Iscsi => iscsi::names(iscsi::INITIATOR),
            Self::IscsiTarget => iscsi::names(iscsi::TARGET),
        }
    }
}

/// A message after decoding and encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The operations, procedure or PDU in it, in order.
    pub holds: Vec<&'static str>,
    /// The minor version of a COMPOUND.
    pub minor: Option<u32>,
    /// The encoded bytes.
    pub bytes: Vec<u8>,
}

/// Reasons why a message is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood(pub String);

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotUnderstood {}

/// Decodes a message and encodes it again.
///
/// # Errors
/// The error of the decoder.
pub fn round_trip(kind: Kind, message: &[u8]) -> Result<RoundTrip, NotUnderstood> {
    match kind {
        Kind::Nfs4Call => rpc::call(message, nfs4::arguments),
        Kind::CallbackReply => rpc::reply(message, callback::results),
        Kind::Nfs3Call => rpc::call(message, nfs3::arguments),
        Kind::MountCall => rpc::call(message, mount::arguments),
        Kind::CallbackCall => rpc::call(message, callback::arguments),
        Kind::Iscsi => iscsi::round_trip(iscsi::INITIATOR, message),
        Kind::IscsiTarget => iscsi::round_trip(iscsi::TARGET, message),
    }
}

/// Decodes one value and encodes it again.
fn again<T: Decode + Encode>(d: &mut Decoder<'_>, e: &mut Encoder) -> Result<(), XdrError> {
    T::decode(d)?.encode(e);
    Ok(())
}

/// A function that reads a value of some type and writes it again.
type Again = fn(&mut Decoder<'_>, &mut Encoder) -> Result<(), XdrError>;
