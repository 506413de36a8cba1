//! Changes to a running gateway: reload of the configuration, logical units
//! added, resized and removed, access granted and withdrawn.

use super::absent::absent_items;
use super::luns::catalog::{Catalog, Target};
use super::luns::unit::{RESIZE_IT, Unit};
use super::service::{IscsiService, Rules};
use super::settings::{InitiatorRule, IscsiSettings, rule};
use crate::exports::absent::AbsentItem;
use crate::exports::open::Opening;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use zgate_config::{InitiatorConfig, LunConfig, NamePattern};
use zgate_iscsi::names::IscsiName;
use zgate_store::BlockStore;

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Keeps a change beyond the process.
pub(crate) trait Keep {
    /// Prepares it: whatever may fail slowly or often.
    ///
    /// # Errors
    /// The reason for which it cannot be kept.
    fn stage(&mut self) -> io::Result<()>;

    /// Makes it lasting. The change takes effect directly afterwards, and
    /// nothing can fail in between.
    ///
    /// # Errors
    /// The reason for which it is not kept.
    fn publish(&mut self) -> io::Result<()>;
}

/// Keeps nothing: the change ends with the next reload or restart.
pub(crate) struct NotKept;

impl Keep for NotKept {
    fn stage(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes of a reload, prepared but not in effect; new units are open.
pub(crate) struct Prepared {
    pub(super) rules: Rules,
    resize: Vec<(Arc<Unit>, u64)>,
}

impl Prepared {
    /// Returns the logical units of the configuration that will be absent.
    pub(crate) fn named_absent(&self) -> Vec<AbsentItem> {
        absent_items(self.rules.catalog.named_absent())
    }
}

/// New sizes of files of units, in bytes: they take as long as the storage likes.
#[must_use]
pub(crate) struct Resizes(Vec<(Arc<Unit>, u64)>);

impl Resizes {
    /// Changes the sizes, and waits for that for some time: the caller holds no lock.
    /// Returns a note for each that comes later, with an answer of its storage, or has failed.
    pub(crate) fn carry_out(self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let begun: Vec<_> = self
            .0
            .into_iter()
            .map(|(unit, bytes)| (Arc::clone(&unit), begin_resize(unit, bytes)))
            .collect();
        let mut notes = Vec::new();
        for (unit, ended) in begun {
            let (target_name, lun) = (&unit.target, unit.config.number);
            let left = deadline.saturating_duration_since(Instant::now());
            notes.push(match ended.recv_timeout(left) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => format!("{error}; the LUN keeps its size: {RESIZE_IT}"),
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!(
                        %target_name, lun,
                        "the file of a LUN gets its new size when its storage answers: check its \
                         pool"
                    );
                    format!(
                        "target {target_name} lun {lun}: the file gets its new size when its \
                         storage answers; if the gateway ends before that, {RESIZE_IT}"
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    tracing::error!(%target_name, lun, "a LUN keeps its size: {RESIZE_IT}");
                    format!("target {target_name} lun {lun}: it keeps its size: {RESIZE_IT}")
                }
            });
        }
        notes
    }
}

/// Changes the size of a unit's file on a thread of its own, which its storage may keep.
/// Its outcome is told, unless there is no thread, or it panics.
fn begin_resize(unit: Arc<Unit>, bytes: u64) -> Receiver<io::Result<()>> {
    let (told, ended) = channel();
    let work = move || {
        let outcome = wait_for(unit.resize(Some(bytes))).map(drop);
        if let Err(error) = &outcome {
            tracing::error!(%error, "cannot change the size of a LUN");
        }
        // Nobody may wait any more.
        let _ = told.send(outcome);
    };
    if let Err(error) = std::thread::Builder::new().name("zgate-resize".to_owned()).spawn(work) {
        tracing::error!(%error, "cannot start the thread that changes the size of a LUN");
    }
    ended
}

impl IscsiService {
    /// Opens the units of new settings. Nothing takes effect yet.
    ///
    /// # Errors
    /// Target and LUN; nothing has changed then.
    pub(crate) fn prepare(&self, settings: &IscsiSettings, how: Opening) -> io::Result<Prepared> {
        if self.portals().is_empty() && !settings.targets.is_empty() {
            return Err(invalid(
                "there is no iSCSI portal: set iscsi.listen and restart to serve targets".into(),
            ));
        }
        let old = self.rules();
        let catalog = old.catalog.next(settings, &self.home, &self.volumes, how)?;
        let mut resize = Vec::new();
        for target in &settings.targets {
            for lun in &target.luns {
                let units = catalog.targets.get(&target.name).map(|target| &target.units);
                let unit = units.and_then(|units| units.get(&lun.number));
                let before = old.catalog.configured_size(&target.name, lun.number);
                if let (Some(unit), Some(size)) = (unit, lun.size)
                    && before.is_some_and(|before| before != size)
                {
                    unit.check_growth(size.0)?;
                    resize.push((Arc::clone(unit), size.0));
                }
            }
        }
        Ok(Prepared { rules: Rules { catalog, discovery: settings.discovery.clone() }, resize })
    }

    /// Puts the changes into effect, but for new sizes: storage that hangs would keep the
    /// locks of the caller.
    pub(crate) fn commit(&self, prepared: Prepared) -> Resizes {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace_rules(prepared.rules);
        Resizes(prepared.resize)
    }

