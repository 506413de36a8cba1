//! All targets, replaced as a whole when the configuration changes.

use super::unit::{Unit, UnitHome, named};
use super::volumes::Volumes;
use crate::exports::absent::Fault;
use crate::exports::open::Opening;
use crate::iscsi::limits::MAX_UNSEEN_UNITS;
use crate::iscsi::settings::{IscsiSettings, TargetSettings, identity};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_config::{ByteSize, LunConfig, NaaId};
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{AbsentUnit, LogicalUnits, Lun};
use zgate_store::block_store::BlockGeometry;

/// Next step where a volume is there, but its unit cannot be opened.
pub(in crate::iscsi) const SEE_LOG: &str = "see the log";

/// One target.
#[derive(Clone)]
pub(crate) struct Target {
    pub settings: TargetSettings,
    pub units: BTreeMap<u16, Arc<Unit>>,
    /// Logical units whose storage is absent; `settings.luns` does not have them.
    pub absent: BTreeMap<u16, AbsentLun>,
    /// Those of `settings.unseen` that were served before, as they were then.
    pub unseen: BTreeMap<u16, Arc<AbsentUnit>>,
}

/// A logical unit whose storage is absent.
#[derive(Clone)]
pub(crate) struct AbsentLun {
    pub config: LunConfig,
    pub fault: Fault,
    pub naa: NaaId,
    /// Its geometry, as ZFS has told it.
    told: Option<BlockGeometry>,
    /// Names, and the size that it had, which it tells meanwhile.
    unit: AbsentUnit,
}

impl AbsentLun {
    /// Creates one of this target. Reads what is known of it in the state directory.
    pub(crate) fn new(
        home: &UnitHome,
        target: &IscsiName,
        config: LunConfig,
        fault: Fault,
    ) -> Self {
        let naa = identity(target, &config).1;
        let told = home.zvol_sizes.told(naa, &config.path);
        let unit = home.absent_unit(target, &config, told);
        Self { config, fault, naa, told, unit }
    }

    /// Returns the same, absent for another reason.
    pub(crate) fn with_fault(&self, fault: Fault) -> Self {
        Self { fault, ..self.clone() }
    }

    /// Returns the same with what ZFS has told of it since; none if that is nothing else.
    pub(crate) fn with_news(&self, home: &UnitHome, target: &IscsiName) -> Option<Self> {
        let told = home.zvol_sizes.told(self.naa, &self.config.path)?;
        let is_news = self.told != Some(told);
        is_news.then(|| Self::new(home, target, self.config.clone(), self.fault.clone()))
    }
}

/// Logical units of a target that are visible to an initiator.
#[derive(Clone, Default)]
pub(crate) struct LunMap {
    /// The units for the SCSI layer.
    pub luns: LogicalUnits,
    /// The units with names and statistics.
    pub units: BTreeMap<Lun, Arc<Unit>>,
    /// LUNs whose storage is absent, and the sizes in bytes that they tell.
    pub absent: BTreeMap<Lun, Option<u64>>,
    /// LUNs that had a zvol before the start, and none now: its pool may not have
    /// answered yet.
    pub unseen: BTreeSet<Lun>,
    /// The units for the SCSI layer while that may be so.
    pub awaiting: LogicalUnits,
}

impl LunMap {
    /// Returns the map for a session that had another one before, and remembers the sizes that
    /// absent LUNs have told it.
    pub(crate) fn after(self, before: &Self) -> Self {
        let awaiting = self.awaiting.after(&before.awaiting);
        Self { awaiting, ..self }
    }
}

/// All targets by name.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    pub targets: BTreeMap<IscsiName, Arc<Target>>,
}

