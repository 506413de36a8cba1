//! What the owner of the engine decides: which targets there are, how they are
//! reached, who may log in and what they must prove.

use crate::auth::ChapPolicy;
use crate::names::{IscsiName, PortalGroup};
use std::net::IpAddr;

/// Who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The initiator's name, as it claims.
    pub initiator: IscsiName,
    /// Where it connects from, when the transport knows.
    pub address: Option<IpAddr>,
    /// The portal group it connected to.
    pub portal_group: PortalGroup,
}

/// What a login must prove.
#[derive(Clone, Debug)]
pub enum AuthRequirement {
    /// Nothing.
    None,
    /// A CHAP secret.
    Chap(ChapPolicy),
}

/// An admitted login to a target.
#[derive(Clone, Debug)]
pub struct Grant {
    /// TargetAlias, if any.
    pub alias: Option<String>,
    /// What must be proven.
    pub auth: AuthRequirement,
}

/// What becomes of a login to a named target.
#[derive(Clone, Debug)]
pub enum Admission {
    /// It may go on.
    Granted(Grant),
    /// No such target here: status 0203.
    NotFound,
    /// The target is gone for good: status 0204.
    Removed,
    /// This initiator may not use the target: status 0202.
    Refused,
    /// The target is elsewhere: status 0101 or 0102.
    Moved {
        /// TargetAddress of where it is.
        address: String,
        /// Whether for good.
        permanent: bool,
    },
    /// The target exists but cannot serve now: status 0301.
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

/// The owner's rules.
pub trait AccessPolicy {
    /// May `peer` log in to `target`?
    fn admit(&self, target: &IscsiName, peer: &Peer) -> Admission;

    /// May `peer` open a discovery session, and with what proof? `None`
    /// refuses with status 0202.
    fn admit_discovery(&self, peer: &Peer) -> Option<AuthRequirement>;
}
