//! The table of operational keys (RFC 7143 §13, RFC 7144 §4, RFC 7145 §6).

use super::params::{Offer, Operational};
use crate::limits::{
    MAX_BURST_BYTES, MAX_DATA_SEGMENT_BYTES, MAX_OUTSTANDING_R2T, MIN_SEGMENT_BYTES,
};

/// Reads the target's value of a number or boolean.
type Ours<T> = fn(&Offer) -> T;
/// Stores a result.
type Store<T> = fn(&mut Operational, T);

/// Negotiation rule of a key (RFC 7143 §6.2).
pub(super) enum Rule {
    /// The first acceptable entry of the initiator's list.
    Choice(fn(&Offer) -> &[&'static str], fn(&mut Operational, &str)),
    /// Yes if both sides say Yes.
    And(Ours<bool>, Store<bool>),
    /// Yes if either side says Yes.
    Or(Ours<bool>, Store<bool>),
    /// The smaller number, in a range.
    Minimum(u32, u32, Ours<u32>, Store<u32>),
    /// The larger number, in a range.
    Maximum(u32, u32, Ours<u32>, Store<u32>),
    /// The initiator declares a number, in a range; no answer.
    Declare(u32, u32, Store<u32>),
    /// The initiator declares a boolean; no answer.
    DeclareBoolean(Store<bool>),
    /// The initiator declares text that is ignored; no answer.
    Note,
    /// A constant answer.
    Fixed(&'static str),
    /// Only the target may send the key: a protocol error.
    TargetOnly,
}

/// Scope of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole session: only the leading connection negotiates it.
    Session,
    /// One connection.
    Connection,
}

/// One key.
pub(super) struct KeySpec {
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    pub(super) scope: Scope,
    /// True if the key is valid in a discovery session.
    pub(super) in_discovery: bool,
    /// True if the key may change in full feature phase.
    pub(super) in_full_feature: bool,
}

const fn key(name: &'static str, rule: Rule, scope: Scope, in_discovery: bool) -> KeySpec {
    KeySpec { name, rule, scope, in_discovery, in_full_feature: false }
}

const fn anytime(name: &'static str, rule: Rule) -> KeySpec {
    KeySpec { name, rule, scope: Scope::Connection, in_discovery: true, in_full_feature: true }
}

use Rule::{And, Choice, Declare, DeclareBoolean, Fixed, Maximum, Minimum, Note, Or, TargetOnly};
use Scope::{Connection, Session};

/// All operational keys, in the order of negotiation: FirstBurstLength after
/// MaxBurstLength, which it must not exceed, and MaxOutstandingR2T after the keys that
/// make it 1.
pub(super) static KEYS: &[KeySpec] = &[
    key(
        "HeaderDigest",
        Choice(|o| &o.header_digests, |p, v| p.header_digest = v == "CRC32C"),
        Connection,
        true,
    ),
    key(
        "DataDigest",
        Choice(|o| &o.data_digests, |p, v| p.data_digest = v == "CRC32C"),
        Connection,
        true,
    ),
    key(
        "MaxConnections",
        Minimum(1, 65535, |o| o.max_connections, |p, v| p.max_connections = v),
        Session,
        false,
    ),
    key("InitialR2T", Or(|o| o.initial_r2t, |p, v| p.initial_r2t = v), Session, false),
    key("ImmediateData", And(|o| o.immediate_data, |p, v| p.immediate_data = v), Session, false),
    anytime(
        "MaxRecvDataSegmentLength",
        Declare(MIN_SEGMENT_BYTES, MAX_DATA_SEGMENT_BYTES, |p, v| p.initiator_recv_bytes = v),
    ),
    key(
        "MaxBurstLength",
        Minimum(
            MIN_SEGMENT_BYTES,
            MAX_BURST_BYTES,
            |o| o.max_burst_bytes,
            |p, v| p.max_burst_bytes = v,
        ),
        Session,
        false,
    ),
    key(
        "FirstBurstLength",
        Minimum(
            MIN_SEGMENT_BYTES,
            MAX_BURST_BYTES,
            |o| o.first_burst_bytes,
            |p, v| p.first_burst_bytes = v,
        ),
        Session,
        false,
    ),
    key(
        "DefaultTime2Wait",
        Maximum(0, 3600, |o| o.time2wait_seconds, |p, v| p.time2wait_seconds = v),
        Session,
        true,
    ),
    key(
        "DefaultTime2Retain",
        Minimum(0, 3600, |o| o.time2retain_seconds, |p, v| p.time2retain_seconds = v),
        Session,
        true,
    ),
    key(
        "DataPDUInOrder",
        Or(|o| o.data_pdu_in_order, |p, v| p.data_pdu_in_order = v),
        Session,
        false,
    ),
    key(
        "DataSequenceInOrder",
        Or(|o| o.data_sequence_in_order, |p, v| p.data_sequence_in_order = v),
        Session,
        false,
    ),
    key(
        "ErrorRecoveryLevel",
        Minimum(0, 2, |o| o.error_recovery_level, |p, v| p.error_recovery_level = v),
        Session,
        true,
    ),
    key(
        "MaxOutstandingR2T",
        Minimum(
            1,
            65535,
            |o| o.max_outstanding_r2t.min(MAX_OUTSTANDING_R2T),
            |p, v| p.max_outstanding_r2t = v,
        ),
        Session,
        false,
    ),
    key(
        "iSCSIProtocolLevel",
        Minimum(0, 31, |o| o.protocol_level, |p, v| p.protocol_level = v),
        Session,
        false,
    ),
    key("TaskReporting", Choice(|_| &["RFC3720"], |_, _| ()), Session, false),
    key(
        "RDMAExtensions",
        And(|o| o.transport == super::Transport::Iser, |p, v| p.rdma_extensions = v),
        Session,
        true,
    ),
    key(
        "InitiatorRecvDataSegmentLength",
        Minimum(
            MIN_SEGMENT_BYTES,
            MAX_DATA_SEGMENT_BYTES,
            |_| MAX_DATA_SEGMENT_BYTES,
            |p, v| {
                p.initiator_recv_bytes = v;
            },
        ),
        Connection,
        false,
    ),
    key(
        "TargetRecvDataSegmentLength",
        Minimum(
            MIN_SEGMENT_BYTES,
            MAX_DATA_SEGMENT_BYTES,
            |o| o.max_recv_bytes,
            |p, v| p.target_recv_bytes = v,
        ),
        Connection,
        false,
    ),
    key("MaxOutstandingUnexpectedPDUs", Note, Session, false),
    key("MaxAHSLength", Note, Connection, false),
    key(
        "TaggedBufferForSolicitedDataOnly",
        DeclareBoolean(|p, v| p.solicited_buffer_only = v),
        Session,
        false,
    ),
    key("iSERHelloRequired", DeclareBoolean(|p, v| p.iser_hello = v), Session, false),
    // Markers were removed from RFC 7143 §13.25: No, and Reject for the
    // intervals.
    key("OFMarker", Fixed("No"), Connection, true),
    key("IFMarker", Fixed("No"), Connection, true),
    key("OFMarkInt", Fixed("Reject"), Connection, true),
    key("IFMarkInt", Fixed("Reject"), Connection, true),
    anytime("InitiatorAlias", Note),
    key("TargetAlias", TargetOnly, Session, true),
    key("TargetAddress", TargetOnly, Session, true),
    key("TargetPortalGroupTag", TargetOnly, Session, true),
];

/// The specification of the key named `name`. iSCSIProtocolLevel (RFC 7144
/// §7.1.1) and iSERHelloRequired (RFC 7145 §6.10) do not start with a capital
/// letter.
pub(super) fn find(name: &str) -> Option<(usize, &'static KeySpec)> {
    KEYS.iter().enumerate().find(|(_, spec)| spec.name == name)
}

/// Keys that identify initiator, target and session type; accepted in every
/// stage of login.
pub(super) const IDENTITY_KEYS: [&str; 3] = ["InitiatorName", "TargetName", "SessionType"];

/// Keys of the security stage.
pub(super) fn is_security_key(name: &str) -> bool {
    name == "AuthMethod" || name.starts_with("CHAP_")
}