/// Returns whether an initiator that this rule admits sees the LUN of this number.
fn shows(rule: Option<&crate::iscsi::settings::InitiatorRule>, number: &u16) -> bool {
    rule.and_then(|rule| rule.luns.as_ref()).is_none_or(|luns| luns.contains(number))
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

    /// Returns whether this rule shows logical units whose storage is absent, and no others. Zvols
    /// that are not found count as such with `may_find_zvols`: their pool has not answered yet. An
    /// initiator that logged in would be told that they are not ready. Linux repeats such
    /// commands for some minutes and then fails them, and takes a disk without a size for
    /// one of size 0; while it cannot log in, it waits as long as it is told to.
    pub(crate) fn is_absent_to(
        &self,
        rule: Option<&crate::iscsi::settings::InitiatorRule>,
        may_find_zvols: bool,
    ) -> bool {
        let visible = |number: &u16| shows(rule, number);
        let mut unseen = self.unseen_numbers().filter(|_| may_find_zvols);
        !self.units.keys().any(visible)
            && (self.absent.keys().any(visible) || unseen.any(|number| visible(&number)))
    }

    /// Returns the LUNs that zvols had before, of which none is there.
    fn unseen_numbers(&self) -> impl Iterator<Item = u16> {
        self.settings.unseen.keys().copied().filter(move |number| !self.has_lun(*number))
    }

    /// Returns the logical units visible to an initiator.
    pub(crate) fn lun_map(&self, initiator: &IscsiName, address: Option<IpAddr>) -> LunMap {
        let Some(rule) = self.rule(initiator, address) else { return LunMap::default() };
        let visible = |number: &u16| shows(rule, number);
        let units: BTreeMap<Lun, Arc<Unit>> = self
            .units
            .iter()
            .filter(|(number, _)| visible(number))
            .filter_map(|(number, unit)| Some((Lun::new(*number)?, Arc::clone(unit))))
            .collect();
        let absent: BTreeMap<Lun, AbsentUnit> = self
            .absent
            .iter()
            .filter(|(number, _)| visible(number))
            .filter_map(|(number, lun)| Some((Lun::new(*number)?, lun.unit.clone())))
            .collect();
        let unseen = self.unseen_numbers().filter(visible);
        let unseen: BTreeMap<Lun, Option<Arc<AbsentUnit>>> = unseen
            .filter_map(|number| Some((Lun::new(number)?, self.unseen.get(&number).cloned())))
            .collect();
        let luns =
            LogicalUnits::new(units.iter().map(|(lun, unit)| (*lun, Arc::clone(&unit.disk))));
        let read_only = rule.is_some_and(|rule| rule.read_only);
        let told = absent.iter().map(|(lun, unit)| (*lun, unit.told_bytes())).collect();
        let luns = luns.with_becoming_ready(absent).with_read_only(read_only);
        let numbers = unseen.keys().copied().collect();
        let awaiting = luns.clone().with_unknown(unseen);
        LunMap { luns, units, absent: told, unseen: numbers, awaiting }
    }

    /// Returns whether it has a logical unit of this number, present or absent.
    pub(crate) fn has_lun(&self, number: u16) -> bool {
        self.units.contains_key(&number) || self.absent.contains_key(&number)
    }
}

/// Returns whether a unit can be kept under a new configuration: only its size
/// differs.
fn same_but_size(old: &LunConfig, new: &LunConfig) -> bool {
    LunConfig { size: None, ..old.clone() } == LunConfig { size: None, ..new.clone() }
}

