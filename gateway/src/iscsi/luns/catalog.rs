//! All targets, replaced as a whole when the configuration changes.

use super::unit::{Unit, UnitHome};
use crate::iscsi::settings::{IscsiSettings, TargetSettings, identity};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_config::{ByteSize, LunConfig};
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{LogicalUnits, Lun};

/// One target.
#[derive(Clone)]
pub(crate) struct Target {
    pub settings: TargetSettings,
    pub units: BTreeMap<u16, Arc<Unit>>,
}

/// Logical units of a target that are visible to an initiator.
#[derive(Clone, Default)]
pub(crate) struct LunMap {
    /// The units for the SCSI layer.
    pub luns: LogicalUnits,
    /// The units with names and statistics.
    pub units: BTreeMap<Lun, Arc<Unit>>,
}

/// All targets by name.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    pub targets: BTreeMap<IscsiName, Arc<Target>>,
}

impl Target {
    /// Returns the rule by which an initiator may log in, if any.
    pub(crate) fn rule(
        &self,
        initiator: &IscsiName,
        address: Option<IpAddr>,
    ) -> Option<Option<&crate::iscsi::settings::InitiatorRule>> {
        let from = |rule: &&crate::iscsi::settings::InitiatorRule| {
            rule.clients.is_empty()
                || address
                    .is_some_and(|address| rule.clients.iter().any(|net| net.contains(address)))
        };
        let mut rules = self.settings.rules.iter();
        match rules.find(|rule| rule.name.matches(initiator.as_str()) && from(rule)) {
            Some(rule) => Some(Some(rule)),
            None => self.settings.allow_any_initiator.then_some(None),
        }
    }

    /// Returns the logical units visible to an initiator.
    pub(crate) fn lun_map(&self, initiator: &IscsiName, address: Option<IpAddr>) -> LunMap {
        let Some(rule) = self.rule(initiator, address) else { return LunMap::default() };
        let mask = rule.and_then(|rule| rule.luns.as_ref());
        let visible = |number: &u16| mask.is_none_or(|luns| luns.contains(number));
        let units: BTreeMap<Lun, Arc<Unit>> = self
            .units
            .iter()
            .filter(|(number, _)| visible(number))
            .filter_map(|(number, unit)| Some((Lun::new(*number)?, Arc::clone(unit))))
            .collect();
        let luns =
            LogicalUnits::new(units.iter().map(|(lun, unit)| (*lun, Arc::clone(&unit.disk))));
        LunMap { luns, units }
    }
}

/// Returns whether a unit can be kept under a new configuration: only its size
/// differs.
fn same_but_size(old: &LunConfig, new: &LunConfig) -> bool {
    LunConfig { size: None, ..old.clone() } == LunConfig { size: None, ..new.clone() }
}

impl Catalog {
    /// Returns all units.
    pub(crate) fn units(&self) -> impl Iterator<Item = &Arc<Unit>> {
        self.targets.values().flat_map(|target| target.units.values())
    }

    /// Returns the size of a unit in the present configuration, if it sets one.
    pub(crate) fn configured_size(&self, target: &IscsiName, number: u16) -> Option<ByteSize> {
        let luns = &self.targets.get(target)?.settings.luns;
        luns.iter().find(|lun| lun.number == number)?.size
    }

    /// Refuses a unit that initiators would take for another one.
    ///
    /// # Errors
    /// The name of the other unit.
    pub(crate) fn check_identity(&self, target: &IscsiName, lun: &LunConfig) -> io::Result<()> {
        let (serial, naa) = identity(target, lun);
        match self.units().find(|unit| unit.serial == serial || unit.naa == naa) {
            None => Ok(()),
            Some(other) => {
                let reason = format!(
                    "target {} lun {} has the same serial or naa; initiators would take both for \
                     one disk",
                    other.target, other.config.number
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
            }
        }
    }

    /// Builds the catalog of new settings: unchanged units are kept, others are
    /// opened.
    ///
    /// # Errors
    /// Target and LUN; nothing has changed then.
    pub(crate) fn next(&self, settings: &IscsiSettings, home: &UnitHome) -> io::Result<Self> {
        let mut targets = BTreeMap::new();
        for target in &settings.targets {
            let old = self.targets.get(&target.name);
            let mut units = BTreeMap::new();
            for lun in &target.luns {
                let before = old.and_then(|old| old.units.get(&lun.number));
                let kept = before.filter(|unit| same_but_size(&unit.config, lun));
                let unit = match kept {
                    Some(unit) => Ok(Arc::clone(unit)),
                    None => home.open(&target.name, lun, before.map(Arc::as_ref)),
                };
                match unit {
                    Ok(unit) => {
                        units.insert(lun.number, unit);
                    }
                    // This unit was found by a pattern, not named.
                    Err(error) if target.followed.contains(&lun.number) => {
                        tracing::error!(%error, "cannot serve a zvol");
                    }
                    Err(error) => return Err(error),
                }
            }
            let mut settings = target.clone();
            settings.luns.retain(|lun| units.contains_key(&lun.number));
            settings.followed.retain(|number| units.contains_key(number));
            targets.insert(target.name.clone(), Arc::new(Target { settings, units }));
        }
        Ok(Self { targets })
    }
}
