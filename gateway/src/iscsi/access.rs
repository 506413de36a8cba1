//! Login rules: which initiators may log in to which target, and the
//! authentication required.

use super::luns::catalog::Catalog;
use zgate_iscsi::access::{AccessPolicy, Admission, AuthRequirement, Grant, Peer};
use zgate_iscsi::auth::{ChapAccount, ChapAlgorithm, ChapPolicy};
use zgate_iscsi::names::IscsiName;

/// Login rules at one moment.
pub(crate) struct Access<'a> {
    pub catalog: &'a Catalog,
    pub discovery: Option<&'a ChapAccount>,
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
        let Some(target) = self.catalog.targets.get(target) else { return Admission::NotFound };
        let Some(rule) = target.rule(&peer.initiator, peer.address) else {
            return Admission::Refused;
        };
        let auth = match rule.and_then(|rule| rule.chap.as_ref().map(|chap| (rule, chap))) {
            Some((rule, account)) => chap(account, rule.mutual.as_ref()),
            None => AuthRequirement::None,
        };
        Admission::Granted(Grant { alias: target.settings.alias.clone(), auth })
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
