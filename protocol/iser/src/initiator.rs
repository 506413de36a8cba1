//! An initiator's messages, for tests and bridges.

use crate::header::{Header, RemoteBuffer};
use crate::message::encode;
use bytes::Bytes;
use zgate_iscsi::pdu::Outgoing;

/// A message with a PDU, and the memory it advertises: `write` for what the
/// target reads, `read` for what it writes. `None`: data that is not in
/// memory.
#[must_use]
pub fn message(
    pdu: Outgoing,
    write: Option<RemoteBuffer>,
    read: Option<RemoteBuffer>,
) -> Option<Vec<Bytes>> {
    encode(&Header::Control { write, read }, pdu)
}
