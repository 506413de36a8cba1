//! The configuration in effect, and its changes: reload and live commands, one
//! at a time.

use super::absent::{AbsentView, Source};
use super::api::credentials;
use super::kept::{ConfDirLock, Kept};
use super::reconcile::Reconciler;
use super::run::Gateway;
use super::web::access;
use crate::iscsi::change::{Keep, NotKept, Resizes};
use crate::iscsi::limits::RESIZE_PATIENCE;
use crate::iscsi::service::IscsiService;
use crate::observe::audit::{self, Asker};
use crate::schedule::{self, Schedule};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_config::{
    ByteSize, Change, Config, ConfigError, Effect, EntryChange, EntryEvent, LiveChange,
};
use zgate_iscsi::names::IscsiName;

/// Note of a change that no file keeps.
const RUNTIME_ONLY: &str = "in effect until the next reload or restart (--runtime-only)";
/// Note of a removal of what only a change with `--runtime-only` had added.
const IN_NO_FILE: &str = "no file of the configuration had it";

/// Result of a reload.
#[derive(Debug, Serialize)]
pub(super) struct Reloaded {
    /// Keys that differ.
    changes: Vec<Change>,
    /// Exports, rules, targets and logical units that were added, removed or
    /// changed.
    entries: Vec<ReloadedEntry>,
    /// Items that are configured, but absent now.
    absent: Vec<AbsentView>,
    /// New sizes of files that come later, or have failed, with the next step.
    notes: Vec<String>,
}

/// One entry that a reload changed.
#[derive(Debug, Serialize)]
struct ReloadedEntry {
    #[serde(flatten)]
    change: EntryChange,
    /// Set if a change with `--runtime-only` ends.
    ends_runtime_only: bool,
}

impl ReloadedEntry {
    /// Returns it as one line of the log.
    fn line(&self) -> String {
        let EntryChange { entry, event, detail, .. } = &self.change;
        let detail = match (event, detail.as_str()) {
            (_, "") => String::new(),
            (EntryEvent::Changed, detail) => format!(": {detail}"),
            (_, detail) => format!(" ({detail})"),
        };
        let end = if self.ends_runtime_only { "; a --runtime-only change ends" } else { "" };
        format!("{event} {entry}{detail}{end}")
    }
}

/// The configuration in effect.
struct InEffect {
    config: Config,
    /// Entries that differ from the files by `--runtime-only`, in lower case.
    runtime_only: BTreeSet<String>,
    conf_dir: ConfDirLock,
}

/// The configuration in effect, and everything that it configures.
pub(super) struct LiveConfig {
    pub(super) gateway: Arc<Gateway>,
    pub(super) reconciler: Arc<Reconciler>,
    pub(super) schedule: Arc<Schedule>,
    /// The main file.
    path: PathBuf,
    /// Locked during each change: two of them never lose one another's.
    in_effect: Mutex<InEffect>,
}

