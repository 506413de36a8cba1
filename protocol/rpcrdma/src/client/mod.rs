//! The requester: frames calls and locates replies. Used by the loader and by
//! tests.

mod call;
mod reply;

pub use call::{CallFrame, CallParts, CallTooLong};
pub use reply::{Reply, ReplyError, Results};
