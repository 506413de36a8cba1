//! Bounds on memory and idle time of connections, by whether any export names
//! their host.
//!
//! Memory of all hosts that no export names:
//! [`outsider_connections`](crate::net::limits::outsider_connections) times
//! [`UNNAMED_STREAM_BYTES`], one record of [`MAX_UNNAMED_RECORD_BYTES`] in
//! processing, and its reply. They get no pool buffer.

use std::time::Duration;

/// Time limit of a callback, including the wait for a connection and the
/// connect if it needs its own.
pub(crate) const CALLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Most supplementary groups of a user; the kernel's limit (NGROUPS_MAX).
pub(crate) const MAX_GROUPS: usize = 65_536;
/// Time for which a connection waits until the name service says which user its
/// certificate names; after it, the calls of the connection wait.
pub(crate) const USER_LOOKUP_PATIENCE: Duration = Duration::from_secs(10);
/// Threads that ask for the first time for users whom certificates name; those whose
/// connection does not wait any more count until the name service answers.
pub(crate) const FIRST_LOOK_UPS: usize = 256;
/// Those for one host: as many as its handshakes.
pub(crate) const FIRST_LOOK_UPS_PER_HOST: usize = 64;
/// Threads that ask once more for users whom certificates name.
pub(crate) const LATE_LOOK_UPS: usize = 4;
/// Threads that ask the name service for names and groups.
pub(crate) const NAME_SERVICE_WORKERS: usize = 4;
/// Questions to the name service that are under way or wait for a worker.
pub(crate) const MAX_LOOK_UPS: usize = 256;
/// Users, and as many names and ids, whose answers are kept.
pub(crate) const MAX_KNOWN_PRINCIPALS: usize = 16_384;
/// Time until a question is asked again that the name service did not answer, in
/// seconds.
pub(crate) const UNANSWERED_SECONDS: u64 = 10;
/// Longest name of a user or group, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// Longest record accepted from a host that no export names, in bytes: a NULL
/// call with the longest credential and verifier (RFC 5531 §8.2) is below 1
/// KiB.
pub(crate) const MAX_UNNAMED_RECORD_BYTES: usize = 4 << 10;
/// Receive buffer of a connection of such a host, in bytes: a record, its
/// markers, and the same length again for consumed bytes in front.
pub(crate) const UNNAMED_STREAM_BYTES: usize = 8 << 10;
/// Interval of checks of a connection whose host no export names, or that has
/// an unfinished record.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Interval of checks of any other connection.
pub(crate) const IDLE_CHECK_PERIOD: Duration = Duration::from_secs(60);
/// Checks in a row without a complete record after which a connection of a host
/// that no export names is closed: within 10 to 15 seconds.
pub(crate) const UNNAMED_CHECKS: u32 = 2;
/// Checks in a row without a further byte of an unfinished record after which
/// the connection is closed: a minute.
pub(crate) const SILENT_CHECKS: u32 = 12;
/// Checks with the same unfinished record after which the connection is closed:
/// five minutes, enough for the largest record at 14 KiB/s.
pub(crate) const RECORD_CHECKS: u32 = 60;
/// Checks in a row in which the peer takes not one byte of replies that wait for it,
/// after which the connection is closed: five minutes.
pub(crate) const UNREAD_CHECKS: u32 = 60;
/// The same for replies that hold memory while others wait for memory: 10 to 15
/// seconds.
pub(crate) const SCARCE_UNREAD_CHECKS: u32 = 2;
/// Bytes of replies that a peer is to take from one check to the next, if they hold memory while
/// others wait for memory: 70 KiB/s. One that takes fewer in [`SCARCE_RECORD_CHECKS`] checks in
/// a row is closed.
pub(crate) const SCARCE_TAKEN_BYTES: u64 = 350 << 10;
/// As [`SILENT_CHECKS`] and [`RECORD_CHECKS`] for a record that holds memory while others wait for memory: 10 to
/// 15 seconds, and a minute, enough for the largest record at 70 KiB/s.
pub(crate) const SCARCE_SILENT_CHECKS: u32 = 2;
/// See [`SCARCE_SILENT_CHECKS`].
pub(crate) const SCARCE_RECORD_CHECKS: u32 = 12;
/// Bytes of requests that may end before the connection's task gives back their
/// memory, if it waits for its socket.
pub(crate) const MAX_UNTOLD_BYTES: usize = 64 << 10;
/// Requests in progress on a connection from which on a worker leaves its reply
/// to the connection's task.
pub(crate) const REQUESTS_SENT_TOGETHER: usize = 4;
/// Pause after which a connection whose large record found no memory retries.
pub(crate) const MEMORY_RETRY: Duration = Duration::from_millis(10);
/// Most hosts whose load is counted separately; further ones are counted
/// together. Only hosts that an export names are counted.
pub(crate) const MAX_COUNTED_CLIENTS: usize = 1024;
/// Most exports whose load is counted.
pub(crate) const MAX_COUNTED_EXPORTS: usize = 4096;
const _: () = assert!(MAX_LOOK_UPS < MAX_KNOWN_PRINCIPALS);
const _: () = assert!(FIRST_LOOK_UPS_PER_HOST < FIRST_LOOK_UPS);
// Name, @ and domain fit the owner of a file.
const _: () = assert!(MAX_NAME_BYTES < zgate_nfs::limits::MAX_PRINCIPAL_BYTES);
const _: () = assert!(UNNAMED_STREAM_BYTES >= 2 * MAX_UNNAMED_RECORD_BYTES);
const _: () = assert!(MAX_UNNAMED_RECORD_BYTES > 4 * zgate_rpc::limits::MAX_AUTH_BYTES);
const _: () = assert!(UNNAMED_CHECKS < SILENT_CHECKS && SILENT_CHECKS < RECORD_CHECKS);
const _: () = assert!(SCARCE_SILENT_CHECKS < SILENT_CHECKS && SCARCE_RECORD_CHECKS < RECORD_CHECKS);
const _: () = assert!(SCARCE_SILENT_CHECKS < SCARCE_RECORD_CHECKS);
const _: () = assert!(SCARCE_UNREAD_CHECKS < UNREAD_CHECKS);
const _: () = assert!(SCARCE_UNREAD_CHECKS < SCARCE_RECORD_CHECKS);
const _: () = assert!(CHECK_PERIOD.as_secs() < IDLE_CHECK_PERIOD.as_secs());