impl LiveConfig {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        reconciler: &Arc<Reconciler>,
        schedule: Schedule,
        path: PathBuf,
        config: Config,
        conf_dir: ConfDirLock,
    ) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            reconciler: Arc::clone(reconciler),
            schedule: Arc::new(schedule),
            path,
            in_effect: Mutex::new(InEffect { config, runtime_only: BTreeSet::new(), conf_dir }),
        }
    }

    fn in_effect(&self) -> MutexGuard<'_, InEffect> {
        self.in_effect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads, all or nothing: the new exports are opened before the old ones
    /// are closed. What is in use is only taken away with `force`. New sizes of files
    /// may come later.
    ///
    /// # Errors
    /// The reason for which nothing has changed.
    pub(super) fn reload(&self, by: &Asker, force: bool) -> io::Result<Reloaded> {
        let what = if force { "reload --force" } else { "reload" };
        let reloaded = self.try_reload(force).map(|(reloaded, resizes)| {
            // Nothing is locked any more: storage that hangs keeps no other change waiting.
            Reloaded { notes: resizes.carry_out(RESIZE_PATIENCE), ..reloaded }
        });
        match &reloaded {
            Ok(Reloaded { entries, absent, .. }) => {
                for entry in entries {
                    audit::change(by, what, Ok(&entry.line()));
                }
                let (changes, absent) = (entries.len(), absent.len());
                let outcome = format!("done, changes: {changes}, absent: {absent}");
                audit::change(by, what, Ok(&outcome));
            }
            Err(error) => audit::change(by, what, Err(&error.to_string())),
        }
        reloaded
    }

    fn try_reload(&self, force: bool) -> io::Result<(Reloaded, Resizes)> {
        let invalid =
            |error: ConfigError| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
        let mut in_effect = self.in_effect();
        let new = zgate_config::load(&self.path).map_err(invalid)?;
        let changes = zgate_config::diff(&in_effect.config, &new);
        let entries = zgate_config::changed_entries(&in_effect.config, &new);
        // Nothing below may use a value that a restart has to put into effect.
        let new = effective(&in_effect.config, &new)?;
        let policies = schedule::policies(&new)?;
        in_effect.conf_dir.hold(&self.path)?;
        let token = access::configured(&new)?;
        let certificates = super::serve::certificates(&new)?;
        let kerberos = super::serve::kerberos(&new)?;
        let api_credentials = credentials::configured(&new)?;
        super::serve::start_name_service(&new, &self.gateway.shared.nfs)?;
        let shared = &self.gateway.shared;
        let resizes = self.reconciler.replace(&new, |prepared| {
            let outcome = &prepared.outcome;
            let disks = (outcome.volumes.as_slice(), outcome.granted.as_slice());
            let resizes = self.gateway.replace(&outcome.exports, &prepared.block, disks, force)?;
            shared.iscsi.await_targets(&outcome.awaited);
            // Directly: the new rules count on the new lists, keys, users and tokens.
            shared.network.tls.replace(certificates);
            shared.nfs.kerberos.replace(kerberos);
            super::serve::set_domain(&new, &shared.nfs);
            shared.access.set_token(token);
            shared.set_api_credentials(api_credentials);
            Ok(resizes)
        })?;
        for change in changes.iter().filter(|change| change.effect == Effect::Restart) {
            tracing::warn!(
                key = change.key,
                old = change.old,
                new = change.new,
                "takes effect after a restart"
            );
        }
        shared.absent.update(Source::Datasets, self.reconciler.missing());
        self.schedule.replace(policies);
        in_effect.config = new;
        let ended = std::mem::take(&mut in_effect.runtime_only);
        let entry = |change: EntryChange| ReloadedEntry {
            ends_runtime_only: ended.contains(&change.entry.to_lowercase()),
            change,
        };
        let entries = entries.into_iter().map(entry).collect();
        let (absent, notes) = (shared.absent.views(), Vec::new());
        Ok((Reloaded { changes, entries, absent, notes }, resizes))
    }

    /// Changes what a target has, in effect and, unless `runtime_only`, in the
    /// files. The file is written first, and nothing can fail afterwards: if
    /// the gateway dies in between, the change takes effect at the next start.
    ///
    /// # Errors
    /// The reason for which nothing has changed.
    pub(super) fn change(
        &self,
        change: LiveChange,
        runtime_only: bool,
    ) -> io::Result<serde_json::Value> {
        let in_effect = &mut *self.in_effect();
        let iscsi = &self.gateway.shared.iscsi;
        let answer = if runtime_only {
            apply(iscsi, &change, &mut NotKept)?;
            serde_json::json!({ "changed": changed(&change), "note": RUNTIME_ONLY })
        } else {
            refuse_followed(iscsi, &change)?;
            let mut kept = Kept::new(&self.path, &mut in_effect.conf_dir, &change);
            apply(iscsi, &change, &mut kept)?;
            let mut answer = serde_json::json!({ "changed": changed(&change) });
            let note = kept.doubt.take().or(kept.file.is_none().then(|| IN_NO_FILE.to_owned()));
            if let Some(file) = &kept.file {
                answer["kept_in"] = file.display().to_string().into();
            }
            if let Some(note) = note {
                answer["note"] = note.into();
            }
            answer
        };
        // A LUN that is removed may have been absent.
        self.gateway.shared.absent.update(Source::Luns, iscsi.absent());
        let name = change.entry_name().to_lowercase();
        // A change back and forth leaves what the files have.
        if !in_effect.runtime_only.remove(&name) && runtime_only {
            in_effect.runtime_only.insert(name);
        }
        change.apply(&mut in_effect.config);
        self.reconciler.number_around(&change);
        Ok(answer)
    }

    /// Changes the size of a logical unit's file, or reads a device's, and
    /// writes it where a file of `conf_dir` has the earlier one. The size of the
    /// file itself is what counts: it lasts in any case.
    ///
    /// # Errors
    /// The reason for which the unit keeps its size.
    pub(super) fn resize(
        &self,
        target: &str,
        number: u16,
        size_bytes: Option<u64>,
    ) -> io::Result<serde_json::Value> {
        let iscsi = &self.gateway.shared.iscsi;
        // Before anything is locked: storage that hangs keeps no other change waiting.
        let size = iscsi.resize_lun(target, number, size_bytes)?;
        let mut answer = serde_json::json!({ "target": target, "lun": number, "size_bytes": size });
        let in_effect = &mut *self.in_effect();
        // Another change of it may have come first: a reload refuses a size that is less
        // than the file's.
        let size = ByteSize(iscsi.lun_bytes(target, number).unwrap_or(size));
        let change = LiveChange::ResizeLun { target: target.to_owned(), number, size };
        let is_kept = !in_effect.runtime_only.contains(&change.entry_name().to_lowercase());
        if size_bytes.is_none() || !is_kept {
            return Ok(answer);
        }
        let mut kept = Kept::new(&self.path, &mut in_effect.conf_dir, &change);
        let outcome = kept.stage().and_then(|()| kept.publish());
        let (file, doubt) = (kept.file.take(), kept.doubt.take());
        if let Some(file) = file {
            answer["kept_in"] = file.display().to_string().into();
            change.apply(&mut in_effect.config);
        }
        if let Err(error) = outcome {
            let note =
                format!("the file has the size; the configuration keeps its earlier one: {error}");
            answer["note"] = note.into();
        } else if let Some(doubt) = doubt {
            answer["note"] = doubt.into();
        }
        Ok(answer)
    }
}

