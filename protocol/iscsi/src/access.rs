//! Decisions of the owner of the engine: the targets, their portals, access and
//! the required authentication.

use crate::auth::ChapPolicy;
use crate::names::{IscsiName, PortalGroup};
use std::net::IpAddr;

/// Identity of the login's other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The initiator's name, as the initiator claims.
    pub initiator: IscsiName,
    /// Source address of the connection, if the transport knows it.
    pub address: Option<IpAddr>,
    /// Portal group of the portal it connected to.
    pub portal_group: PortalGroup,
}

/// Authentication that a login requires.
#[derive(Clone, Debug)]
pub enum AuthRequirement {
    /// None.
    None,
    /// A CHAP secret.
    Chap(ChapPolicy),
}

/// An admitted login to a target.
#[derive(Clone, Debug)]
pub struct Grant {
    /// TargetAlias, if the target has one.
    pub alias: Option<String>,
    /// Authentication that the login requires.
    pub auth: AuthRequirement,
}

/// Decision about a login to a named target.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The login continues.
    Granted(Grant),
    /// No such target: status 0203.
    NotFound,
    /// The target was removed permanently: status 0204.
    Removed,
    /// This initiator may not use the target: status 0202.
    Refused,
    /// The target has moved: status 0101 or 0102.
    Moved {
        /// TargetAddress of the new location.
        address: String,
        /// True if the move is permanent (status 0102).
        permanent: bool,
    },
    /// The target exists but is unavailable now: status 0301.
    Unavailable,
}

/// A target as SendTargets shows it (RFC 7143 Appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetListing {
    /// The target.
    pub name: IscsiName,
    /// Its portals: `host:port` (IPv6 in brackets) and their groups.
    pub portals: Vec<(String, PortalGroup)>,
}

/// Access rules of the owner.
pub trait AccessPolicy {
    /// Decides about a login of `peer` to `target`.
    fn admit(&self, target: &IscsiName, peer: &Peer) -> Admission;

    /// Decides whether a login of `peer`, which proved to be `authenticated`, may join or
    /// end the session of the same initiator port that began from the address `from`.
    /// Nothing but the name tells the two apart. The default is for owners whose rules
    /// do not depend on addresses.
    fn may_take_over(
        &self,
        _target: &IscsiName,
        _peer: &Peer,
        _authenticated: Option<&str>,
        _from: Option<IpAddr>,
    ) -> bool {
        true
    }

    /// Authentication for a discovery session of `peer`; `None` refuses with
    /// status 0202.
    fn admit_discovery(&self, peer: &Peer) -> Option<AuthRequirement>;
}
