//! All targets, replaced as a whole when the configuration changes.

use super::settings::{BlockSettings, TargetSettings, identity};
use super::unit::{Unit, UnitHome};
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

/// What an initiator sees of a target.
#[derive(Clone, Default)]
pub(crate) struct View {
    /// For the SCSI layer.
    pub luns: LogicalUnits,
    /// The same with names and figures.
    pub units: BTreeMap<Lun, Arc<Unit>>,
}

/// All targets by name.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    pub targets: BTreeMap<IscsiName, Arc<Target>>,
}

impl Target {
    /// Whether an initiator gets in at all, and by which rule.
    pub(crate) fn rule(
        &self,
        initiator: &IscsiName,
        address: Option<IpAddr>,
    ) -> Option<Option<&super::settings::InitiatorRule>> {
        let from = |rule: &&super::settings::InitiatorRule| {
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

    /// The logical units an initiator sees.
    pub(crate) fn view(&self, initiator: &IscsiName, address: Option<IpAddr>) -> View {
        let Some(rule) = self.rule(initiator, address) else { return View::default() };
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
        View { luns, units }
    }
}

/// Whether a unit can go on with a new configuration: only its size differs.
fn same_but_size(old: &LunConfig, new: &LunConfig) -> bool {
    LunConfig { size: None, ..old.clone() } == LunConfig { size: None, ..new.clone() }
}

impl Catalog {
    /// Every unit.
    pub(crate) fn units(&self) -> impl Iterator<Item = &Arc<Unit>> {
        self.targets.values().flat_map(|target| target.units.values())
    }

    /// The size that the configuration in effect gives a unit, if any.
    pub(crate) fn configured_size(&self, target: &IscsiName, number: u16) -> Option<ByteSize> {
        let luns = &self.targets.get(target)?.settings.luns;
        luns.iter().find(|lun| lun.number == number)?.size
    }

    /// Refuses a unit that hosts would take for another one.
    ///
    /// # Errors
    /// Naming the other one.
    pub(crate) fn check_identity(&self, target: &IscsiName, lun: &LunConfig) -> io::Result<()> {
        let (serial, naa) = identity(target, lun);
        match self.units().find(|unit| unit.serial == serial || unit.naa == naa) {
            None => Ok(()),
            Some(other) => {
                let reason = format!(
                    "target {} lun {} has the same serial or naa; hosts would take the two for one disk",
                    other.target, other.config.number
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
            }
        }
    }

    /// The catalog of new settings: units that stay the same are taken over,
    /// others are opened.
    ///
    /// # Errors
    /// Naming target and LUN; nothing has changed then.
    pub(crate) fn next(&self, settings: &BlockSettings, home: &UnitHome) -> io::Result<Self> {
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
                    // Nobody asked for this one by name.
                    Err(error) if target.followed.contains(&lun.number) => {
                        tracing::error!(%error, "a zvol is not served");
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