/// Returns the configuration that is in effect after a reload of `new`: what needs a
/// restart is as it is now.
///
/// # Errors
/// The keys that stay as they are until a restart and contradict the rest.
fn effective(running: &Config, new: &Config) -> io::Result<Config> {
    let effective = zgate_config::after_reload(running, new.clone());
    let mut together = effective.clone();
    // An address of the API that has lost its certificates, tokens or names admits
    // nobody until the restart, as is wanted of one that was removed with them.
    together.api.listen.clear();
    let problems = zgate_config::contradictions(&together);
    if problems.is_empty() {
        return Ok(effective);
    }
    let kept: Vec<String> = zgate_config::diff(&effective, new)
        .into_iter()
        .map(|Change { key, old, .. }| match old.as_str() {
            "" => format!("{key} (not set)"),
            old => format!("{key} = {old}"),
        })
        .collect();
    let problems: Vec<String> = problems
        .into_iter()
        .map(|one| format!("{}: {}; {}", one.place, one.problem, one.next_step))
        .collect();
    let reason = format!(
        "values that are in effect until a restart contradict the new ones: {}. With them: {}. \
         Leave what they need in the configuration until the restart, or restart the gateway",
        kept.join(", "),
        problems.join("; ")
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Puts a change into effect as soon as it is kept.
fn apply(iscsi: &IscsiService, change: &LiveChange, keep: &mut dyn Keep) -> io::Result<()> {
    match change {
        LiveChange::AddLun { target, lun } => iscsi.add_lun(target, lun, keep),
        LiveChange::ResizeLun { target, number, size } => {
            iscsi.resize_lun(target, *number, Some(size.0)).map(drop)
        }
        LiveChange::RemoveLun { target, number } => iscsi.remove_lun(target, *number, keep),
        LiveChange::AddRule { target, rule } => iscsi.allow(target, rule, keep),
        LiveChange::RemoveRule { target, name } => iscsi.deny(target, name, keep),
    }
}

/// Refuses to remove a zvol that a pattern finds: it would come back.
fn refuse_followed(iscsi: &IscsiService, change: &LiveChange) -> io::Result<()> {
    let LiveChange::RemoveLun { target, number } = change else { return Ok(()) };
    let rules = iscsi.rules();
    let found = IscsiName::parse(target).and_then(|name| rules.catalog.targets.get(&name));
    if !found.is_some_and(|target| target.settings.followed.contains(number)) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "LUN {number} of target {target} is a zvol that [[target.volumes]] finds: change the \
             pattern and run `zgate reload`, or rename the zvol; --runtime-only removes it until \
             the next reload or restart"
        ),
    ))
}

