//! Bounds of the iSCSI service on requests of an initiator.
//!
//! Memory of one session: at most `zgate_iscsi::limits::MAX_UNSOLICITED_BYTES`
//! (64 MiB) of unsolicited data, [`MAX_GATHERED_BYTES`] of solicited data of writes
//! that have not begun, as much unacknowledged read data (error recovery level 1
//! and 2), and for each connection [`MAX_SHARED_BYTES`] that commands read or write and
//! [`MAX_QUEUED_BYTES`] in the transmit queue. All sessions and NFS together:
//! the memory quota (`server.buffers`), and beyond it the oldest write of each
//! session, one command of each connection, [`RESERVED_BYTES`] of answers and
//! [`RESERVED_DATA_BYTES`] of a ping or a text, and for each session the headers of
//! its command window ([`RESERVED_HEADER_BYTES`]) and `MAX_EARLY_BYTES` of pings and
//! texts that wait in it.

use crate::exports::limits::{LONGEST_RETRY, NAME_PATIENCE, RELOAD_PATIENCE};
use std::time::Duration;
use zgate_iscsi::limits::{
    BHS_BYTES, FUNCTION_DATA_TIMEOUT, MAX_AHS_BYTES, MAX_COMMAND_WINDOW, MAX_IMMEDIATE_TASKS,
    MAX_PING_BYTES, MAX_TASK_MANAGEMENT, MAX_TEXT_BYTES,
};

/// Time limit of a login.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Time without traffic after which an initiator is pinged.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(30);
/// Time limit of its answer: some programs with a built-in initiator read its
/// socket only once a minute.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(40);
/// Most concurrent logins: beyond it half-open logins are closed.
pub(crate) const MAX_LOGINS: usize = 256;
/// Most concurrent logins from one host, so that it cannot exclude all others.
pub(crate) const MAX_LOGINS_PER_HOST: usize = 64;
/// Least age of a login that may be ended in favour of another: when many hosts
/// reconnect at once, they are admitted in turn.
pub(crate) const LOGIN_LEAST_TIME: Duration = Duration::from_millis(500);
/// Receives of an iSER connection before login: an initiator sends one request
/// and waits for its response (RFC 7143 §6.2).
pub(crate) const LOGIN_RECEIVES: u32 = 4;
/// Receive buffer of a connection, in bytes.
pub(crate) const STREAM_BYTES: usize = 128 << 10;
/// Free space below which a receive buffer is replaced, in bytes.
pub(crate) const ROOM_BYTES: usize = 16 << 10;
/// Remaining length of a data segment from which it is received into a separate
/// buffer, in bytes.
pub(crate) const PLACED_BYTES: usize = 16 << 10;
/// Bytes read first after a segment in a separate buffer: the next header.
pub(crate) const HEAD_BYTES: usize = 512;
/// Most running commands of one connection; others wait. Where a session uses several logical
/// units, these have shares of its command window (`shares`).
pub(crate) const MAX_RUNNING: usize = 1024;
/// Most bytes that running commands of one connection read or write; others wait
/// until some have ended. They are read all the same, so that an initiator whose disk
/// hangs can abort them: the command window bounds their number, and the limits of the
/// session on the data of its writes their memory.
pub(crate) const MAX_RUNNING_BYTES: usize = 64 << 20;
/// The same where a session uses several logical units, which have shares of it (`shares`):
/// one that is busy beside idle ones runs as much as one that is alone, and the longest command
/// of another one has room beside it.
pub(crate) const MAX_SHARED_BYTES: usize =
    MAX_RUNNING_BYTES + zgate_scsi::limits::MAX_TRANSFER_BYTES as usize;
