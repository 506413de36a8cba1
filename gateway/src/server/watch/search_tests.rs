//! Tests of searches that requests and the thread that follows datasets share.

use super::*;
use crate::exports::limits::{FIRST_LOOK, LONGEST_LOOK};
use crate::nfs::tcp::tests::gateway_with;
use crate::server::mount_table::MountTable;
use crate::server::volumes::serving::{LiveServing, Serving};
use crate::server::volumes::tests::PARENT;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use zgate_control::events::Event;
use zgate_control::volume::model::Model;
use zgate_control::{DatasetName, Discovery, Tool, ToolError};
use zgate_io::mountinfo::MountLine;

/// Time limit for expected events.
const LIMIT: Duration = Duration::from_secs(30);
/// Number of requests, and of events, at the same time.
const BURST: usize = 8;

/// A pool with a parent of volumes, which each search lists once.
struct Counted {
    model: Model,
    /// Number of searches so far.
    searches: AtomicUsize,
    /// Told when the next search begins, and what it waits for.
    hangs: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// Set while searches fail.
    is_broken: AtomicBool,
}

impl Tool for Counted {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        if arguments.contains(&"-r") && !arguments.contains(&"-j") {
            self.searches.fetch_add(1, Ordering::SeqCst);
            let hangs = self.hangs.lock().unwrap().take();
            if let Some((begins, ends)) = hangs {
                begins.send(()).unwrap();
                // The other end is dropped to end it.
                let _ = ends.recv();
            }
            if self.is_broken.load(Ordering::SeqCst) {
                let (command, said) = (program.to_owned(), "I/O error".to_owned());
                return Err(ToolError::Failed { command, status: Some(1), said });
            }
        }
        self.model.run(program, arguments)
    }
}

/// A gateway that follows the pool.
struct Rig {
    tool: Arc<Counted>,
    follow: Arc<Reconciler>,
    serving: LiveServing,
    runner: Runner,
    changes: Changes,
    happened: Receiver<Heard>,
    /// The mount table as the next look reads it.
    mounts: Arc<Mutex<String>>,
}

impl Rig {
    fn new(dir: &Path) -> Self {
        let gateway = Arc::new(gateway_with(dir, ""));
        let tool = Arc::new(Counted {
            model: Model::with(&["tank", PARENT]),
            searches: AtomicUsize::new(0),
            hangs: Mutex::default(),
            is_broken: AtomicBool::new(false),
        });
        let discovery = || Discovery::new(Arc::<Counted>::clone(&tool));
        let follow = Reconciler::with(discovery(), discovery());
        let text = format!("[[volumes.parent]]\ndataset = \"{PARENT}\"\npseudo = \"/k8s\"\n");
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        follow.adopt(follow.prepare(&config).unwrap());
        tool.searches.store(0, Ordering::SeqCst);
        let serving = LiveServing::new(&gateway, &follow);
        let (changes, happened) = Changes::new(&follow);
        let mounts = Arc::default();
        let announcer = Arc::new(Announcer::reading(&gateway, table_of(&mounts)));
        let runner = Runner::new(&follow, &gateway, announcer, changes.clone());
        Self { tool, follow, serving, runner, changes, happened, mounts }
    }

    fn searches(&self) -> usize {
        self.tool.searches.load(Ordering::SeqCst)
    }

    fn apply(&self) -> io::Result<()> {
        self.serving.apply(&volume())
    }

    /// Lets the next search wait until what this returns is dropped; the other part is told when
    /// it begins.
    fn hold_next_search(&self) -> (Sender<()>, Receiver<()>) {
        let ((begins, begun), (end, ends)) = (channel(), channel());
        *self.tool.hangs.lock().unwrap() = Some((begins, ends));
        (end, begun)
    }

    fn mount(&self, name: &str) {
        let line = format!("1 1 0:9 / /mnt/{name} rw - zfs {PARENT}/{name} rw\n");
        self.mounts.lock().unwrap().push_str(&line);
    }

    /// Lets the thread that follows datasets hear of what was reported; returns the search that
    /// it wants.
    fn hear(&mut self) -> Option<Wanted> {
        let Self { runner, happened, .. } = self;
        happened.try_iter().fold(None, |wanted, heard| runner.hear(&heard, wanted))
    }

