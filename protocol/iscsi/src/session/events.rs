//! Types passed between a session and its owner.

use crate::login::Operational;
use crate::names::{Cid, IscsiName};
use crate::pdu::{Cdb, Itt, Lun, TaskAttribute, TaskFunction};
use crate::serial::Sn;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;
use zgate_store::Payload;

/// Handle of a connection of a session; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnHandle(pub(crate) u32);

/// Handle of a task of a session; never reused, unlike its ITT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskTag {
    pub(crate) itt: Itt,
    pub(crate) serial: u32,
}

impl TaskTag {
    /// The initiator's tag, for logs.
    #[must_use]
    pub fn itt(&self) -> Itt {
        self.itt
    }
}

/// Handle of a task management function in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionTag(pub(crate) u32);

/// Handle of a SendTargets request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextTag {
    pub(crate) conn: ConnHandle,
    pub(crate) serial: u32,
}

/// A SCSI command with all its data.
#[derive(Clone, Debug)]
pub struct Command {
    /// Handle to be returned with the result.
    pub task: TaskTag,
    /// The connection on which it arrived.
    pub conn: ConnHandle,
    /// Logical unit.
    pub lun: Lun,
    /// The command.
    pub cdb: Cdb,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Delivered out of CmdSN order (I bit).
    pub immediate: bool,
    /// CmdSN: commands are announced in this order, except that writes wait
    /// for their data.
    pub cmd_sn: Sn,
    /// Most bytes that the initiator accepts.
    pub expected_read_bytes: u32,
    /// Bytes that the initiator sends: the length of `data_out`, unless it
    /// exceeds [`crate::limits::MAX_GATHERED_BYTES`].
    pub expected_write_bytes: u32,
    /// The data, as slices in order.
    pub data_out: Vec<Bytes>,
    /// Bytes of `data_out` that were copied to coalesce small pieces.
    pub copied_bytes: u32,
    /// Data-In must be in memory, see [`super::Session::needs_memory`].
    pub needs_memory: bool,
    /// Other writes may wait for the memory of its data until [`super::Session::begun`] or
    /// the end of the command.
    pub holds_memory: bool,
}

/// Result of a command.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// SCSI status.
    pub status: u8,
    /// Sense data, without the length field.
    pub sense: Bytes,
    /// Data for the initiator, as slices in order.
    pub data_in: Vec<Payload>,
    /// Bytes that the command, by its CDB, transfers; compared with the
    /// expected length for the residual. `None`: the length of `data_in` for
    /// reads, all received data for writes.
    pub wanted_bytes: Option<u64>,
}

/// Tells the format of sense data for the conditions that the session itself reports, without the
/// logical unit (RFC 7143 §11.4.7.2). It is asked while the session works: it must not call the
/// session.
pub trait SenseFormat: fmt::Debug + Send + Sync {
    /// Returns whether sense data for this LUN is in descriptor format, as D_SENSE in the control
    /// mode page of its logical unit says (SPC-4 §7.5.8). False for a LUN without a logical unit:
    /// it has no mode pages.
    fn is_descriptor(&self, lun: Lun) -> bool;
}

/// Scope of a SendTargets request (RFC 7143 Appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendTargets {
    /// All targets visible to the initiator.
    All,
    /// One target, if visible to the initiator.
    Named(IscsiName),
}

/// Reason why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Logged out: send the queued PDUs, then close.
    Logout,
    /// Dropped by the target: send the queued PDUs, then close.
    Dropped,
    /// Protocol error of the peer: close at once.
    Protocol,
    /// The peer does not answer.
    Silent,
    /// The peer sends but does not read or acknowledge.
    Overrun,
    /// Replaced by another connection.
    Reinstated,
}

/// Reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Logged out.
    Logout,
    /// The last connection was lost, and the recovery time has expired.
    ConnectionLost,
    /// TARGET COLD RESET.
    ColdReset,
    /// The owner ended it.
    Terminated,
}

/// An action for the owner.
#[derive(Clone, Debug)]
pub enum Event {
    /// Execute a command and call `complete`.
    Command(Box<Command>),
    /// Stop a command if possible, and call `complete`: the result is
    /// discarded.
    Abort(TaskTag),
    /// Carry out a task management function on the logical units, end the named
    /// tasks (with `complete`) and call `function_done`.
    Function {
        /// Handle to be returned with the result.
        tag: FunctionTag,
        /// The function.
        function: TaskFunction,
        /// Logical unit, if the function applies to one.
        lun: Lun,
        /// Tasks of this session that the function ends.
        affected: Vec<TaskTag>,
    },
    /// Look up targets and call `answer_send_targets`.
    SendTargets {
        /// Handle to be returned with the result.
        tag: TextTag,
        /// Requested targets.
        scope: SendTargets,
    },
    /// Close a connection.
    Close(ConnHandle, CloseReason),
    /// The session has ended and no event follows. Transmit the queued PDUs
    /// where the close reasons say so, then drop the session.
    Ended(EndReason),
}

/// Configuration of a session beyond the negotiated parameters.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Silence after which a connection is pinged; zero disables pings.
    pub ping_after: Duration,
    /// Longest time for the answer to a ping.
    pub ping_timeout: Duration,
    /// Bytes of data that may be solicited at once; one command is always
    /// allowed.
    pub max_solicited_bytes: u64,
    /// Bytes of read data retained until the initiator acknowledges them (error
    /// recovery level 1 and above). Beyond this limit the oldest data cannot be
    /// retransmitted.
    pub max_retained_bytes: u64,
    /// Longest time for the logout of an initiator that was asked to log out.
    pub logout_timeout: Duration,
    /// Longest time for the end of the tasks that a task management function
    /// ends; the function is rejected after that.
    pub function_timeout: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            ping_after: Duration::from_secs(15),
            ping_timeout: Duration::from_secs(15),
            max_solicited_bytes: 64 << 20,
            max_retained_bytes: 64 << 20,
            logout_timeout: Duration::from_secs(10),
            function_timeout: Duration::from_secs(20),
        }
    }
}

/// Description of a connection for the `sessions` command.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Handle.
    pub handle: ConnHandle,
    /// CID.
    pub cid: Cid,
    /// Its parameters; session-wide ones are those of the session.
    pub params: Operational,
    /// Statuses sent and not acknowledged.
    pub unacknowledged: u32,
}
