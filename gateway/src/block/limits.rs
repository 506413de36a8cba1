//! Every bound of the iSCSI service that an initiator could push against.
//!
//! Memory of one session: at most `zgate_iscsi::limits::MAX_UNSOLICITED_BYTES`
//! (64 MiB) of unsolicited data, [`MAX_GATHERED_BYTES`] of solicited data, as
//! much of read data that is not acknowledged (error recovery level 1 and 2), and
//! for each connection [`MAX_RUNNING_BYTES`] that commands read or write and
//! [`MAX_QUEUED_BYTES`] that wait for the peer.

use std::time::Duration;

/// How long a connection may take to log in.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Silence after which an initiator is asked whether it still lives.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(30);
/// How long it may take to answer: some programs with an initiator inside look
/// at its socket once a minute.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(40);
/// Connections that may be logging in at the same time: a storm of half-open
/// logins is turned away beyond it.
pub(crate) const MAX_LOGINS: usize = 256;
/// The same from one host, so that one cannot keep out all others.
pub(crate) const MAX_LOGINS_PER_HOST: usize = 64;
/// A login that has been under way for less makes no room for another: a storm
/// of hosts that all come back at once is let through in turn.
pub(crate) const LOGIN_LEAST_TIME: Duration = Duration::from_millis(500);
/// Receives that an iSER connection has until it is logged in: an initiator sends
/// one request and waits for its response (RFC 7143 §6.2).
pub(crate) const LOGIN_RECEIVES: u32 = 4;
/// Receive buffer of a connection, in bytes.
pub(crate) const STREAM_BYTES: usize = 128 << 10;
/// With less room than this in it, a receive buffer is replaced, in bytes.
pub(crate) const ROOM_BYTES: usize = 16 << 10;
/// Data segments of which at least this much is still to come are received
/// into a buffer of their own, in bytes.
pub(crate) const PLACED_BYTES: usize = 16 << 10;
/// After a placed segment this much is read first: the header of the next.
pub(crate) const HEAD_BYTES: usize = 512;
/// Commands of one connection that run at the same time; more are not read.
pub(crate) const MAX_RUNNING: usize = 1024;
/// Bytes that running commands of one connection read or write; more commands
/// are not read until some have ended.
pub(crate) const MAX_RUNNING_BYTES: u64 = 64 << 20;
/// Bytes that running commands of all connections read or write. A connection
/// with nothing running may always start one command.
pub(crate) const MAX_TOTAL_BYTES: u64 = 1 << 30;
/// Data of writes that one session may have asked for and not yet written, in
/// bytes; the first of them share [`MAX_GATHERED_TOTAL_BYTES`].
pub(crate) const MAX_GATHERED_BYTES: u64 = 64 << 20;
/// The same when there are many sessions.
pub(crate) const MIN_GATHERED_BYTES: u64 = 8 << 20;
/// What all sessions share of it.
pub(crate) const MAX_GATHERED_TOTAL_BYTES: u64 = 1 << 30;
/// Bytes waiting for a peer to read them; more commands are not read until it
/// does.
pub(crate) const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Bytes taken from a session to be sent at once, so that connections of one
/// session take turns.
pub(crate) const SEND_BATCH_BYTES: usize = 4 << 20;
/// How long aborted commands may take to come to their end before the task management
/// function or the preempt that waits for them fails. Less than hosts wait for either:
/// Linux gives a LUN RESET 30 s.
pub(crate) const FUNCTION_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a login waits for the commands that an earlier session of the host left
/// running; those logical units answer BUSY afterwards until they have ended. Less than
/// hosts wait for a login: Linux gives it 15 s.
pub(crate) const LOGIN_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is to be closed may take to read what is queued.
pub(crate) const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes a second that background work (SANITIZE) may write.
pub(crate) const BACKGROUND_BYTES_PER_SECOND: u64 = 512 << 20;
/// How often what lies below a logical unit is looked at.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often the space behind a thin logical unit is asked for.
pub(crate) const SPACE_INTERVAL: Duration = Duration::from_secs(30);
/// Seconds that background work takes at least for a whole disk, so that hosts
/// can follow its progress, as they do on disks that turn.
pub(crate) const BACKGROUND_SECONDS: u64 = 10;

const _: () = assert!(HEAD_BYTES < PLACED_BYTES && PLACED_BYTES < STREAM_BYTES);
const _: () = assert!(MAX_RUNNING_BYTES >= zgate_scsi::limits::MAX_TRANSFER_BYTES);
const _: () = assert!(LOGIN_SETTLE_TIMEOUT.as_secs() < LOGIN_TIMEOUT.as_secs());
const _: () = assert!(FUNCTION_TIMEOUT.as_secs() < PING_AFTER.as_secs() + PING_TIMEOUT.as_secs());
const _: () = assert!(MAX_TOTAL_BYTES >= MAX_RUNNING_BYTES);
const _: () = assert!(MAX_LOGINS_PER_HOST < MAX_LOGINS);
const _: () = assert!(LOGIN_LEAST_TIME.as_millis() < LOGIN_TIMEOUT.as_millis());
const _: () = assert!(
    MAX_LOGINS * LOGIN_RECEIVES as usize * zgate_iser::limits::RECEIVE_BYTES <= 16 << 20,
    "hosts that are not logged in hold little"
);