    /// Lets it search as it does when the search is due.
    fn search(&mut self, wanted: Option<Wanted>) {
        self.runner.scan(wanted.unwrap().since);
    }
}

fn volume() -> DatasetName {
    format!("{PARENT}/a").parse().unwrap()
}

/// A mount table of these lines.
fn table_of(lines: &Arc<Mutex<String>>) -> Arc<MountTable> {
    let lines = Arc::clone(lines);
    let reader = move || -> io::Result<Vec<MountLine>> {
        Ok(zgate_io::mountinfo::parse(lines.lock().unwrap().as_bytes()))
    };
    Arc::new(MountTable::with(Arc::new(reader), LIMIT))
}

/// The event of an operation on the volume.
fn event(operation: &str, detail: &str) -> Change {
    Change::Event(Event {
        class: "sysevent.fs.zfs.history_event".to_owned(),
        operation: Some(operation.to_owned()),
        dataset: Some(volume().to_string()),
        detail: Some(detail.to_owned()),
        ..Event::default()
    })
}

fn granted() -> Change {
    event("set", "zgate:access:n1=rw")
}

/// Begins many requests, and reports as many events; returns when all wait for a search.
fn begin_burst<'scope>(
    scope: &'scope Scope<'scope, '_>,
    (serving, follow, changes): (&'scope LiveServing, &Reconciler, &Changes),
) -> Vec<ScopedJoinHandle<'scope, io::Result<()>>> {
    let before = follow.searches.last_asked();
    let requests = (0..BURST).map(|_| scope.spawn(move || serving.apply(&volume()))).collect();
    for _ in 0..BURST {
        changes.send(granted());
    }
    let deadline = Instant::now() + LIMIT;
    while follow.searches.last_asked() < before + 2 * BURST as u64 {
        assert!(Instant::now() < deadline, "not all have asked");
        std::thread::yield_now();
    }
    requests
}

#[test]
fn a_burst_of_requests_and_events_is_served_by_two_searches() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    let (end, begun) = rig.hold_next_search();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| rig.serving.apply(&volume()));
        begun.recv_timeout(LIMIT).unwrap();
        let all = (&rig.serving, &*rig.follow, &rig.changes);
        let requests = begin_burst(scope, all);
        drop(end);
        first.join().unwrap().unwrap();
        requests.into_iter().for_each(|request| request.join().unwrap().unwrap());
    });
    let wanted = rig.hear();
    rig.search(wanted);
    assert_eq!(rig.searches(), 2);
}

#[test]
fn an_event_during_a_search_is_searched_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    let (end, begun) = rig.hold_next_search();
    std::thread::scope(|scope| {
        let request = scope.spawn(|| rig.serving.apply(&volume()));
        begun.recv_timeout(LIMIT).unwrap();
        rig.changes.send(granted());
        drop(end);
        request.join().unwrap().unwrap();
    });
    let wanted = rig.hear();
    rig.search(wanted);
    assert_eq!(rig.searches(), 2);
}

#[test]
fn a_search_covers_what_was_reported_before_but_not_what_takes_effect_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    rig.changes.send(granted());
    rig.apply().unwrap();
    let wanted = rig.hear();
    rig.search(wanted);
    assert_eq!(rig.searches(), 1);
    // The pool is there for a moment after the event; what was lost with a restart is unknown.
    let class = "sysevent.fs.zfs.pool_export".to_owned();
    let export = Change::Event(Event { class, ..Event::default() });
    for (number, change) in [export, Change::Restarted].into_iter().enumerate() {
        rig.changes.send(granted());
        rig.changes.send(change);
        rig.changes.send(granted());
        rig.apply().unwrap();
        let wanted = rig.hear();
        rig.search(wanted);
        assert_eq!(rig.searches(), 3 + 2 * number);
    }
}

