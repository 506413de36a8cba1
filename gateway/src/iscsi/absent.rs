//! Logical units whose storage is absent: attempts to open it, and their way
//! into service.

use super::luns::catalog::{AbsentLun, SEE_LOG, Target};
use super::service::{IscsiService, Rules};
use crate::exports::absent::{AbsentItem, AbsentKind, Fault};
use crate::exports::attempts::Progress;
use crate::exports::open::Opening;
use std::sync::{Arc, PoisonError};
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
        if self.home.zvol_sizes.keep(rules.catalog.absent().map(|(_, lun)| lun.naa)) {
            let news = |(name, lun): (&IscsiName, &AbsentLun)| {
                Some((name.clone(), lun.with_news(&self.home, name)?))
            };
            self.tell_sizes(rules.catalog.absent().filter_map(news).collect());
        }
        progress
    }

    /// Puts absent logical units in place that tell other sizes, all at once: each change of the
    /// rules concerns all sessions.
    fn tell_sizes(&self, luns: Vec<(IscsiName, AbsentLun)>) {
        if luns.is_empty() {
            return;
        }
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.rules();
        let mut catalog = rules.catalog.clone();
        for (name, lun) in luns {
            if let Some(target) = catalog.targets.get_mut(&name)
                && is_still_absent(target, &lun.config)
            {
                Arc::make_mut(target).absent.insert(lun.config.number, lun);
            }
        }
        self.replace_rules(Rules { catalog, discovery: rules.discovery.clone() });
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
