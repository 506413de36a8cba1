//! Attempts to open the devices and files of logical units.

use super::catalog::AbsentLun;
use super::unit::UnitHome;
use crate::exports::absent::Fault;
use crate::exports::attempts::{Attempts, Job, Progress, Wake};
use crate::exports::open::Opening;
use std::collections::BTreeMap;
use zgate_block::BlockVolume;
use zgate_config::LunConfig;
use zgate_iscsi::names::IscsiName;

/// Attempts by target and LUN.
pub(crate) struct Volumes(Attempts<BlockVolume>);

/// Result for each LUN: an open volume, or the reason for which there is none.
pub(in crate::iscsi) type Opened = BTreeMap<(IscsiName, u16), Result<BlockVolume, Fault>>;

impl Volumes {
    /// The end of an attempt wakes `wake`.
    pub(crate) fn new(wake: Wake) -> Self {
        Self(Attempts::new(wake))
    }

    /// Opens the volumes of these LUNs at the same time.
    pub(in crate::iscsi) fn open<'a>(
        &self,
        home: &UnitHome,
        luns: impl Iterator<Item = (&'a IscsiName, &'a LunConfig)>,
        how: Opening,
    ) -> Opened {
        let luns: Vec<_> = luns.collect();
        let jobs = luns.iter().map(|(target, lun)| job(home, target, lun, how.attempts_all()));
        let results = self.0.attempt(jobs.collect(), how.patience());
        by_lun(&luns, results)
    }

    /// Opens the volumes of LUNs that were found, at the same time. Attempts at others
    /// go on.
    pub(in crate::iscsi) fn open_found(
        &self,
        home: &UnitHome,
        luns: &[(&IscsiName, &LunConfig)],
    ) -> Opened {
        if luns.is_empty() {
            return Opened::new();
        }
        let jobs = luns.iter().map(|(target, lun)| job(home, target, lun, true));
        let results = self.0.attempt_more(jobs.collect(), Opening::Scan.patience());
        by_lun(luns, results)
    }

    /// Wakes the thread that retries: what is absent has changed.
    pub(in crate::iscsi) fn wake(&self) {
        self.0.wake();
    }

    /// Begins the attempts that are due at absent LUNs.
    pub(crate) fn retry<'a>(
        &self,
        home: &UnitHome,
        luns: impl Iterator<Item = (&'a IscsiName, &'a AbsentLun)>,
    ) -> Progress {
        self.0.retry(luns.map(|(target, lun)| retry_job(home, target, lun)).collect())
    }

    /// Makes the next attempts due now.
    #[cfg(test)]
    pub(in crate::iscsi) fn make_due(&self) {
        self.0.make_due();
    }
}

fn by_lun(luns: &[(&IscsiName, &LunConfig)], results: Vec<Result<BlockVolume, Fault>>) -> Opened {
    let keys = luns.iter().map(|(target, lun)| ((*target).clone(), lun.number));
    keys.zip(results).collect()
}

fn job(home: &UnitHome, target: &IscsiName, lun: &LunConfig, begins: bool) -> Job<BlockVolume> {
    let work = Box::new(home.volume_work(target, lun));
    Job { key: key(target, lun), work, begins }
}

fn retry_job(home: &UnitHome, target: &IscsiName, lun: &AbsentLun) -> Job<BlockVolume> {
    let work = Box::new(home.retry_work(target, &lun.config, lun.naa));
    Job { key: key(target, &lun.config), work, begins: true }
}

fn key(target: &IscsiName, lun: &LunConfig) -> String {
    format!("{target} {lun:?}")
}
