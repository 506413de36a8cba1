//! Logical units that are created and removed together with their zvols.

use super::luns::catalog::{AbsentLun, Catalog, Target};
use super::luns::found::{is_closed, unit_of};
use super::luns::unit::Unit;
use super::luns::volumes::Opened;
use super::service::IscsiService;
use super::settings::{IscsiSettings, TargetSettings};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use zgate_config::LunConfig;

impl IscsiService {
    /// Replaces the zvols of the targets by those of `settings`. Units that the
    /// configuration names or live commands changed are kept. A zvol that
    /// cannot be opened is absent. Blocks, but no other change.
    ///
    /// # Errors
    /// If a target does not exist.
    pub(crate) fn replace_followed(&self, settings: &IscsiSettings) -> io::Result<()> {
        let rules = self.rules();
        let targets = settings.targets.iter().filter(|target| !target.granted);
        let changed: Vec<(&TargetSettings, Vec<&LunConfig>)> = targets
            .map(|target| {
                let followed = |lun: &&LunConfig| target.followed.contains(&lun.number);
                (target, target.luns.iter().filter(followed).collect::<Vec<_>>())
            })
            .filter(|(target, luns)| !is_in_effect(&rules.catalog, target, luns))
            .collect();
        let found = changed.iter().flat_map(|(target, luns)| {
            let known = rules.catalog.targets.get(&target.name);
            let closed = luns.iter().filter(move |lun| is_closed(known, lun));
            closed.map(move |lun| (&target.name, *lun))
        });
        let mut opened = self.volumes.open_found(&self.home, &found.collect::<Vec<_>>());
        for (target, luns) in &changed {
            self.change(target.name.as_str(), |target| {
                self.exchange(target, luns, &mut opened);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn exchange(&self, target: &mut Target, luns: &[&LunConfig], opened: &mut Opened) {
        let name = target.settings.name.clone();
        let followed = std::mem::take(&mut target.settings.followed);
        let mut old: BTreeMap<u16, Arc<Unit>> = BTreeMap::new();
        let mut awaited: BTreeMap<u16, AbsentLun> = BTreeMap::new();
        for number in &followed {
            old.extend(target.units.remove(number).map(|unit| (*number, unit)));
            awaited.extend(target.absent.remove(number).map(|lun| (*number, lun)));
        }
        target.settings.luns.retain(|lun| !followed.contains(&lun.number));
        for lun in luns {
            let number = lun.number;
            if target.has_lun(number) {
                tracing::error!(
                    target = %name, lun = number, zvol = %lun.path.display(),
                    "not served: another LUN has the number"
                );
                continue;
            }
            target.settings.followed.insert(number);
            let known = awaited.remove(&number).filter(|known| known.config == **lun);
            let before = old.get(&number).filter(|unit| unit.config.naa == lun.naa);
            let unit = match &known {
                // The thread that retries attends to it.
                Some(known) => Err(known.fault.clone()),
                None => unit_of(&self.home, &name, lun, before, opened),
            };
            match unit {
                Ok(unit) => {
                    target.units.insert(number, unit);
                    target.settings.luns.push((*lun).clone());
                }
                Err(fault) => {
                    let new = || AbsentLun::new(&self.home, &name, (*lun).clone(), fault);
                    target.absent.insert(number, known.unwrap_or_else(new));
                }
            }
        }
    }
}

/// Returns whether a target has these zvols, present or absent, and no others.
fn is_in_effect(catalog: &Catalog, wanted: &TargetSettings, luns: &[&LunConfig]) -> bool {
    let Some(target) = catalog.targets.get(&wanted.name) else { return false };
    let has = |lun: &&LunConfig| {
        let unit = target.units.get(&lun.number).map(|unit| &unit.config);
        let absent = target.absent.get(&lun.number).map(|absent| &absent.config);
        unit.or(absent) == Some(*lun)
    };
    target.settings.followed == wanted.followed && luns.iter().all(has)
}
