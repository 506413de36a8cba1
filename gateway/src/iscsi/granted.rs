//! Targets of disks that the API made: one for each disk, with the disk as LUN 0
//! and a rule for each node with access.

use super::luns::catalog::{Catalog, Target};
use super::luns::numbers::identity;
use super::service::{IscsiService, Rules};
use super::settings::{InitiatorRule, IscsiSettings, TargetSettings};
use crate::exports::granted::GrantedDisk;
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
        granted: true,
    })
}

impl IscsiService {
    /// Replaces the targets of disks that the API made. Sessions that no rule
    /// admits any longer end. A disk that cannot be opened is skipped.
    pub(crate) fn replace_granted(&self, disks: &[GrantedDisk]) {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.rules();
        let mut targets = rules.catalog.targets.clone();
        let wanted: BTreeMap<IscsiName, TargetSettings> =
            disks.iter().filter_map(target).map(|target| (target.name.clone(), target)).collect();
        targets.retain(|name, target| !target.settings.granted || wanted.contains_key(name));
        for (name, settings) in wanted {
            let before = targets.get(&name);
            if before.is_some_and(|target| !target.settings.granted) {
                tracing::error!(target = %name, "not served: the configuration has this target");
                continue;
            }
            let unit = before.and_then(|target| target.units.get(&LUN));
            let lun = &settings.luns[0];
            let unit = match unit {
                Some(unit) if unit.config == *lun => Ok(Arc::clone(unit)),
                before => self.home.open(&name, lun, before.map(Arc::as_ref)),
            };
            match unit {
                Ok(unit) => {
                    let units = BTreeMap::from([(LUN, unit)]);
                    let target = Target { settings, units, absent: BTreeMap::new() };
                    targets.insert(name, Arc::new(target));
                }
                Err(error) => {
                    tracing::error!(%error, "cannot serve a disk of the API");
                    targets.remove(&name);
                }
            }
        }
        let discovery = rules.discovery.clone();
        self.replace_rules(Rules { catalog: Catalog { targets }, discovery });
    }

    /// Returns the initiators that are logged in to a target.
    pub(crate) fn logged_in(&self, target: &str) -> Vec<String> {
        let wanted = IscsiName::parse(target);
        let sessions = self.sessions();
        let here = sessions.iter().filter(|live| live.key.target == wanted && wanted.is_some());
        here.map(|live| live.key.initiator.to_string()).collect()
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

    /// Returns whether a target of a disk of the API is served.
    pub(crate) fn serves(&self, target: &str) -> bool {
        let name = IscsiName::parse(target);
        name.is_some_and(|name| self.rules().catalog.targets.contains_key(&name))
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