/// Returns whether a unit that was not served before cannot be opened because a file of it
/// in the state directory is damaged or cannot be read: that is no reason to serve no other
/// one either.
fn is_state_unusable(before: Option<&Arc<Unit>>, error: &io::Error) -> bool {
    before.is_none() && error.kind() != io::ErrorKind::InvalidInput
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
        let present = self
            .units()
            .map(|unit| (&unit.target, unit.config.number, (unit.serial.clone(), unit.naa)));
        let absent = self.absent().map(|(target, absent)| {
            (target, absent.config.number, identity(target, &absent.config))
        });
        let is_same = |(_, _, one): &(_, _, (String, NaaId))| one.0 == serial || one.1 == naa;
        match present.chain(absent).find(is_same) {
            None => Ok(()),
            Some((other, number, _)) => {
                let reason = format!(
                    "target {other} lun {number} has the same serial or naa; initiators would \
                     take both for one disk"
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
            }
        }
    }

    /// Returns the logical units whose storage is absent, with their targets.
    pub(crate) fn absent(&self) -> impl Iterator<Item = (&IscsiName, &AbsentLun)> {
        let targets = self.targets.iter();
        targets.flat_map(|(name, target)| target.absent.values().map(move |lun| (name, lun)))
    }

    /// The same without those that a pattern or the API found.
    pub(crate) fn named_absent(&self) -> impl Iterator<Item = (&IscsiName, &AbsentLun)> {
        self.absent().filter(move |(target, lun)| {
            let target = self.targets.get(*target);
            !target.is_some_and(|target| target.settings.followed.contains(&lun.config.number))
        })
    }

    /// Returns whether a pattern or the API found a unit.
    pub(crate) fn is_followed(&self, unit: &Unit) -> bool {
        let target = self.targets.get(&unit.target);
        target.is_some_and(|target| target.settings.followed.contains(&unit.config.number))
    }

    /// Returns whether a logical unit has this identity, present or absent.
    pub(crate) fn has_identity(&self, naa: NaaId) -> bool {
        self.units().any(|unit| unit.naa == naa)
            || self.absent().any(|(_, absent)| absent.naa == naa)
    }

    /// Builds the catalog of new settings: unchanged units are kept, others are
    /// opened. Those whose storage is absent come later, and so do new ones whose files in
    /// the state directory cannot be used.
    ///
    /// # Errors
    /// Target and LUN; nothing has changed then.
    pub(crate) fn next(
        &self,
        settings: &IscsiSettings,
        home: &UnitHome,
        volumes: &Volumes,
        how: Opening,
    ) -> io::Result<Self> {
        let before = |target: &IscsiName, lun: &LunConfig| {
            self.targets.get(target).and_then(|old| old.units.get(&lun.number))
        };
        let all = settings.targets.iter();
        let all = all.flat_map(|target| target.luns.iter().map(move |lun| (&target.name, lun)));
        let closed = all.filter(|(target, lun)| !before(target, lun).is_some_and(|u| u.is_of(lun)));
        let mut opened = volumes.open(home, closed, how);
        let mut targets = BTreeMap::new();
        for target in &settings.targets {
            let (mut units, mut absent) = (BTreeMap::new(), BTreeMap::new());
            let missing = |lun: &LunConfig, fault: Fault| {
                AbsentLun::new(home, &target.name, lun.clone(), fault)
            };
            for lun in &target.luns {
                let before = before(&target.name, lun);
                let kept = before.filter(|unit| same_but_size(&unit.config, lun));
                // A pattern or the API found it: it comes later, whatever the fault.
                let is_found = target.followed.contains(&lun.number);
                let volume = opened.remove(&(target.name.clone(), lun.number)).transpose();
                let unit = match (kept, volume) {
                    (Some(unit), _) => Ok(Arc::clone(unit)),
                    (None, Ok(volume)) => {
                        home.open_over(&target.name, lun, before.map(Arc::as_ref), volume)
                    }
                    (None, Err(fault)) if fault.absent || is_found => {
                        absent.insert(lun.number, missing(lun, fault));
                        continue;
                    }
                    (None, Err(fault)) => Err(named(&target.name, lun, &fault.to_string())),
                };
                match unit {
                    Ok(unit) => {
                        units.insert(lun.number, unit);
                    }
                    Err(error) if is_found || is_state_unusable(before, &error) => {
                        let fault = Fault::absent(error.to_string(), SEE_LOG);
                        absent.insert(lun.number, missing(lun, fault));
                    }
                    Err(error) => return Err(error),
                }
            }
            let mut settings = target.clone();
            settings.luns.retain(|lun| units.contains_key(&lun.number));
            let unseen = unseen_units(home, target);
            let target = Target { settings, units, absent, unseen };
            targets.insert(target.settings.name.clone(), Arc::new(target));
        }
        Ok(Self { targets })
    }
}

/// Returns what is known of zvols that were served before, and of which none has been found.
fn unseen_units(home: &UnitHome, target: &TargetSettings) -> BTreeMap<u16, Arc<AbsentUnit>> {
    let known = target.unseen.iter().filter_map(|(number, lun)| {
        let unit = home.recorded_unit(&target.name, lun.as_ref()?)?;
        Some((*number, Arc::new(unit)))
    });
    known.take(MAX_UNSEEN_UNITS).collect()
}
