//! The requester: how a call leaves, and where its reply is found. Loaders and
//! tests use it.

mod call;
mod reply;

pub use call::{CallFrame, CallParts, CallTooLong};
pub use reply::{Reply, ReplyError, Results};