/// A storage, or a logical unit, begins another command while it holds less than so many times
/// what is left to the others. With a larger number, a busy one leaves less to the others once
/// it hangs; with a smaller one, it runs less while they are idle.
pub(crate) const TIMES_LEFT: usize = 2;
/// Pause after which a connection looks again whether others have given memory back that it
/// waits for.
pub(crate) const MEMORY_RETRY: Duration = Duration::from_millis(10);
/// Data of writes that one session may have solicited and not yet begun to write, in
/// bytes.
pub(crate) const MAX_GATHERED_BYTES: u64 = 64 << 20;
/// Unacknowledged read data that one session retains, in bytes; the first
/// sessions share [`MAX_RETAINED_TOTAL_BYTES`].
pub(crate) const MAX_RETAINED_BYTES: u64 = 64 << 20;
/// The same limit if there are many sessions.
pub(crate) const MIN_RETAINED_BYTES: u64 = 8 << 20;
/// The same limit for all sessions together.
pub(crate) const MAX_RETAINED_TOTAL_BYTES: u64 = 1 << 30;
/// Most bytes that the peer has not read; no more commands are read until it
/// reads.
pub(crate) const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Bytes that the peer has not read up to which PDUs without data are read although the
/// memory quota is used up: room for answers to pings, functions and a logout.
pub(crate) const RESERVED_BYTES: usize = 64 << 10;
/// Bytes of data of a ping, a text or the like up to which it is read then. Longer data waits
/// like that of a write.
pub(crate) const RESERVED_DATA_BYTES: usize = 64 << 10;
/// Bytes of the headers of all commands that one session may send then, beyond the quota:
/// the command window does not move without memory.
pub(crate) const RESERVED_HEADER_BYTES: usize =
    (MAX_COMMAND_WINDOW as usize + MAX_IMMEDIATE_TASKS) * (BHS_BYTES + MAX_AHS_BYTES);
/// Most bytes taken from a session to be sent at once, so that its connections
/// take turns.
pub(crate) const SEND_BATCH_BYTES: usize = 4 << 20;
/// Time limit for aborted commands to end; afterwards the task management
/// function or preempt that waits for them fails. Shorter than an initiator's
/// own limit: Linux waits 30 s for a LUN RESET.
pub(crate) const FUNCTION_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which a login waits for commands of the host's earlier sessions;
/// after that, their logical units return BUSY until the commands have ended.
/// Shorter than an initiator's own limit: Linux waits 15 s for a login.
pub(crate) const LOGIN_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which the data of a write waits for memory unread, with all that follows it. Then
/// it is thrown away, and the write answered with TASK SET FULL, a long ping or text with a
/// Reject, until there is memory: what follows may be an abort, or a ping. Linux waits 5 s for
/// the answer to a ping, and 15 s for that to an abort. For as long, commands wait for a logical
/// unit that runs its share and ends none of it, if the session uses others: then they are
/// answered with TASK SET FULL, so that they leave the command window to the others, whose
/// commands hosts give up after 30 s. Storage that is only busy ends some command in this time.
pub(crate) const DATA_PATIENCE: Duration = Duration::from_secs(3);
/// Time limit for a closing connection to read its queue.
pub(crate) const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes per second that background work (SANITIZE) may write.
pub(crate) const BACKGROUND_BYTES_PER_SECOND: u64 = 512 << 20;
/// Time for which a snapshot waits for the flush of one logical unit: a slow pool may
/// have much to write, one that hangs never ends.
pub(crate) const FLUSH_PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a reload waits for new sizes of files, with nothing locked; its caller
/// waits 30 s.
pub(crate) const RESIZE_PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which a logical unit's device or file is checked for changes.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the space behind a thin logical unit is queried; for zvols, one query tells
/// it for all below a dataset.
pub(crate) const SPACE_INTERVAL: Duration = Duration::from_secs(30);
/// Least time between two of these queries: zvols that are opened one after the other, or get a
/// new size, share them.
pub(crate) const SPACE_LEAST_INTERVAL: Duration = Duration::from_secs(5);
/// Least duration of background work on a whole disk in seconds, so that
/// initiators can follow its progress, as on a mechanical disk.
pub(crate) const BACKGROUND_SECONDS: u64 = 10;
/// Most zvols of a target that are described after a start although their pool has not told them.
/// All that were destroyed count as such, because nobody knows of them either.
pub(crate) const MAX_UNSEEN_UNITS: usize = 1024;
/// Time limit of a question to ZFS for the sizes of zvols whose devices are not there, in seconds.
/// The attempt to open one of them ends with the answer; it waits for as long at most before it,
/// while another question to the same pool is under way.
pub(crate) const ZVOL_SIZES_SECONDS: u64 = 5;
/// Age up to which an answer holds for all zvols directly below the same dataset: attempts at many
/// of them share it.
pub(crate) const ZVOL_SIZES_AGE: Duration = Duration::from_secs(1);
/// Time for which a pool that has not answered is asked for no sizes.
pub(crate) const ZVOL_SIZES_PAUSE: Duration = LONGEST_RETRY;
/// Most characters that the log shows of a name which an initiator states: those
/// of the longest iSCSI name (RFC 7143 §4.2.7.2).
pub(crate) const SHOWN_CHARACTERS: usize = 223;

