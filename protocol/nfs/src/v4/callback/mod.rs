//! Callbacks: requests of the server to its clients (RFC 8881 §20, RFC 7530
//! §16), sent in slots here, transported by the gateway.

mod channel;
mod message;
mod probe;

pub use channel::BackChannels;
#[cfg(test)]
pub(in crate::v4) use channel::tests::Silence;
pub(crate) use channel::{CallbackOutcome, CallbackTarget, MadeBy};
pub(crate) use message::longest_recall_bytes;
pub use message::recall_call;
