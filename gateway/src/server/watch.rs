//! A thread that waits for changes and puts them into effect.

mod heard;
mod replaced;
mod requested;

use self::heard::{Changes, Heard};
use self::replaced::{Announcer, Told, queue};
use super::absent::Source;
use super::reconcile::{Reconciler, Shown, ShownExport};
use super::run::Gateway;
use super::searches::{Asked, Scanned};
use crate::exports::open::Opening;
use crate::observe::panics::caught_blocking;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zgate_control::replaced::Replacement;
use zgate_control::watch::{Change, Listener, Watch, WatchEnd};

pub(crate) use self::requested::ReplacementRequests;

/// Interval at which stores are checked for idleness.
const LOOK: Duration = Duration::from_secs(1);
/// Time within which further changes are handled together with the first, as a rule and at most.
const QUIET: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Longest time for which a change waits for others, as a rule and at most.
const PATIENCE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// Interval and number of checks for a zvol without a device.
const PENDING: (Duration, u32) = (Duration::from_millis(500), 20);
/// Shortest time between two lists of all datasets for display: while volumes come and go, each
/// change would have one.
const DISPLAY_PAUSE: Duration = Duration::from_secs(5);

/// Running thread; it ends when this is dropped, a moment later.
pub(crate) struct DatasetWatcher {
    stop: Arc<AtomicBool>,
    /// End of the watch of ZFS events, once there is one.
    watch_end: Arc<OnceLock<WatchEnd>>,
    requests: Arc<ReplacementRequests>,
}

impl DatasetWatcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(follow: &Arc<Reconciler>, gateway: &Arc<Gateway>) -> io::Result<Self> {
        let (changes, happened) = Changes::new(follow);
        let announcer = Arc::new(Announcer::new(gateway));
        Self::follow_changes(follow, gateway, announcer, changes, happened)
    }

    /// Returns what tells clients of replaced content on request.
    pub(crate) fn requests(&self) -> Arc<ReplacementRequests> {
        Arc::clone(&self.requests)
    }

    fn follow_changes(
        follow: &Arc<Reconciler>,
        gateway: &Arc<Gateway>,
        announcer: Arc<Announcer>,
        changes: Changes,
        happened: Receiver<Heard>,
    ) -> io::Result<Self> {
        let requests = Arc::new(ReplacementRequests::new(&announcer, changes.clone()));
        let runner = Runner::new(follow, gateway, announcer, changes);
        let (stop, watch_end) = (Arc::clone(&runner.stop), Arc::clone(&runner.watch_end));
        let builder = std::thread::Builder::new().name("zgate-follow".to_owned());
        builder.spawn(move || runner.run(&happened))?;
        Ok(Self { stop, watch_end, requests })
    }
}

impl Drop for DatasetWatcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Its program would outlive this process. The thread is not waited for: its search
        // may wait for ZFS.
        if let Some(watch) = self.watch_end.get() {
            watch.end();
        }
    }
}

fn listener(changes: Changes, announcer: Arc<Announcer>) -> Listener {
    Arc::new(move |change| {
        // At once: a search for datasets that runs may take long.
        if let Change::Replaced(replacement) = &change
            && !announcer.tell(replacement).is_queued
        {
            return;
        }
        changes.send(change);
    })
}

struct Runner {
    follow: Arc<Reconciler>,
    gateway: Arc<Gateway>,
    stop: Arc<AtomicBool>,
    announcer: Arc<Announcer>,
    /// Replacements behind which a search is due: it may find that the dataset has another name
    /// or place, and that clients of other exports are to be told.
    unsettled: VecDeque<Told>,
    /// Version of the exports at the last look for storage in ZFS among what is served; none
    /// if another look is due.
    looked_at: Option<u64>,
    /// Last error, so that it is logged once.
    trouble: Option<String>,
    /// Number of checks for zvols without devices so far.
    pending: u32,
    /// Set if datasets may have changed since they were listed for display.
    is_display_old: bool,
    /// When they were listed last; none before the first time.
    displayed: Option<Instant>,
    /// Watch of ZFS events; started when there are datasets to follow, or anything that is
    /// served lies in ZFS.
    watch: Option<Watch>,
    watch_end: Arc<OnceLock<WatchEnd>>,
    /// Thread that asks late pools, the last one. Nobody waits for its end.
    asking: Option<JoinHandle<()>>,
    /// Keeps the channel open while there is no watch.
    changes: Changes,
}

