//! Messages of an initiator, for tests and bridges.

use super::header::{Header, RemoteBuffer};
use super::message::encode;
use crate::pdu::Outgoing;
use bytes::Bytes;

/// A message with a PDU, and the memory it advertises: `write` for the target's
/// reads, `read` for its writes. `None` if some data is not in memory.
#[must_use]
pub fn message(
    pdu: Outgoing,
    write: Option<RemoteBuffer>,
    read: Option<RemoteBuffer>,
) -> Option<Vec<Bytes>> {
    encode(&Header::Control { write, read }, pdu)
}
