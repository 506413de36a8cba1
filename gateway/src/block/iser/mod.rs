//! iSCSI over RDMA (RFC 7145): the session's data is written into and read
//! from the initiator's memory, everything else is Sends.
//!
//! * `wire` is the connection of the fabric, as login needs it;
//! * `connection` is full feature phase.

mod connection;
mod wire;

pub(crate) use connection::serve;

use zgate_iscsi::login::{Offer, Transport};
use zgate_iser::limits::MAX_DATA_BYTES;

/// What of an offer holds on iSER: no digests (RFC 7145 §6.1), one connection
/// a session and no recovery within it, short data segments, since everything
/// long goes by RDMA.
pub(crate) fn restrict(offer: &mut Offer) {
    offer.transport = Transport::Iser;
    offer.header_digests = vec!["None"];
    offer.data_digests = vec!["None"];
    offer.max_connections = 1;
    offer.error_recovery_level = 0;
    offer.max_recv_bytes = MAX_DATA_BYTES;
    offer.first_burst_bytes = MAX_DATA_BYTES;
}
