//! Bounds on what connections hold and how long, by whether any export names
//! their host.
//!
//! Memory of all hosts that no export names: [`outsider_connections`] times
//! [`UNNAMED_STREAM_BYTES`], one record of [`MAX_UNNAMED_RECORD_BYTES`] being
//! answered, and its reply. They get no pool buffer.

use std::time::Duration;

/// Longest record taken from a host that no export names, in bytes: a NULL call
/// with the longest credential and verifier (RFC 5531 §8.2) is below 1 KiB.
pub(crate) const MAX_UNNAMED_RECORD_BYTES: usize = 4 << 10;
/// Receive buffer of a connection of such a host, in bytes: a record, its
/// markers, and as much again in front of what has been taken out.
pub(crate) const UNNAMED_STREAM_BYTES: usize = 8 << 10;
/// How often a connection that owes something is looked at: one of a host that
/// no export names, or one with an unfinished record.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// How often any other connection is looked at.
pub(crate) const IDLE_CHECK_PERIOD: Duration = Duration::from_secs(60);
/// After so many checks in a row without a whole record, a connection of a host
/// that no export names is closed: within 10 to 15 seconds.
pub(crate) const UNNAMED_CHECKS: u32 = 2;
/// After so many checks in a row without a byte of an unfinished record, the
/// connection is closed: a minute.
pub(crate) const SILENT_CHECKS: u32 = 12;
/// After so many checks with the same unfinished record, the connection is
/// closed: five minutes, in which the largest record passes at 14 KiB/s.
pub(crate) const RECORD_CHECKS: u32 = 60;
/// How soon a connection whose large record found no memory looks again.
pub(crate) const MEMORY_RETRY: Duration = Duration::from_millis(10);
/// Part of all connections that hosts which no export names may have together,
/// and, apart from these, connections that have not logged in to a target.
const OUTSIDERS_PART: usize = 4;
/// Connections of one host that no export names, or that are not logged in. A
/// host of IPv6 has a network of [`HOST_PREFIX_BITS`] bits.
pub(crate) const MAX_OUTSIDER_CONNECTIONS_PER_HOST: usize = 64;
/// Leading bits that all addresses of one IPv6 host share, at least: whoever has
/// one address has as many as it likes within them (RFC 4291 §2.5.4).
pub(crate) const HOST_PREFIX_BITS: u32 = 64;

/// Connections that outsiders of one kind may have together, of `total`.
pub(crate) fn outsider_connections(total: usize) -> usize {
    (total / OUTSIDERS_PART).max(1)
}

const _: () = assert!(UNNAMED_STREAM_BYTES >= 2 * MAX_UNNAMED_RECORD_BYTES);
const _: () = assert!(MAX_UNNAMED_RECORD_BYTES > 4 * zgate_rpc::limits::MAX_AUTH_BYTES);
const _: () = assert!(UNNAMED_CHECKS < SILENT_CHECKS && SILENT_CHECKS < RECORD_CHECKS);
const _: () = assert!(CHECK_PERIOD.as_secs() < IDLE_CHECK_PERIOD.as_secs());
