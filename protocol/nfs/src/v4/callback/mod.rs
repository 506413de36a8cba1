//! Callbacks: what the server asks of its clients (RFC 8881 §20,
//! RFC 7530 §16), encoded and decoded here, carried by the gateway.

mod channel;
mod delegated;
mod message;
mod probe;

pub use channel::BackChannels;
pub use delegated::DelegatedAttributes;
pub use message::{CallbackOp, CallbackReply, recall_call};
pub use probe::CallbackProbe;
