//! Waiting for changes and putting them into effect, on a thread of its own.

use super::{Follow, Shown};
use crate::lifecycle::run::Gateway;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zgate_control::watch::{Change, Listener, Watch};

/// How often stores are asked whether they are idle.
const LOOK: Duration = Duration::from_secs(1);
/// Changes come in groups: what follows within this time is part of one.
const QUIET: Duration = Duration::from_millis(200);
/// The longest time a change waits for others.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a zvol without a device is looked for, and how many times.
const PENDING: (Duration, u32) = (Duration::from_millis(500), 20);

/// Follows until it is dropped.
pub(crate) struct Follower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins to follow.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(follow: &Arc<Follow>, gateway: &Arc<Gateway>) -> io::Result<Self> {
        let (changes, happened) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let runner = Runner {
            follow: Arc::clone(follow),
            gateway: Arc::clone(gateway),
            stop: Arc::clone(&stop),
            mounts: zfs_mounts(),
            trouble: None,
            pending: 0,
            watch: None,
            changes,
        };
        let builder = std::thread::Builder::new().name("zgate-follow".to_owned());
        let thread = builder.spawn(move || runner.run(&happened))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn listener(changes: Sender<Change>) -> Listener {
    let changes = std::sync::Mutex::new(changes);
    Arc::new(move |change| {
        let changes = changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Nobody follows any more.
        let _ = changes.send(change);
    })
}

struct Runner {
    follow: Arc<Follow>,
    gateway: Arc<Gateway>,
    stop: Arc<AtomicBool>,
    /// Mounts of datasets when they were looked at last.
    mounts: Vec<String>,
    /// What went wrong last, so that it is said once.
    trouble: Option<String>,
    /// Looks at zvols without devices so far.
    pending: u32,
    /// Begun when there is something to follow.
    watch: Option<Watch>,
    /// Keeps the channel open while nobody watches.
    changes: Sender<Change>,
}

impl Runner {
    fn run(mut self, happened: &Receiver<Change>) {
        self.follow.refresh(&self.gateway.shared.facts);
        self.begin_watch();
        let mut next_look = Instant::now() + LOOK;
        let mut next_scan = Instant::now() + self.rescan();
        let mut wanted: Option<Wanted> = None;
        while !self.stop.load(Ordering::Acquire) {
            let now = Instant::now();
            let due = wanted.as_ref().map_or(next_look, |wanted| wanted.due().min(next_look));
            match happened.recv_timeout(due.saturating_duration_since(now)) {
                Ok(change) if self.matters(&change) => {
                    tracing::debug!(?change, "datasets may have changed");
                    wanted = Some(Wanted::again(wanted));
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= next_look {
                next_look = now + LOOK;
                self.begin_watch();
                for (_, store) in self.gateway.followed() {
                    store.look();
                }
                if self.follow.state().memory.is_due(now) || now >= next_scan {
                    wanted.get_or_insert_with(|| Wanted::again(None));
                }
            }
            if wanted.as_ref().is_some_and(|wanted| wanted.due() <= now) {
                wanted = None;
                next_scan = Instant::now() + self.rescan();
                self.scan();
                if self.pending > 0 {
                    wanted = Some(Wanted {
                        last: Instant::now() + PENDING.0,
                        first: Instant::now() + PENDING.0,
                    });
                }
            }
        }
    }

    fn begin_watch(&mut self) {
        if self.watch.is_some() || self.follow.state().plan.bases().is_empty() {
            return;
        }
        match Watch::start(&listener(self.changes.clone())) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => tracing::warn!(%error, "changes of datasets are seen late"),
        }
    }

    fn rescan(&self) -> Duration {
        self.follow.state().plan.rescan
    }

    /// Whether there may be something else to serve after a change.
    fn matters(&mut self, change: &Change) -> bool {
        match change {
            Change::Event(event) => event.concerns_datasets(),
            Change::Restarted => true,
            Change::Mounts => {
                let now = zfs_mounts();
                let other = now != self.mounts;
                self.mounts = now;
                other
            }
        }
    }

    fn scan(&mut self) {
        let outcome = self.follow.scan(&self.gateway);
        self.pending = match &outcome {
            Ok(true) if self.pending < PENDING.1 => self.pending + 1,
            _ => 0,
        };
        let trouble = outcome.err().map(|error| error.to_string());
        if let Some(error) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            tracing::warn!(error, "datasets cannot be looked for; what is served stays");
        }
        self.trouble = trouble;
        self.follow.refresh(&self.gateway.shared.facts);
    }
}

/// A look that is wanted.
struct Wanted {
    first: Instant,
    last: Instant,
}

impl Wanted {
    fn again(before: Option<Self>) -> Self {
        let now = Instant::now();
        Self { first: before.map_or(now, |before| before.first), last: now }
    }

    fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + PATIENCE)
    }
}

/// Which datasets are mounted where; snapshots left out.
fn zfs_mounts() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dataset = |line: &str| {
        let (mount, source) = line.split_once(" - zfs ")?;
        let source = source.split(' ').next()?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let (id, point) = (fields.first()?, fields.get(4)?);
        (!source.contains('@')).then(|| format!("{id} {source} {point}"))
    };
    table.lines().filter_map(dataset).collect()
}

impl Follow {
    /// Looks for datasets and puts what changed into effect. True when a zvol
    /// has no device yet.
    ///
    /// # Errors
    /// Why nothing was looked for or changed.
    pub(super) fn scan(&self, gateway: &Gateway) -> io::Result<bool> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = Arc::clone(&self.state().plan);
        if plan.bases().is_empty() {
            return Ok(false);
        }
        let found = self.find(&plan).map_err(|error| io::Error::other(error.to_string()))?;
        let mut state = self.state();
        let outcome = plan.apply(&mut state.memory, &found.sight(Instant::now()));
        let shown = Shown::of(&outcome);
        if shown.exports != state.shown.exports {
            report(&state.shown, &shown);
            gateway.replace_exports(&outcome.exports)?;
        }
        if shown.volumes != state.shown.volumes {
            tracing::info!(zvols = shown.volumes.len(), "zvols have changed");
            gateway.replace_volumes(&plan.block, &outcome.volumes)?;
        }
        state.shown = shown;
        Ok(outcome.pending)
    }
}

fn report(before: &Shown, now: &Shown) {
    for (pseudo, path, dataset, _) in &now.exports {
        let Some(dataset) = dataset else { continue };
        let old = before
            .exports
            .iter()
            .find(|old| old.2.as_ref().is_some_and(|old| old.guid == dataset.guid));
        let (name, path) = (&dataset.name, path.display());
        match old {
            None => tracing::info!(export = pseudo, dataset = %name, %path, "exported"),
            Some(old) if old.0 != *pseudo => {
                tracing::info!(export = pseudo, before = old.0, dataset = %name, "moved");
            }
            Some(old) if old.2.as_ref() != Some(dataset) => {
                let away = dataset.away;
                tracing::info!(export = pseudo, dataset = %name, away, "came or went");
            }
            Some(_) => {}
        }
    }
    for (pseudo, _, dataset, _) in &before.exports {
        let Some(dataset) = dataset else { continue };
        let still = |new: &&(String, _, Option<super::plan::DatasetRef>, bool)| {
            new.2.as_ref().is_some_and(|new| new.guid == dataset.guid)
        };
        if !now.exports.iter().any(|new| still(&new)) {
            tracing::info!(export = pseudo, dataset = %dataset.name, "not exported any more");
        }
    }
}