/// Returns the part of the answer that says what was changed.
fn changed(change: &LiveChange) -> serde_json::Value {
    match change {
        LiveChange::AddLun { target, lun } => {
            serde_json::json!({ "target": target, "added_lun": lun.number })
        }
        LiveChange::ResizeLun { target, number, .. } => {
            serde_json::json!({ "target": target, "lun": number })
        }
        LiveChange::RemoveLun { target, number } => {
            serde_json::json!({ "target": target, "removed_lun": number })
        }
        LiveChange::AddRule { target, rule } => {
            serde_json::json!({ "target": target, "allowed": rule.name })
        }
        LiveChange::RemoveRule { target, name } => {
            serde_json::json!({ "target": target, "withdrawn": name })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::open::Opening;
    use crate::iscsi::tests::gate::hold_resize;
    use crate::observe::log_of_test::logged;
    use crate::server::settings::{kerberos_settings, settings};
    use std::path::Path;
    use std::time::{Duration, Instant};
    use tracing::Level;
    use zgate_control::Tool;
    use zgate_control::snapshot::Policy;
    use zgate_test_harness::certificates::{Authority, server_files};

    const TARGET: &str = "iqn.2026-11.test:vm";

    /// Time limit for expected events.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Text of a configuration with these further keys of `[server]`, and what follows.
    fn text(dir: &Path, further: &str) -> String {
        let state = dir.join("state");
        format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nmetrics_listen = \"127.0.0.1:0\"\n\
             state_dir = {state:?}\ncores = 1\nworker_threads = 1\npoll_microseconds = 0\n\
             core_nice = 0\ndrain_seconds = 1\n{further}"
        )
    }

    /// Starts a gateway with the configuration of this text.
    fn live(dir: &Path, text: &str) -> LiveConfig {
        let path = dir.join("zgate.toml");
        std::fs::write(&path, text).unwrap();
        let config = zgate_config::load(&path).unwrap();
        let reconciler = Reconciler::new();
        let prepared = reconciler.prepare(&config).unwrap();
        let (exports, block) = (&prepared.outcome.exports, &prepared.block);
        let settings = settings(&config);
        let gateway =
            Gateway::start(&settings, exports, block, (&[], &[]), Opening::Start, |_| Ok(()));
        let gateway = Arc::new(gateway.unwrap());
        reconciler.adopt(prepared);
        let iscsi = Arc::clone(&gateway.shared.iscsi);
        let flush = move |tool: &dyn Tool, policy: &Policy| iscsi.flush_policy(tool, policy);
        let views = Arc::clone(&gateway.shared.schedules);
        let schedule = Schedule::start(Vec::new(), Box::new(flush), views).unwrap();
        LiveConfig::new(&gateway, &reconciler, schedule, path, config, ConfDirLock::default())
    }

    /// Text of a configuration with a disk of this size in a file.
    fn with_disk(dir: &Path, size: &str) -> String {
        let disk = dir.join("disk.img");
        let target = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = {TARGET:?}\n\
             allow_any_initiator = true\n[[target.lun]]\nnumber = 0\npath = {disk:?}\n\
             size = {size:?}\ndirect = \"never\"\n"
        );
        text(dir, &target)
    }

    #[test]
    fn the_new_size_of_a_disk_that_hangs_keeps_no_other_change_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let live = live(dir.path(), &with_disk(dir.path(), "1MiB"));
        std::fs::write(&live.path, with_disk(dir.path(), "2MiB")).unwrap();
        let reload = || live.reload(&Asker::Signal, false).map(drop);
        let resize = || live.resize(TARGET, 0, Some(3 << 20)).map(drop);
        let changes: [&(dyn Fn() -> io::Result<()> + Sync); 2] = [&reload, &resize];
        for change in changes {
            let (answers, begun) = hold_resize(&dir.path().join("disk.img"));
            std::thread::scope(|scope| {
                let changed = scope.spawn(change);
                begun.recv_timeout(PATIENCE).unwrap();
                assert!(live.in_effect.try_lock().is_ok());
                assert!(live.reconciler.changing.try_lock().is_ok());
                assert!(live.gateway.shared.iscsi.changing.try_lock().is_ok());
                assert!(live.gateway.followed().is_empty(), "exports may change, too");
                drop(answers);
                changed.join().unwrap().unwrap();
            });
        }
        assert_eq!(live.gateway.shared.iscsi.lun_bytes(TARGET, 0), Some(3 << 20));
        live.gateway.stop();
    }

    #[test]
    fn a_disk_gets_its_new_size_when_its_storage_answers() {
        let dir = tempfile::tempdir().unwrap();
        let live = live(dir.path(), &with_disk(dir.path(), "1MiB"));
        let iscsi = &live.gateway.shared.iscsi;
        let config = zgate_config::parse(&with_disk(dir.path(), "2MiB"), Path::new("x")).unwrap();
        let block = crate::iscsi::settings::settings(&config).unwrap();
        let prepared = iscsi.prepare(&block, Opening::Reload).unwrap();
        let (answers, _begun) = hold_resize(&dir.path().join("disk.img"));
        let notes = iscsi.commit(prepared).carry_out(Duration::ZERO);
        assert_eq!(notes.len(), 1);
        let said = format!("target {TARGET} lun 0: the file gets its new size when its storage");
        assert!(notes[0].starts_with(&said) && notes[0].contains("zgate lun resize"), "{notes:?}");
        assert_eq!(iscsi.lun_bytes(TARGET, 0), Some(1 << 20));
        drop(answers);
        let deadline = Instant::now() + PATIENCE;
        while iscsi.lun_bytes(TARGET, 0) != Some(2 << 20) {
            assert!(Instant::now() < deadline, "it keeps its size");
            std::thread::yield_now();
        }
        live.gateway.stop();
    }

    #[test]
    fn a_file_that_has_not_got_its_size_is_told_when_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let live = live(dir.path(), &with_disk(dir.path(), "1MiB"));
        let iscsi = &live.gateway.shared.iscsi;
        // What is said of another file of 1 MiB, which takes the place of the LUN's.
        let said = |size: &str| {
            let other = tempfile::tempdir().unwrap();
            let file = std::fs::File::create(other.path().join("disk.img")).unwrap();
            file.set_len(1 << 20).unwrap();
            let config = zgate_config::parse(&with_disk(other.path(), size), Path::new("x"));
            let block = crate::iscsi::settings::settings(&config.unwrap()).unwrap();
            logged(Level::WARN, || iscsi.prepare(&block, Opening::Reload).map(drop).unwrap()).1
        };
        assert!(!said("1MiB").contains("zgate lun resize"));
        let warning = said("2MiB");
        for part in ["size_bytes=1048576", "configured_bytes=2097152", "zgate lun resize"] {
            assert!(warning.contains(part), "{warning}");
        }
        live.gateway.stop();
    }

    #[test]
    fn kerberos_stays_where_the_gateway_runs_until_a_restart_moves_it() {
        let config = |text: &str| zgate_config::parse(text, Path::new("x")).unwrap();
        let running =
            config("[server]\nstate_dir = \"/a\"\nadmin_socket = \"/nosuch/a\"\n[kerberos]\n");
        let new = config(
            "[server]\nstate_dir = \"/b\"\nadmin_socket = \"/nosuch/b\"\nid_domain = \"x\"\n\
             [kerberos]\n",
        );
        assert_ne!(kerberos_settings(&new), kerberos_settings(&running));
        let now = effective(&running, &new).unwrap();
        // Contexts would end because of other settings.
        assert_eq!(kerberos_settings(&now), kerberos_settings(&running));
        assert_eq!(now.server.id_domain, new.server.id_domain);
    }

    #[test]
    fn a_reload_takes_no_certificate_from_an_address_that_needs_it_until_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let files = server_files(dir.path(), &Authority::new(), None);
        let api = format!("[api]\ncertificate = {:?}\nkey = {:?}\n", files.certificate, files.key);
        let with_tls = text(dir.path(), &format!("metrics_transport = \"tls\"\n{api}"));
        let live = live(dir.path(), &with_tls);
        std::fs::write(&live.path, text(dir.path(), "")).unwrap();
        let said = live.reload(&Asker::Signal, false).unwrap_err().to_string();
        for part in ["server.metrics_transport = \"tls\"", "api.certificate", "restart"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(live.in_effect().config.api.certificate.is_some(), "nothing has changed");
        // It may stay until the restart.
        std::fs::write(&live.path, text(dir.path(), &api)).unwrap();
        live.reload(&Asker::Signal, false).unwrap();
        live.gateway.stop();
    }

    #[test]
    fn an_address_of_the_api_is_closed_to_all_by_a_reload_that_removes_it() {
        let config = |text: &str| zgate_config::parse(text, Path::new("x")).unwrap();
        let running = config(
            "[api]\nlisten = [\"127.0.0.1:9470\"]\ncertificate = \"/c\"\nkey = \"/k\"\n\
             admin_token_file = \"/t\"\n",
        );
        let now = effective(&running, &Config::default()).unwrap();
        assert_eq!(now.api.listen, running.api.listen);
        assert_eq!(zgate_config::api_tls(&now.api), None);
    }

    #[test]
    fn a_line_of_the_log_says_what_and_why() {
        let entry = |event, detail: &str, ends_runtime_only| ReloadedEntry {
            change: EntryChange {
                entry: "LUN 7 of target iqn.2026-11.test:vm".to_owned(),
                event,
                detail: detail.to_owned(),
                effect: Effect::Live,
            },
            ends_runtime_only,
        };
        assert_eq!(
            entry(EntryEvent::Removed, "/7.img", true).line(),
            "removed LUN 7 of target iqn.2026-11.test:vm (/7.img); a --runtime-only change ends"
        );
        assert_eq!(
            entry(EntryEvent::Changed, "thin true -> false", false).line(),
            "changed LUN 7 of target iqn.2026-11.test:vm: thin true -> false"
        );
    }
}