impl Runner {
    fn new(
        follow: &Arc<Reconciler>,
        gateway: &Arc<Gateway>,
        announcer: Arc<Announcer>,
        changes: Changes,
    ) -> Self {
        Self {
            follow: Arc::clone(follow),
            gateway: Arc::clone(gateway),
            stop: Arc::new(AtomicBool::new(false)),
            announcer,
            unsettled: VecDeque::new(),
            looked_at: None,
            trouble: None,
            pending: 0,
            is_display_old: true,
            displayed: None,
            watch: None,
            watch_end: Arc::default(),
            asking: None,
            changes,
        }
    }

    fn run(mut self, happened: &Receiver<Heard>) {
        self.announcer.look_at_mounts();
        self.refresh_display(Instant::now());
        self.begin_watch();
        let mut next_look = Instant::now() + LOOK;
        let mut next_scan = Instant::now() + self.rescan();
        // The start has found zvols whose devices come a moment after their pool.
        let is_pending = self.follow.state().pending;
        let mut wanted: Option<Wanted> = is_pending.then(|| Wanted::again(None, None));
        loop {
            let (now, pauses) = (Instant::now(), Pauses::beside(self.follow.searches.took()));
            let search = wanted.as_ref().map(|wanted| wanted.due(pauses));
            let due = search.map_or(next_look, |search| search.min(next_look));
            match happened.recv_timeout(due.saturating_duration_since(now)) {
                Ok(heard) => wanted = self.hear(&heard, wanted),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let now = Instant::now();
            if now >= next_look {
                next_look = now + LOOK;
                self.begin_watch();
                self.ask_late_pools(now);
                self.refresh_display(now);
                for (_, store) in self.gateway.followed() {
                    store.look();
                }
                if self.look_again() || self.follow.is_due(now) || now >= next_scan {
                    // No earlier search has seen what the time has changed.
                    wanted.get_or_insert_with(|| Wanted::again(None, None)).since = None;
                }
            }
            if let Some(due) = wanted.take_if(|wanted| wanted.due(pauses) <= now) {
                next_scan = Instant::now() + self.rescan();
                // It is searched again at the next change.
                caught_blocking("a search for datasets", || self.scan(due.since));
                if self.pending > 0 {
                    let again = Instant::now() + PENDING.0;
                    wanted = Some(Wanted { first: again, last: again, since: None });
                }
            }
            if wanted.is_none() {
                self.unsettled.clear();
            }
        }
    }

    fn begin_watch(&mut self) {
        if self.watch.is_some() || !(self.follows_datasets() || self.serves_zfs()) {
            return;
        }
        match Watch::start(&listener(self.changes.clone(), Arc::clone(&self.announcer))) {
            Ok(watch) => {
                self.watch_end.get_or_init(|| watch.ending());
                self.watch = Some(watch);
            }
            Err(error) => tracing::warn!(%error, "changes of datasets are detected late"),
        }
    }

    fn follows_datasets(&self) -> bool {
        !self.follow.state().plan.bases().is_empty()
    }

    /// Returns whether anything that is served lies in ZFS. Looks only when exports have
    /// changed, and after each search.
    fn serves_zfs(&mut self) -> bool {
        let version = Some(self.gateway.shared.nfs.v4.namespace_version());
        if self.looked_at == version {
            return false;
        }
        self.looked_at = version;
        self.announcer.look_at_mounts();
        // While nobody knows the mounts, anything may.
        self.announcer.has_missed_mounts() || self.gateway.serves_zfs(&self.announcer.mounts())
    }

    /// Looks at the mount table again when it may be read again after it was not in time;
    /// returns whether what it shows now may affect what is served.
    fn look_again(&mut self) -> bool {
        if !self.announcer.is_look_due() {
            return false;
        }
        self.looked_at = None;
        // A search was due when the first look was missed.
        self.matters(&Change::Mounts) && !self.announcer.has_missed_mounts()
    }

    /// Asks late pools with the full time limit, in a thread of its own: neither changes of
    /// other pools nor the stop of the gateway wait for a pool that hangs.
    fn ask_late_pools(&mut self, now: Instant) {
        let is_asking = self.asking.as_ref().is_some_and(|asking| !asking.is_finished());
        if is_asking || !self.follow.has_pools_due(now) {
            return;
        }
        let (follow, changes) = (Arc::clone(&self.follow), self.changes.clone());
        let ask = move || {
            if follow.ask_late_pools(now) {
                // Its events were missed.
                changes.send(Change::Restarted);
            }
        };
        match std::thread::Builder::new().name("zgate-late".to_owned()).spawn(ask) {
            Ok(asking) => self.asking = Some(asking),
            Err(error) => tracing::warn!(%error, "cannot ask the pools that were late"),
        }
    }

    fn rescan(&self) -> Duration {
        self.follow.state().plan.rescan
    }

    /// Takes a change; returns the search that is wanted with it.
    fn hear(&mut self, heard: &Heard, wanted: Option<Wanted>) -> Option<Wanted> {
        if !self.matters(&heard.change) {
            return wanted;
        }
        tracing::debug!(change = ?heard.change, "datasets may have changed");
        self.follow.state().memory.looks.hurry();
        Some(Wanted::again(wanted, heard.since(&self.follow.searches)))
    }

    /// Lists all datasets for display if they may have changed, but not all the time.
    fn refresh_display(&mut self, now: Instant) {
        let is_due = self.displayed.is_none_or(|last| now >= last + DISPLAY_PAUSE);
        if self.is_display_old && is_due {
            self.is_display_old = false;
            let refresh = || self.follow.refresh(&self.gateway.shared.datasets);
            caught_blocking("the list of datasets for display", refresh);
            self.displayed = Some(Instant::now());
        }
    }

    /// Returns whether a change may affect what is served.
    fn matters(&mut self, change: &Change) -> bool {
        let matters = match change {
            // The volumes of the API get their sizes so.
            Change::Event(event) if event.is_about_size() => {
                self.is_display_old = true;
                false
            }
            Change::Event(event) => {
                let concerns = event.concerns_datasets();
                // Mounts have other names then, and nothing else tells of it.
                if concerns && event.is_rename() {
                    self.announcer.look_at_mounts();
                }
                concerns
            }
            Change::Replaced(replacement) => {
                let other = self.announcer.look_at_mounts();
                if let Some(mut told) = self.announcer.take_told() {
                    self.announcer.tell_others(&mut told);
                    // What a full one stands for is told to all behind the search.
                    queue(&mut self.unsettled, told);
                }
                other || *replacement == Replacement::Any
            }
            Change::Restarted => true,
            Change::Mounts => self.announcer.look_at_mounts(),
        };
        matters && self.follows_datasets()
    }

    /// Puts into effect what has changed, unless a search has that began after `since`.
    fn scan(&mut self, since: Option<Asked>) {
        let outcome = self.follow.scan_since(&self.gateway, since);
        for told in &mut self.unsettled {
            self.announcer.tell_others(told);
        }
        self.pending = match &outcome {
            Ok(scanned) if scanned.pending && self.pending < PENDING.1 => self.pending + 1,
            _ => 0,
        };
        let trouble = outcome.err().map(|error| error.to_string());
        if let Some(error) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            tracing::warn!(
                error,
                "a search for datasets failed; what it could not change stays as it is"
            );
        }
        self.trouble = trouble;
        self.looked_at = None;
        self.is_display_old = true;
        self.refresh_display(Instant::now());
    }
}

