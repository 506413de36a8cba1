//! What passes between a session and its owner.

use crate::login::Operational;
use crate::names::{Cid, IscsiName};
use crate::pdu::{Cdb, Itt, Lun, TaskAttribute, TaskFunction};
use crate::serial::Sn;
use bytes::Bytes;
use std::time::Duration;
use zgate_store::Payload;

/// A connection of a session; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnHandle(pub(crate) u32);

/// A task of a session; never used twice, unlike its ITT.
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

/// A task management function under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionTag(pub(crate) u32);

/// A SendTargets request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextTag {
    pub(crate) conn: ConnHandle,
    pub(crate) serial: u32,
}

/// A SCSI command with all its data.
#[derive(Clone, Debug)]
pub struct Command {
    /// To be given back with the result.
    pub task: TaskTag,
    /// The connection it came on.
    pub conn: ConnHandle,
    /// Logical unit.
    pub lun: Lun,
    /// The command.
    pub cdb: Cdb,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Delivered out of order (I bit).
    pub immediate: bool,
    /// CmdSN: commands are announced in this order, except that writes wait
    /// for their data.
    pub cmd_sn: Sn,
    /// Most bytes that the initiator takes.
    pub expected_read_bytes: u32,
    /// Bytes that the initiator has to send: the length of `data_out`, unless
    /// it is more than [`crate::limits::MAX_GATHERED_BYTES`].
    pub expected_write_bytes: u32,
    /// The data, as slices in order.
    pub data_out: Vec<Bytes>,
    /// Bytes of it that were copied to keep small pieces together.
    pub copied_bytes: u32,
    /// Data-In must be in memory: a data digest is in use, or RDMA.
    pub needs_memory: bool,
}

/// What came of a command.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// SCSI status.
    pub status: u8,
    /// Sense data, without length in front.
    pub sense: Bytes,
    /// Data for the initiator, as slices in order.
    pub data_in: Vec<Payload>,
    /// How many bytes the command, by its CDB, had to move; compared with the
    /// expected length for the residual. `None`: the length of `data_in` for
    /// reads, all that came for writes.
    pub wanted_bytes: Option<u64>,
}

/// Which targets SendTargets asks for (RFC 7143 Appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendTargets {
    /// All that the initiator may know of.
    All,
    /// One, if the initiator may know of it.
    Named(IscsiName),
}

/// Why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Logged out: send what is queued, then close.
    Logout,
    /// The target wants it closed: send what is queued, then close.
    Dropped,
    /// The peer broke the protocol: close at once.
    Protocol,
    /// The peer does not answer.
    Silent,
    /// The peer sends but does not read or acknowledge.
    Overrun,
    /// Another connection took its place.
    Reinstated,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Logged out.
    Logout,
    /// The last connection was lost, and the time to come back has passed.
    ConnectionLost,
    /// TARGET COLD RESET.
    ColdReset,
    /// The owner ended it.
    Terminated,
}

/// What the owner must do.
#[derive(Clone, Debug)]
pub enum Event {
    /// Execute a command and call `complete`.
    Command(Box<Command>),
    /// Stop a command if possible, and call `complete`: the result is
    /// discarded.
    Abort(TaskTag),
    /// Carry out a task management function on the logical units, end the
    /// tasks named (with `complete`) and call `function_done`.
    Function {
        /// To be given back.
        tag: FunctionTag,
        /// What is asked.
        function: TaskFunction,
        /// Logical unit, for the functions that have one.
        lun: Lun,
        /// Tasks of this session that it ends.
        affected: Vec<TaskTag>,
    },
    /// Look up targets and call `answer_send_targets`.
    SendTargets {
        /// To be given back.
        tag: TextTag,
        /// Which.
        scope: SendTargets,
    },
    /// Close a connection.
    Close(ConnHandle, CloseReason),
    /// The session is over and no event follows. Transmit what is queued,
    /// where the close reasons say so, and drop it.
    Ended(EndReason),
}

/// How a session behaves beyond what was negotiated.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Silence after which a connection is pinged; zero for never.
    pub ping_after: Duration,
    /// How long a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// Bytes of data that may be solicited at once; one command may always.
    pub max_solicited_bytes: u64,
    /// Bytes of read data kept until the initiator acknowledges them (error
    /// recovery level 1 and above). Beyond it the oldest cannot be asked for
    /// again.
    pub max_retained_bytes: u64,
    /// How long an initiator that was asked to log out may take.
    pub logout_timeout: Duration,
    /// How long the tasks that a task management function ends may take to come to their
    /// end; the function is rejected then.
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

/// A connection as `sessions` shows it.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Handle.
    pub handle: ConnHandle,
    /// CID.
    pub cid: Cid,
    /// Its parameters; session-wide ones are the session's.
    pub params: Operational,
    /// Statuses sent and not acknowledged.
    pub unacknowledged: u32,
}