    /// Changes one target.
    pub(super) fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Target) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.rules();
        let wanted = IscsiName::parse(name);
        let found = wanted.and_then(|name| rules.catalog.targets.get_key_value(&name));
        let Some((name, target)) = found else {
            return Err(invalid(format!("there is no target {name}; `zgate targets` lists them")));
        };
        let mut target = Target::clone(target);
        change(&mut target)?;
        let mut catalog = Catalog::clone(&rules.catalog);
        catalog.targets.insert(name.clone(), Arc::new(target));
        self.replace_rules(Rules { catalog, discovery: rules.discovery.clone() });
        Ok(())
    }

    /// Adds a logical unit.
    ///
    /// # Errors
    /// The fault; nothing has changed then.
    pub(crate) fn add_lun(
        &self,
        target: &str,
        lun: &LunConfig,
        keep: &mut dyn Keep,
    ) -> io::Result<()> {
        let problems = zgate_config::lun_problems(target, lun);
        if !problems.is_empty() {
            return Err(invalid(problems.join("; ")));
        }
        self.change(target, |target| {
            if target.has_lun(lun.number) {
                return Err(invalid(format!("lun {} exists already", lun.number)));
            }
            let name = &target.settings.name;
            // Those in effect now: another change may have ended while this one waited.
            self.rules().catalog.check_identity(name, lun)?;
            // First: opening may create the file.
            keep.stage()?;
            let unit = self.home.open(name, lun, None)?;
            keep.publish()?;
            target.units.insert(lun.number, unit);
            target.settings.luns.push(lun.clone());
            Ok(())
        })
    }

    /// Removes a logical unit.
    ///
    /// # Errors
    /// If there is no such unit.
    pub(crate) fn remove_lun(
        &self,
        target: &str,
        number: u16,
        keep: &mut dyn Keep,
    ) -> io::Result<()> {
        self.change(target, |target| {
            if !target.has_lun(number) {
                return Err(invalid(format!("there is no lun {number}")));
            }
            keep.stage()?;
            keep.publish()?;
            target.units.remove(&number);
            target.absent.remove(&number);
            target.settings.luns.retain(|lun| lun.number != number);
            Ok(())
        })
    }

    /// Changes the size of a file, or reads a device's. Returns bytes.
    ///
    /// # Errors
    /// The reason for which the unit keeps its size.
    pub(crate) fn resize_lun(
        &self,
        target: &str,
        number: u16,
        size_bytes: Option<u64>,
    ) -> io::Result<u64> {
        let unit = self.unit(target, number).ok_or_else(|| {
            invalid(format!(
                "there is no lun {number} of target {target}; `zgate targets` lists them"
            ))
        })?;
        wait_for(unit.resize(size_bytes))
    }

    /// Returns the present size of a unit in bytes; none if there is no such unit.
    pub(crate) fn lun_bytes(&self, target: &str, number: u16) -> Option<u64> {
        Some(self.unit(target, number)?.volume.geometry().capacity_bytes)
    }

    fn unit(&self, target: &str, number: u16) -> Option<Arc<Unit>> {
        let rules = self.rules();
        let found = rules.catalog.targets.get(&IscsiName::parse(target)?)?;
        found.units.get(&number).cloned()
    }

    /// Adds a rule for an initiator. The rule includes its authentication, and
    /// an existing rule of the same name is never weakened.
    ///
    /// # Errors
    /// If there is no such target or LUN, a secret cannot be read, or the
    /// initiator has a rule already.
    pub(crate) fn allow(
        &self,
        target: &str,
        wanted: &InitiatorConfig,
        keep: &mut dyn Keep,
    ) -> io::Result<()> {
        let problems = zgate_config::initiator_problems(target, wanted);
        if !problems.is_empty() {
            return Err(invalid(problems.join("; ")));
        }
        let rule = rule(wanted)?;
        self.change(target, |target| {
            let name = &rule.name;
            if target.settings.rules.iter().any(|known| known.name == *name) {
                return Err(invalid(format!(
                    "{name} has a rule already; `zgate acl` shows it, `zgate acl remove` withdraws it"
                )));
            }
            if let Some(lun) =
                rule.luns.iter().flatten().find(|lun| !target.has_lun(**lun))
            {
                return Err(invalid(format!("there is no lun {lun}; `zgate targets` lists them")));
            }
            keep.stage()?;
            keep.publish()?;
            // The first match applies: a name must precede a pattern that
            // covers it.
            let covers = |known: &InitiatorRule| known.name.covers(name);
            let rules = &mut target.settings.rules;
            let place = rules.iter().position(covers).unwrap_or(rules.len());
            rules.insert(place, rule);
            Ok(())
        })
    }

    /// Withdraws a rule; sessions that only this rule admitted end.
    ///
    /// # Errors
    /// If there is no such target or rule.
    pub(crate) fn deny(
        &self,
        target: &str,
        name: &NamePattern,
        keep: &mut dyn Keep,
    ) -> io::Result<()> {
        self.change(target, |target| {
            if !target.settings.rules.iter().any(|rule| rule.name == *name) {
                return Err(invalid(format!("no rule names {name}; `zgate acl` lists them")));
            }
            keep.stage()?;
            keep.publish()?;
            target.settings.rules.retain(|rule| rule.name != *name);
            Ok(())
        })
    }
}

/// Runs a future of the storage to its end on this thread.
pub(super) fn wait_for<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