/// Search that is due.
struct Wanted {
    first: Instant,
    last: Instant,
    /// Place of the last change: a search by anybody that begins later is enough. None: it
    /// begins when it is due, and no earlier one will do.
    since: Option<Asked>,
}

impl Wanted {
    /// Returns the search that is wanted after a change with this place.
    fn again(before: Option<Self>, since: Option<Asked>) -> Self {
        let now = Instant::now();
        match before {
            Some(before) => Self {
                first: before.first,
                last: now,
                since: before.since.zip(since).map(|(before, since)| before.max(since)),
            },
            None => Self { first: now, last: now, since },
        }
    }

    fn due(&self, pauses: Pauses) -> Instant {
        (self.last + pauses.quiet).min(self.first + pauses.patience)
    }
}

/// Time for which a change waits for others: see [`QUIET`] and [`PATIENCE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pauses {
    quiet: Duration,
    patience: Duration,
}

impl Pauses {
    /// Returns the pauses beside searches that take so long. While changes go on, the thread that
    /// follows them does not search all the time; and one that a request has made is in effect
    /// with the request's own search, which comes a moment later.
    fn beside(search: Duration) -> Self {
        let (quiet, patience) = (search, search.saturating_mul(4));
        Self {
            quiet: quiet.clamp(QUIET[0], QUIET[1]),
            patience: patience.clamp(PATIENCE[0], PATIENCE[1]),
        }
    }
}

impl Reconciler {
    /// Searches for datasets and puts changes into effect. All who wait are answered by one
    /// search, the next that begins.
    ///
    /// # Errors
    /// The reason for which nothing was searched, or exports or zvols of patterns are not all
    /// served as they are now.
    pub(super) fn scan(&self, gateway: &Gateway) -> io::Result<Arc<Scanned>> {
        self.scan_since(gateway, None)
    }

