//! Targets of disks that the API made: one for each disk, with the disk as LUN 0
//! and a rule for each node with access.

use super::luns::catalog::{AbsentLun, Catalog, Target};
use super::luns::found::{is_closed, unit_of};
use super::luns::volumes::Opened;
use super::luns::zvol_identity::identity;
use super::service::{IscsiService, Rules};
use super::settings::{InitiatorRule, IscsiSettings, TargetSettings};
use crate::exports::granted::{AwaitedTargets, GrantedDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use zgate_config::{Cidr, NamePattern};
use zgate_iscsi::names::IscsiName;

/// Number of the logical unit.
pub(crate) const LUN: u16 = 0;
/// Connections of one session, and error recovery, as targets of the
/// configuration have them by default.
const MAX_CONNECTIONS: u32 = 4;
const ERROR_RECOVERY_LEVEL: u32 = 2;

/// Adds the targets of these disks to the settings.
pub(crate) fn with_granted(mut settings: IscsiSettings, disks: &[GrantedDisk]) -> IscsiSettings {
    let known: BTreeSet<_> = settings.targets.iter().map(|target| target.name.clone()).collect();
    let targets = disks.iter().filter_map(target).filter(|target| !known.contains(&target.name));
    settings.targets.extend(targets);
    settings
}

fn target(disk: &GrantedDisk) -> Option<TargetSettings> {
    let name = IscsiName::parse(&disk.target)?;
    let (serial, naa) = identity(disk.guid);
    let rule = |grant: &zgate_control::volume::Grant| {
        let text = grant.initiator.clone()?;
        let clients = grant.addresses.iter().map(|address| Cidr((*address).into()));
        Some(InitiatorRule {
            name: NamePattern { text, prefix: false },
            clients: clients.collect(),
            chap: None,
            mutual: None,
            luns: None,
            read_only: grant.read_only,
        })
    };
    Some(TargetSettings {
        name,
        alias: Some(disk.name.to_string()),
        allow_any_initiator: false,
        max_connections: MAX_CONNECTIONS,
        error_recovery_level: ERROR_RECOVERY_LEVEL,
        rules: disk.grants.iter().filter_map(rule).collect(),
        luns: vec![disk.unit.unit(LUN, disk.device.clone(), serial, naa)],
        followed: BTreeSet::from([LUN]),
        patterns: Vec::new(),
        unseen: BTreeMap::new(),
        granted: true,
    })
}

impl IscsiService {
    /// Replaces the targets of disks that the API made. Sessions that no rule
    /// admits any longer end. A disk that cannot be opened is absent. Blocks, but no
    /// other change.
    pub(crate) fn replace_granted(&self, disks: &[GrantedDisk]) {
        let wanted: BTreeMap<IscsiName, TargetSettings> =
            disks.iter().filter_map(target).map(|target| (target.name.clone(), target)).collect();
        let mut opened = self.open_granted(&wanted);
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.rules();
        let mut targets = rules.catalog.targets.clone();
        targets.retain(|name, target| !target.settings.granted || wanted.contains_key(name));
        for (name, mut settings) in wanted {
            let before = targets.get(&name);
            if before.is_some_and(|target| !target.settings.granted) {
                tracing::error!(target = %name, "not served: the configuration has this target");
                continue;
            }
            let lun = settings.luns[0].clone();
            let known = before.and_then(|target| target.absent.get(&LUN));
            let known = known.filter(|known| known.config == lun).cloned();
            let unit = match &known {
                // The thread that retries attends to it.
                Some(known) => Err(known.fault.clone()),
                None => {
                    let before = before.and_then(|target| target.units.get(&LUN));
                    unit_of(&self.home, &name, &lun, before, &mut opened)
                }
            };
            let (mut units, mut absent) = (BTreeMap::new(), BTreeMap::new());
            match unit {
                Ok(unit) => {
                    units.insert(LUN, unit);
                }
                Err(fault) => {
                    settings.luns.clear();
                    let new = || AbsentLun::new(&self.home, &name, lun, fault);
                    absent.insert(LUN, known.unwrap_or_else(new));
                }
            }
            let unseen = BTreeMap::new();
            targets.insert(name, Arc::new(Target { settings, units, absent, unseen }));
        }
        let discovery = rules.discovery.clone();
        self.replace_rules(Rules { catalog: Catalog { targets }, discovery });
    }

    /// Opens the disks that are not open, all at the same time.
    fn open_granted(&self, wanted: &BTreeMap<IscsiName, TargetSettings>) -> Opened {
        let rules = self.rules();
        let all = wanted.iter().map(|(name, settings)| (name, &settings.luns[0]));
        let closed = all.filter(|(name, lun)| is_closed(rules.catalog.targets.get(*name), lun));
        self.volumes.open_found(&self.home, &closed.collect::<Vec<_>>())
    }

    /// Sets the targets that disks of the API may have which are not known yet: initiators
    /// are told to try again. To be called after [`Self::replace_granted`].
    pub(crate) fn await_targets(&self, targets: &AwaitedTargets) {
        let mut awaited = self.awaited.write().unwrap_or_else(PoisonError::into_inner);
        *awaited = Arc::new(targets.clone());
    }

    /// Returns these targets; none once they have been waited for long enough.
    pub(crate) fn awaited_targets(&self) -> Arc<AwaitedTargets> {
        match self.awaits_pools() {
            true => Arc::clone(&self.awaited.read().unwrap_or_else(PoisonError::into_inner)),
            false => Arc::default(),
        }
    }

    /// Returns whether a pool may have further zvols of this target, and has not told them since
    /// the start. Until then, a LUN that had a zvol is not said to be gone: hosts would throw the
    /// disk away.
    pub(crate) fn awaits_zvols_of(&self, target: &IscsiName) -> bool {
        self.awaited_targets().has_patterns_of(target)
    }

    /// Returns the initiators that are logged in to a target.
    pub(crate) fn logged_in(&self, target: &str) -> Vec<String> {
        let wanted = IscsiName::parse(target);
        let sessions = self.sessions();
        let here = sessions.iter().filter(|live| live.key.target == wanted && wanted.is_some());
        here.map(|live| live.key.initiator.to_string()).collect()
    }

    /// Returns whether no command of a session that has ended runs on a target's disks any more.
    pub(crate) fn is_settled(&self, target: &str) -> bool {
        IscsiName::parse(target).is_none_or(|target| self.endings.is_settled(&target))
    }

    /// Returns the identifier of a target's disk, if the target is served and
    /// admits the initiator.
    pub(crate) fn served_to(&self, target: &str, initiator: &str) -> Option<String> {
        let rules = self.rules();
        let found = rules.catalog.targets.get(&IscsiName::parse(target)?)?;
        let admitted = |rule: &InitiatorRule| rule.name.matches(initiator);
        let unit = found.units.get(&LUN)?;
        found.settings.rules.iter().any(admitted).then(|| format!("naa.{}", unit.naa))
    }

    /// Returns whether a disk of the API is served: its target is there, and it is open.
    pub(crate) fn serves(&self, target: &str) -> bool {
        let rules = self.rules();
        let found = IscsiName::parse(target).and_then(|name| rules.catalog.targets.get(&name));
        found.is_some_and(|target| target.units.contains_key(&LUN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_config::ByteSize;
    use zgate_control::volume::Grant;

    #[test]
    fn a_grant_for_reading_is_a_rule_for_reading_and_limits_are_those_of_the_disk() {
        let grant = |node: &str, read_only| Grant {
            node: node.to_owned(),
            addresses: Vec::new(),
            initiator: Some(format!("iqn.2026-11.test:{node}")),
            read_only,
        };
        let unit: zgate_config::VolumesConfig =
            toml::from_str("dataset = \"tank/k8s/a\"\niops_max = 500\n").unwrap();
        let disk = GrantedDisk {
            guid: 7,
            name: "tank/k8s/a".parse().unwrap(),
            device: "/dev/zvol/tank/k8s/a".into(),
            target: "iqn.2026-11.test:k8s:7".to_owned(),
            grants: vec![grant("reader", true), grant("writer", false)],
            unit: zgate_config::VolumesConfig {
                bytes_per_second_max: Some(ByteSize(1 << 20)),
                ..unit
            },
        };
        let target = target(&disk).unwrap();
        let read_only: Vec<bool> = target.rules.iter().map(|rule| rule.read_only).collect();
        assert_eq!(read_only, [true, false]);
        let rates = target.luns[0].rates();
        assert_eq!(rates.iops_max.zip(rates.bytes_per_second_max), Some((500, 1 << 20)));
    }
}