/// Where a search takes a second, the thread that follows datasets would do nothing else.
#[test]
fn a_change_waits_for_others_as_long_as_a_search_takes() {
    let milliseconds = Duration::from_millis;
    for (search, quiet, patience) in
        [(0, 200, 2_000), (30, 200, 2_000), (600, 600, 2_400), (30_000, 1_000, 8_000)]
    {
        let pauses = Pauses::beside(milliseconds(search));
        let (quiet, patience) = (milliseconds(quiet), milliseconds(patience));
        assert_eq!(pauses, Pauses { quiet, patience });
        let first = Instant::now();
        for (last, due) in [(Duration::ZERO, quiet), (patience, patience)] {
            let wanted = Wanted { first, last: first + last, since: None };
            assert_eq!(wanted.due(pauses), first + due);
        }
    }
}

/// A cluster that grows many volumes at once would have one search after the other.
#[test]
fn a_size_is_shown_and_begins_no_search() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    rig.runner.is_display_old = false;
    rig.changes.send(event("set", "refquota=1073741824"));
    assert!(rig.hear().is_none() && rig.runner.is_display_old);
    rig.changes.send(event("set", "readonly=1"));
    assert!(rig.hear().is_some());
}

/// Each list is of all datasets of all pools.
#[test]
fn datasets_are_listed_for_display_with_pauses_while_they_go_on_changing() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    rig.runner.refresh_display(Instant::now());
    assert!(!rig.runner.is_display_old);
    let listed = rig.runner.displayed.unwrap();
    rig.runner.is_display_old = true;
    rig.runner.refresh_display(listed);
    assert!(rig.runner.is_display_old, "they were listed a moment ago");
    rig.runner.refresh_display(listed + DISPLAY_PAUSE);
    assert!(!rig.runner.is_display_old && rig.runner.displayed.unwrap() >= listed);
}

#[test]
fn what_is_left_is_searched_for_with_pauses_that_an_event_shortens() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    let begin = Instant::now();
    assert!(!rig.follow.is_due(begin + LONGEST_LOOK), "nothing is left");
    rig.follow.state().leaves_zvols = true;
    // One that fails is a look, too.
    rig.tool.is_broken.store(true, Ordering::SeqCst);
    rig.apply().unwrap_err();
    let is_due = |rig: &Rig, after: Duration| rig.follow.is_due(begin + after);
    assert!(!is_due(&rig, FIRST_LOOK));
    let later = Duration::from_secs(3600);
    rig.follow.state().memory.looks.note(begin + later, false);
    assert!(!is_due(&rig, later + LONGEST_LOOK / 2) && is_due(&rig, later + LONGEST_LOOK));
    rig.changes.send(granted());
    assert!(rig.hear().is_some() && is_due(&rig, later + FIRST_LOOK));
    rig.tool.is_broken.store(false, Ordering::SeqCst);
    rig.apply().unwrap();
    assert!(!rig.follow.state().leaves_zvols);
}

#[test]
fn a_mount_that_came_after_a_search_is_searched_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    let renamed = event("rename", "-> tank/k8s/b");
    for (earlier, mounted) in [(Change::Mounts, "a"), (renamed, "b")] {
        let before = rig.searches();
        rig.changes.send(earlier);
        rig.apply().unwrap();
        rig.mount(mounted);
        rig.changes.send(Change::Mounts);
        let wanted = rig.hear();
        rig.search(wanted);
        assert_eq!(rig.searches(), before + 2, "{mounted}");
    }
    // A search that began after the look has seen what the look has.
    let before = rig.searches();
    rig.mount("c");
    rig.changes.send(Change::Mounts);
    let wanted = rig.hear();
    rig.apply().unwrap();
    rig.search(wanted);
    assert_eq!(rig.searches(), before + 1);
}

#[test]
fn a_search_that_fails_answers_all_who_wait_and_is_repeated_for_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(dir.path());
    rig.tool.is_broken.store(true, Ordering::SeqCst);
    let (end, begun) = rig.hold_next_search();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| rig.serving.apply(&volume()));
        begun.recv_timeout(LIMIT).unwrap();
        let all = (&rig.serving, &*rig.follow, &rig.changes);
        let requests = begin_burst(scope, all);
        drop(end);
        for request in requests.into_iter().chain([first]) {
            let said = request.join().unwrap().unwrap_err().to_string();
            assert!(said.contains("I/O error"), "{said}");
        }
    });
    assert_eq!(rig.searches(), 2);
    let wanted = rig.hear();
    rig.search(wanted);
    assert_eq!(rig.searches(), 3);
    assert!(rig.runner.trouble.is_some());
}
