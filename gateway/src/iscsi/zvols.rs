//! Logical units that are created and removed together with their zvols.

use super::luns::catalog::Target;
use super::luns::unit::Unit;
use super::service::IscsiService;
use super::settings::IscsiSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use zgate_config::LunConfig;

impl IscsiService {
    /// Replaces the zvols of the targets by those of `settings`. Units that the
    /// configuration names or live commands changed are kept. A zvol that
    /// cannot be opened is skipped.
    ///
    /// # Errors
    /// If a target does not exist.
    pub(crate) fn replace_followed(&self, settings: &IscsiSettings) -> io::Result<()> {
        let rules = self.rules();
        for wanted in settings.targets.iter().filter(|target| !target.granted) {
            let followed = |lun: &&LunConfig| wanted.followed.contains(&lun.number);
            let luns: Vec<LunConfig> = wanted.luns.iter().filter(followed).cloned().collect();
            let same = rules.catalog.targets.get(&wanted.name).is_some_and(|target| {
                target.settings.followed == wanted.followed
                    && luns.iter().all(|lun| {
                        target.units.get(&lun.number).is_some_and(|unit| unit.config == *lun)
                    })
            });
            if !same {
                self.change(wanted.name.as_str(), |target| {
                    self.exchange(target, &luns);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn exchange(&self, target: &mut Target, luns: &[LunConfig]) {
        let followed = std::mem::take(&mut target.settings.followed);
        let mut old: BTreeMap<u16, Arc<Unit>> = BTreeMap::new();
        for number in &followed {
            old.extend(target.units.remove(number).map(|unit| (*number, unit)));
        }
        target.settings.luns.retain(|lun| !followed.contains(&lun.number));
        let mut now = BTreeSet::new();
        for lun in luns {
            if target.has_lun(lun.number) {
                tracing::error!(
                    target = %target.settings.name, lun = lun.number, zvol = %lun.path.display(),
                    "not served: another LUN has the number"
                );
                continue;
            }
            let before = old.get(&lun.number).filter(|unit| unit.config.naa == lun.naa);
            let unit = match before {
                Some(unit) if unit.config == *lun => Ok(Arc::clone(unit)),
                _ => self.home.open(&target.settings.name, lun, before.map(Arc::as_ref)),
            };
            match unit {
                Ok(unit) => {
                    target.units.insert(lun.number, unit);
                    target.settings.luns.push(lun.clone());
                    now.insert(lun.number);
                }
                Err(error) => tracing::error!(%error, "cannot serve a zvol"),
            }
        }
        target.settings.followed = now;
    }
}
