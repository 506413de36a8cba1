//! Login rules: which initiators may log in to which target, and the
//! authentication required.

use super::luns::catalog::{Catalog, Target};
use crate::exports::granted::AwaitedTargets;
use std::net::IpAddr;
use zgate_iscsi::access::{AccessPolicy, Admission, AuthRequirement, Grant, Peer};
use zgate_iscsi::auth::{ChapAccount, ChapAlgorithm, ChapPolicy};
use zgate_iscsi::names::IscsiName;

/// Login rules at one moment.
pub(crate) struct Access<'a> {
    pub catalog: &'a Catalog,
    pub discovery: Option<&'a ChapAccount>,
    /// Targets that may come, with disks of the API that are not known yet.
    pub awaited: &'a AwaitedTargets,
}

/// Returns whether the target's rules take an initiator from both addresses for one host,
/// and it has proved what they require. It is one under one rule, and under two that differ
/// in their networks alone: RFC 7143 §6.3.5 knows hosts by their names. Two rules for one
/// name are two hosts otherwise, as are two nodes that the API has granted a disk.
pub(super) fn is_one_host(
    target: &Target,
    initiator: &IscsiName,
    authenticated: Option<&str>,
    addresses: [Option<IpAddr>; 2],
) -> bool {
    match addresses.map(|address| target.rule(initiator, address)) {
        [Some(None), Some(None)] => true,
        [Some(Some(one)), Some(Some(other))] => {
            let is_same = std::ptr::eq(one, other)
                || (!target.settings.granted && one.differs_in_networks_alone(other));
            is_same
                && one.chap.as_ref().is_none_or(|chap| authenticated == Some(chap.name.as_str()))
        }
        _ => false,
    }
}

fn chap(initiator: &ChapAccount, target: Option<&ChapAccount>) -> AuthRequirement {
    AuthRequirement::Chap(ChapPolicy {
        initiators: vec![initiator.clone()],
        target: target.cloned(),
        algorithms: ChapAlgorithm::ALL.to_vec(),
    })
}

impl AccessPolicy for Access<'_> {
    fn admit(&self, target: &IscsiName, peer: &Peer) -> Admission {
        let may_find_zvols = self.awaited.has_patterns_of(target);
        let Some(target) = self.catalog.targets.get(target) else {
            // RFC 7143 §11.13.5: initiators try again after the one, and give up after the other.
            return match self.awaited.may_include(target.as_str()) {
                true => Admission::Unavailable,
                false => Admission::NotFound,
            };
        };
        let Some(rule) = target.rule(&peer.initiator, peer.address) else {
            return Admission::Refused;
        };
        if target.is_absent_to(rule, may_find_zvols) {
            return Admission::Unavailable;
        }
        let auth = match rule.and_then(|rule| rule.chap.as_ref().map(|chap| (rule, chap))) {
            Some((rule, account)) => chap(account, rule.mutual.as_ref()),
            None => AuthRequirement::None,
        };
        Admission::Granted(Grant { alias: target.settings.alias.clone(), auth })
    }

    fn may_take_over(
        &self,
        target: &IscsiName,
        peer: &Peer,
        authenticated: Option<&str>,
        from: Option<IpAddr>,
    ) -> bool {
        let target = self.catalog.targets.get(target);
        target.is_some_and(|target| {
            is_one_host(target, &peer.initiator, authenticated, [peer.address, from])
        })
    }

    fn admit_discovery(&self, peer: &Peer) -> Option<AuthRequirement> {
        if let Some(account) = self.discovery {
            return Some(chap(account, None));
        }
        // Without CHAP for discovery, an initiator is only shown the targets it
        // may use anyway.
        let knows_one = |target: &std::sync::Arc<super::luns::catalog::Target>| {
            target.rule(&peer.initiator, peer.address).is_some()
        };
        self.catalog.targets.values().any(knows_one).then_some(AuthRequirement::None)
    }
}
