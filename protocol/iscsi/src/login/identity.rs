//! The keys of the first exchange: initiator, target and session type.

use super::status::LoginStatus;
use crate::access::{AccessPolicy, Admission, AuthRequirement, Peer};
use crate::directory::SessionKey;
use crate::names::{IscsiName, Isid, PortalGroup};
use std::net::IpAddr;

/// Addresses of the connection: portal group and source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) address: Option<IpAddr>,
    pub(super) portal_group: PortalGroup,
    pub(super) isid: Isid,
}

/// An admitted initiator, not yet authenticated.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: SessionKey,
    pub(super) target_alias: Option<String>,
    pub(super) auth: AuthRequirement,
}

/// Reason of a failed first exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: LoginStatus,
    /// TargetAddress of a redirection.
    pub(super) address: Option<String>,
}

impl From<LoginStatus> for Refusal {
    fn from(status: LoginStatus) -> Self {
        Self { status, address: None }
    }
}

/// Reads the identity keys and asks the policy.
pub(super) fn identify(
    pairs: &[(&str, &str)],
    arrival: Arrival,
    policy: &dyn AccessPolicy,
) -> Result<Identity, Refusal> {
    let get = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let initiator = get("InitiatorName").ok_or(LoginStatus::MISSING_PARAMETER)?;
    let initiator = IscsiName::parse(initiator).ok_or(LoginStatus::INITIATOR_ERROR)?;
    let peer = Peer {
        initiator: initiator.clone(),
        address: arrival.address,
        portal_group: arrival.portal_group,
    };
    let key = |target| SessionKey {
        initiator,
        isid: arrival.isid,
        target,
        portal_group: arrival.portal_group,
    };
    match get("SessionType") {
        Some("Discovery") => {
            let auth = policy.admit_discovery(&peer).ok_or(LoginStatus::AUTHORIZATION_FAILED)?;
            Ok(Identity { key: key(None), target_alias: None, auth })
        }
        None | Some("Normal") => {
            let target = get("TargetName").ok_or(LoginStatus::MISSING_PARAMETER)?;
            let target = IscsiName::parse(target).ok_or(LoginStatus::NOT_FOUND)?;
            let grant = match policy.admit(&target, &peer) {
                Admission::Granted(grant) => grant,
                Admission::NotFound => return Err(LoginStatus::NOT_FOUND.into()),
                Admission::Removed => return Err(LoginStatus::TARGET_REMOVED.into()),
                Admission::Refused => return Err(LoginStatus::AUTHORIZATION_FAILED.into()),
                Admission::Unavailable => return Err(LoginStatus::UNAVAILABLE.into()),
                Admission::Moved { address, permanent } => {
                    let status = if permanent {
                        LoginStatus::MOVED_PERMANENTLY
                    } else {
                        LoginStatus::MOVED_TEMPORARILY
                    };
                    return Err(Refusal { status, address: Some(address) });
                }
            };
            Ok(Identity { key: key(Some(target)), target_alias: grant.alias, auth: grant.auth })
        }
        Some(_) => Err(LoginStatus::SESSION_TYPE.into()),
    }
}
