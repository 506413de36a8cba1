//! The responder: receives calls and sends replies.

mod call;
mod reply;

pub use call::{BulkBody, CallFault, CallPlan, Destination, RdmaRead};
pub use reply::{DataItem, RdmaWrite, ReplyFault, ReplyPlan, ReplyShape};

use crate::credits::Grant;
use crate::header::{Body, ErrorBody, Header, Xid};

/// Encodes the answer to a call that cannot be processed. It grants credits as
/// any reply does.
#[must_use]
pub fn error_message(xid: Xid, credits: Grant, error: ErrorBody) -> Vec<u8> {
    Header { xid, credits: credits.get(), body: Body::Error(error) }.encode()
}
