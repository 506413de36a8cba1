//! Offered parameters and negotiated parameters.

use crate::limits::{DEFAULT_RECV_SEGMENT_BYTES, ISER_CONTROL_DATA_BYTES, MAX_COMMAND_WINDOW};

/// The transport a login runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP with this crate's framing.
    #[default]
    Tcp,
    /// iSER (RFC 7145): RDMAExtensions=Yes is possible, digests are not.
    Iser,
}

/// The target's side of every negotiation.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Acceptable header digests: `None`, `CRC32C`.
    pub header_digests: Vec<&'static str>,
    /// Acceptable data digests: `None`, `CRC32C`.
    pub data_digests: Vec<&'static str>,
    /// Most connections of a session.
    pub max_connections: u32,
    /// Require an R2T for the first burst.
    pub initial_r2t: bool,
    /// Accept immediate data.
    pub immediate_data: bool,
    /// Longest data segment accepted, in bytes.
    pub max_recv_bytes: u32,
    /// Longest solicited or Data-In burst, in bytes.
    pub max_burst_bytes: u32,
    /// Longest unsolicited data of a command, in bytes.
    pub first_burst_bytes: u32,
    /// DefaultTime2Wait in seconds (the larger value wins).
    pub time2wait_seconds: u32,
    /// DefaultTime2Retain in seconds (the smaller value wins).
    pub time2retain_seconds: u32,
    /// Most R2Ts outstanding for a task.
    pub max_outstanding_r2t: u32,
    /// Require data PDUs in order.
    pub data_pdu_in_order: bool,
    /// Require data sequences in order.
    pub data_sequence_in_order: bool,
    /// Highest error recovery level.
    pub error_recovery_level: u32,
    /// Highest iSCSIProtocolLevel: 2 for RFC 7144.
    pub protocol_level: u32,
    /// Commands that a session may have queued: the CmdSN window.
    pub command_window: u32,
    /// Transport.
    pub transport: Transport,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            header_digests: vec!["None", "CRC32C"],
            data_digests: vec!["None", "CRC32C"],
            max_connections: 4,
            initial_r2t: false,
            immediate_data: true,
            max_recv_bytes: 256 << 10,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 256 << 10,
            time2wait_seconds: 2,
            time2retain_seconds: 20,
            max_outstanding_r2t: 8,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 2,
            protocol_level: 2,
            command_window: 128,
            transport: Transport::Tcp,
        }
    }
}

impl Transport {
    /// Longest data segment that a PDU other than Data-In may carry to an
    /// initiator that declared `declared_bytes`.
    #[must_use]
    pub(crate) fn control_data_bytes(self, declared_bytes: u32, discovery: bool) -> u32 {
        match self {
            Self::Tcp => declared_bytes,
            Self::Iser if discovery => declared_bytes.min(DEFAULT_RECV_SEGMENT_BYTES),
            Self::Iser => declared_bytes.min(ISER_CONTROL_DATA_BYTES),
        }
    }
}

impl Offer {
    /// The command window, within its bounds.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.command_window.clamp(1, MAX_COMMAND_WINDOW)
    }
}

/// The outcome of negotiation; starts as the RFC's defaults (RFC 7143 §13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operational {
    /// Header digests are CRC32C.
    pub header_digest: bool,
    /// Data digests are CRC32C.
    pub data_digest: bool,
    /// Most connections of the session.
    pub max_connections: u32,
    /// The first burst also needs an R2T.
    pub initial_r2t: bool,
    /// A command may carry immediate data.
    pub immediate_data: bool,
    /// Longest data segment that the initiator accepts, in bytes.
    pub initiator_recv_bytes: u32,
    /// Longest data segment that the target accepts, in bytes.
    pub target_recv_bytes: u32,
    /// MaxBurstLength in bytes.
    pub max_burst_bytes: u32,
    /// FirstBurstLength in bytes.
    pub first_burst_bytes: u32,
    /// DefaultTime2Wait in seconds.
    pub time2wait_seconds: u32,
    /// DefaultTime2Retain in seconds.
    pub time2retain_seconds: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// iSCSIProtocolLevel.
    pub protocol_level: u32,
    /// RDMAExtensions.
    pub rdma_extensions: bool,
    /// The memory that an initiator advertises for a write begins after the
    /// unsolicited data; see docs/spec-exceptions/iser-solicited-buffer.md.
    pub solicited_buffer_only: bool,
    /// The initiator begins full feature phase with an iSER Hello.
    pub iser_hello: bool,
}

impl Operational {
    /// RFC 7143 §13.19: above error recovery level 0, sequences in order leave the target
    /// the last R2T alone to repeat, and MaxOutstandingR2T must be 1.
    pub(crate) fn requests_one_sequence(&self) -> bool {
        self.error_recovery_level > 0 && self.data_sequence_in_order
    }

    /// Most R2Ts of one task at a time; fewer than agreed if MaxOutstandingR2T was
    /// negotiated before the error recovery level.
    pub(crate) fn outstanding_r2ts(&self) -> u32 {
        if self.requests_one_sequence() { 1 } else { self.max_outstanding_r2t }
    }
}

impl Default for Operational {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            initiator_recv_bytes: DEFAULT_RECV_SEGMENT_BYTES,
            target_recv_bytes: DEFAULT_RECV_SEGMENT_BYTES,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            time2wait_seconds: 2,
            time2retain_seconds: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            protocol_level: 1,
            rdma_extensions: false,
            solicited_buffer_only: true,
            iser_hello: false,
        }
    }
}
