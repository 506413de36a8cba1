//! Logical units whose storage is absent: attempts to open it, and their way
//! into service.

use super::luns::catalog::{AbsentLun, SEE_LOG, Target};
use super::service::IscsiService;
use crate::exports::absent::{AbsentItem, AbsentKind, Fault};
use crate::exports::attempts::Progress;
use crate::exports::open::Opening;
use zgate_config::LunConfig;
use zgate_iscsi::names::IscsiName;

/// Returns absent logical units as items.
pub(super) fn absent_items<'a>(
    luns: impl Iterator<Item = (&'a IscsiName, &'a AbsentLun)>,
) -> Vec<AbsentItem> {
    let item = |(target, lun): (&IscsiName, &AbsentLun)| {
        let name = format!("target {target} lun {}", lun.config.number);
        AbsentItem::new(AbsentKind::Lun, name, lun.fault.clone())
    };
    luns.map(item).collect()
}

impl IscsiService {
    /// Returns the logical units whose storage is absent.
    pub(crate) fn absent(&self) -> Vec<AbsentItem> {
        absent_items(self.rules().catalog.absent())
    }

    /// Returns those that the configuration names: what a pattern or the API found may
    /// always come later.
    pub(crate) fn named_absent(&self) -> Vec<AbsentItem> {
        absent_items(self.rules().catalog.named_absent())
    }

    /// Begins the attempts that are due. Initiators learn the sizes that earlier ones have learned
    /// of ZFS.
    pub(crate) fn retry_absent(&self) -> Progress {
        let rules = self.rules();
        let progress = self.volumes.retry(&self.home, rules.catalog.absent());
        for (name, lun) in rules.catalog.absent().filter(|(_, lun)| lun.tells_no_size()) {
            let Some(learned) = lun.with_recorded_size(&self.home, name) else { continue };
            let put = self.change(name.as_str(), |target| {
                if is_still_absent(target, &lun.config) {
                    target.absent.insert(lun.config.number, learned);
                }
                Ok(())
            });
            if let Err(error) = put {
                tracing::debug!(%error, "a target went while the size of its LUN was learned");
            }
        }
        progress
    }

    /// Serves the logical units whose storage has appeared. Initiators of their
    /// targets are told that the LUNs have changed.
    pub(crate) fn serve_returned(&self) {
        let rules = self.rules();
        let absent: Vec<_> = rules.catalog.absent().collect();
        let luns = absent.iter().map(|(target, lun)| (*target, &lun.config));
        let mut opened = self.volumes.open(&self.home, luns, Opening::Retry);
        for (name, lun) in absent {
            let config = &lun.config;
            let result = match opened.remove(&(name.clone(), config.number)) {
                Some(Ok(volume)) => {
                    let unit = self.home.open_over(name, config, None, Some(volume));
                    unit.map_err(|error| Fault::absent(error.to_string(), SEE_LOG))
                }
                Some(Err(fault)) => Err(fault),
                None => continue,
            };
            if result.as_ref().is_err_and(|fault| *fault == lun.fault) {
                continue;
            }
            let put = self.change(name.as_str(), |target| {
                if !is_still_absent(target, config) {
                    return Ok(());
                }
                match result {
                    Ok(unit) => {
                        target.absent.remove(&config.number);
                        target.settings.luns.push(config.clone());
                        target.units.insert(config.number, unit);
                    }
                    Err(fault) => {
                        target.absent.insert(config.number, lun.with_fault(fault));
                    }
                }
                Ok(())
            });
            if let Err(error) = put {
                tracing::debug!(%error, "a target went while its LUN came");
            }
        }
    }
}

/// Returns whether nobody has removed or replaced the unit meanwhile.
fn is_still_absent(target: &Target, config: &LunConfig) -> bool {
    target.absent.get(&config.number).is_some_and(|lun| lun.config == *config)
}
