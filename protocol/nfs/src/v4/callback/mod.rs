//! Callbacks: requests of the server to its clients (RFC 8881 §20, RFC 7530
//! §16), sent in slots here, transported by the gateway.

mod channel;
mod message;
mod probe;

pub use channel::BackChannels;
pub(crate) use channel::{CallbackOutcome, CallbackTarget};
pub use message::recall_call;