    /// The same; a search is enough that began after `since`, and may have ended.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub(super) fn scan_since(
        &self,
        gateway: &Gateway,
        since: Option<Asked>,
    ) -> io::Result<Arc<Scanned>> {
        let scanned = self.searches.since(since, &self.changing, || self.search(gateway))?;
        scanned.require_zvols()?;
        Ok(scanned)
    }

    /// The same for those who do not ask for zvols of patterns: what keeps these from being
    /// served is part of the result.
    ///
    /// # Errors
    /// The reason for which nothing was searched, or exports are served as before.
    pub(super) fn scan_but_zvols(&self, gateway: &Gateway) -> io::Result<Arc<Scanned>> {
        self.searches.since(None, &self.changing, || self.search(gateway))
    }

    /// Runs one search for all who wait for it. The caller holds [`Self::changing`].
    fn search(&self, gateway: &Gateway) -> io::Result<Scanned> {
        let plan = Arc::clone(&self.state().plan);
        if plan.bases().is_empty() {
            return Ok(Scanned::default());
        }
        let found = self.find(&plan);
        let mut state = self.state();
        let found = found.map_err(|error| {
            state.memory.looks.note(Instant::now(), false);
            io::Error::other(error.to_string())
        })?;
        let outcome = plan.apply(&mut state.memory, &found.inventory(Instant::now()));
        let shown = Shown::of(&outcome);
        let exports_differ =
            shown.exports != state.shown.exports || shown.incomplete != state.shown.incomplete;
        // A search that could not store all numbers has put a part of its zvols into effect.
        let volumes_differ = state.leaves_zvols || shown.volumes != state.shown.volumes;
        let granted_differ = shown.granted != state.shown.granted;
        if exports_differ {
            report(&state.shown, &shown);
        }
        // Storage that does not open keeps only other changes waiting, and nobody who
        // asks for the state.
        drop(state);
        let exports = match exports_differ {
            true => gateway.replace_exports(&outcome.exports, Opening::Scan),
            false => Ok(()),
        };
        let mut zvols = None;
        if volumes_differ {
            tracing::info!(zvols = shown.volumes.len(), "zvols have changed");
            // Not as before the search: a live change may have taken numbers of LUNs since.
            let block = Arc::clone(&self.state().block);
            zvols = gateway.replace_volumes(&block, &outcome.volumes).err();
        }
        // Access that was withdrawn ends, whatever keeps exports and zvols from being served.
        if granted_differ {
            tracing::info!(disks = shown.granted.len(), "disks of the API have changed");
            gateway.shared.iscsi.replace_granted(&outcome.granted);
        }
        gateway.shared.iscsi.await_targets(&outcome.awaited);
        let mut state = self.state();
        let before = std::mem::replace(&mut state.shown, shown);
        // The next search tries again.
        state.leaves_zvols = zvols.is_some();
        if zvols.is_some() {
            state.shown.volumes = before.volumes;
        }
        if exports.is_err() {
            state.shown.exports = before.exports;
            state.shown.incomplete = before.incomplete;
        }
        let missing = plan.missing(&state.memory).collect();
        gateway.shared.absent.update(Source::Datasets, missing);
        exports?;
        Ok(Scanned { pending: outcome.pending, late: found.late, zvols })
    }
}

fn report(before: &Shown, now: &Shown) {
    for ShownExport { pseudo_path: pseudo, path, dataset, .. } in &now.exports {
        let Some(dataset) = dataset else { continue };
        let old = before
            .exports
            .iter()
            .find(|old| old.dataset.as_ref().is_some_and(|old| old.guid == dataset.guid));
        let (name, path) = (&dataset.name, path.display());
        match old {
            None => tracing::info!(export = pseudo, dataset = %name, %path, "exported"),
            Some(old) if old.pseudo_path != *pseudo => {
                tracing::info!(export = pseudo, before = old.pseudo_path, dataset = %name, "moved");
            }
            Some(old) if old.dataset.as_ref() != Some(dataset) => {
                let away = dataset.away;
                tracing::info!(export = pseudo, dataset = %name, away, "datasets were added or \
                    removed");
            }
            Some(_) => {}
        }
    }
    for ShownExport { pseudo_path: pseudo, dataset, .. } in &before.exports {
        let Some(dataset) = dataset else { continue };
        let still =
            |new: &&ShownExport| new.dataset.as_ref().is_some_and(|new| new.guid == dataset.guid);
        if !now.exports.iter().any(|new| still(&new)) {
            tracing::info!(export = pseudo, dataset = %dataset.name, "no longer exported");
        }
    }
}

/// Answer of ZFS programs without JSON, as tests' tools give it.
#[cfg(test)]
pub(super) fn without_json(program: &str) -> zgate_control::ToolError {
    let said = "invalid option 'j'".to_owned();
    zgate_control::ToolError::Failed { command: program.to_owned(), status: Some(2), said }
}

#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod tests;
