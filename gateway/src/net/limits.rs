//! Bounds on connections of unknown hosts.

/// Share of all connections for hosts that no export names together, and the
/// same share for connections that have not logged in to a target.
const OUTSIDERS_PART: usize = 4;
/// Connections of one host that no export names, or that are not logged in. A
/// host of IPv6 has a /64 ([`zgate_store::HostKey`]).
pub(crate) const MAX_OUTSIDER_CONNECTIONS_PER_HOST: usize = 64;

/// Returns the most connections for outsiders of one kind, out of `total`.
pub(crate) fn outsider_connections(total: usize) -> usize {
    (total / OUTSIDERS_PART).max(1)
}