const _: () = assert!(HEAD_BYTES < PLACED_BYTES && PLACED_BYTES < STREAM_BYTES);
const _: () = assert!(
    PLACED_BYTES <= zgate_iscsi::limits::OWN_BUFFER_BYTES,
    "a write that waits for data keeps no receive buffer"
);
const _: () = assert!(
    MAX_SHARED_BYTES as u64 / (TIMES_LEFT as u64 + 1) >= zgate_scsi::limits::MAX_TRANSFER_BYTES,
    "the last command that a storage which hangs begins leaves room for another storage"
);
const _: () = assert!(DATA_PATIENCE.as_secs() < 5, "a ping of Linux");
const _: () =
    assert!(FUNCTION_DATA_TIMEOUT.as_secs() + FUNCTION_TIMEOUT.as_secs() < 30, "a reset of Linux");
const _: () = assert!(LOGIN_SETTLE_TIMEOUT.as_secs() < LOGIN_TIMEOUT.as_secs());
const _: () = assert!(FUNCTION_TIMEOUT.as_secs() < PING_AFTER.as_secs() + PING_TIMEOUT.as_secs());
const _: () = assert!(crate::qos::limits::MAX_WAIT.as_secs() < FUNCTION_TIMEOUT.as_secs());
const _: () = assert!(
    NAME_PATIENCE.as_secs() + 2 * RELOAD_PATIENCE.as_secs() + RESIZE_PATIENCE.as_secs()
        // What is written to the state directory, and what is read.
        + 2 * crate::state_writer::STATE_PATIENCE.as_secs()
        < 30,
    "a reload answers before its caller gives up"
);
const _: () = assert!(SPACE_LEAST_INTERVAL.as_secs() < SPACE_INTERVAL.as_secs());
const _: () = assert!(
    2 * ZVOL_SIZES_SECONDS < LONGEST_RETRY.as_secs(),
    "no attempt is left out for the question"
);
const _: () = assert!(MAX_LOGINS_PER_HOST < MAX_LOGINS);
const _: () = assert!(LOGIN_LEAST_TIME.as_millis() < LOGIN_TIMEOUT.as_millis());
const _: () = assert!(
    MAX_LOGINS * LOGIN_RECEIVES as usize * zgate_iscsi::iser::limits::RECEIVE_BYTES <= 16 << 20,
    "hosts that are not logged in hold little"
);

const _: () = assert!(RESERVED_BYTES < MAX_QUEUED_BYTES);
const _: () =
    assert!(MAX_PING_BYTES <= RESERVED_DATA_BYTES && MAX_TEXT_BYTES <= RESERVED_DATA_BYTES);
const _: () = assert!(zgate_iscsi::iser::limits::MAX_DATA_BYTES as usize <= RESERVED_DATA_BYTES);
const _: () =
    assert!((MAX_IMMEDIATE_TASKS + MAX_TASK_MANAGEMENT + 1) * 2 * BHS_BYTES <= RESERVED_BYTES);
const _: () = assert!(RESERVED_HEADER_BYTES <= 1 << 20);
