//! Logical units that come and go with their zvols.

use super::catalog::Target;
use super::service::BlockService;
use super::settings::BlockSettings;
use super::unit::Unit;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use zgate_config::LunConfig;

impl BlockService {
    /// Puts the zvols of `settings` in the place of those there were. What the
    /// configuration names and what live commands changed stays. A zvol that
    /// cannot be opened is left out.
    ///
    /// # Errors
    /// When a target is not there.
    pub(crate) fn replace_followed(&self, settings: &BlockSettings) -> io::Result<()> {
        let rules = self.rules();
        for wanted in &settings.targets {
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
            if target.units.contains_key(&lun.number) {
                tracing::error!(
                    target = %target.settings.name, lun = lun.number, zvol = %lun.path.display(),
                    "not served: the number is taken by a LUN that was added live"
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
                Err(error) => tracing::error!(%error, "a zvol is not served"),
            }
        }
        target.settings.followed = now;
    }
}
