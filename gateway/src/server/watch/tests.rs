//! Tests of the watcher and of its searches.

use super::*;
use crate::exports::granted::GrantedDisk;
use crate::exports::limits::LONGEST_LOOK;
use crate::exports::open::Opening;
use crate::exports::plan::Volume;
use crate::iscsi::luns::catalog::Catalog;
use crate::iscsi::service::Rules;
use crate::iscsi::tests::gate::hold_open;
use crate::nfs::tcp::tests::gateway_with;
use crate::observe::audit::Asker;
use crate::observe::log_of_test::logged;
use crate::server::limits::MAX_WAITING_REPLACEMENTS;
use crate::server::mount_table::MountTable;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use tracing::Level;
use zgate_config::Config;
use zgate_control::{Discovery, Tool, ToolError};
use zgate_io::mountinfo::MountLine;

/// A pool with one zvol.
struct OneZvol;

impl Tool for OneZvol {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        if arguments.contains(&"-j") {
            return Err(without_json(program));
        }
        if !arguments.contains(&"-r") {
            return Ok("tank\n".to_owned());
        }
        Ok("tank/vm/a\tvolume\t7\t40\t5000\t1000000\t4096\t-\t16384\t1048576\talways\t\
            latency\toff\t-\t-\t-\t0\t1048576\toff\t-\toff\t-\t-\t-\t-\n"
            .to_owned())
    }
}

/// Time limit for expected events.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two pools: `tank`, and `slow`, whose listings are late.
struct TwoPools {
    /// Where the datasets of `tank` are mounted, by their last names.
    dir: PathBuf,
    names: Mutex<Vec<&'static str>>,
    /// Told when a listing of `slow` begins that waits, and what it waits for.
    waits: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Tool for TwoPools {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        let command = program.to_owned();
        if arguments.contains(&"-j") {
            return Err(without_json(program));
        }
        if !arguments.contains(&"-r") {
            return Ok("slow\ntank\n".to_owned());
        }
        if arguments.last().is_some_and(|asked| asked.starts_with("slow")) {
            let waits = self.waits.lock().unwrap().take();
            if let Some((begins, ends)) = waits {
                begins.send(()).unwrap();
                // The other end is dropped when the test has ended.
                let _ = ends.recv();
            }
            return Err(ToolError::TimedOut { command, seconds: 2 });
        }
        let line = |(guid, name): (usize, &&str)| {
            let path = self.dir.join(name);
            format!(
                "tank/m/{name}\tfilesystem\t{}\t1\t1\t1\t1\t131072\t-\t-\tstandard\tlatency\toff\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\tyes\t{}\n",
                guid + 1,
                path.display()
            )
        };
        Ok(self.names.lock().unwrap().iter().enumerate().map(line).collect())
    }
}

/// A search for the datasets of a pool with one zvol.
fn with_one_zvol() -> Arc<Reconciler> {
    let tool: Arc<dyn Tool> = Arc::new(OneZvol);
    Reconciler::with(Discovery::new(Arc::clone(&tool)), Discovery::new(tool))
}

/// Serves the targets of a configuration, as a start does.
fn serve_targets(follow: &Reconciler, gateway: &Gateway, config: &Config) {
    let prepared = follow.prepare(config).unwrap();
    let iscsi = &gateway.shared.iscsi;
    let targets = Catalog::default();
    let catalog =
        targets.next(&prepared.block, &iscsi.home, &iscsi.volumes, Opening::Reload).unwrap();
    iscsi.replace_rules(Rules { catalog, discovery: None });
    follow.adopt(prepared);
}

/// A disk of the API behind this target.
fn granted_disk(target: &str) -> GrantedDisk {
    GrantedDisk {
        guid: 8,
        name: "tank/k8s/b".parse().unwrap(),
        device: "/nosuch/zvol".into(),
        target: target.to_owned(),
        grants: Vec::new(),
        unit: toml::from_str("dataset = \"tank/k8s/b\"\n").unwrap(),
    }
}

fn has_target(gateway: &Gateway, name: &str) -> bool {
    let rules = gateway.shared.iscsi.rules();
    rules.catalog.targets.keys().any(|target| target.as_str() == name)
}

#[test]
fn a_zvol_that_does_not_open_keeps_the_state_from_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), "");
    let disk = dir.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let follow = with_one_zvol();
    let text = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.test:a\"\n\
        [[target.volumes]]\ndataset = \"tank/vm/*\"\ndirect = \"never\"\n";
    let config = zgate_config::parse(text, std::path::Path::new("x")).unwrap();
    let iscsi = &gateway.shared.iscsi;
    serve_targets(&follow, &gateway, &config);
    // It was found under another name, which its device still has.
    let template = config.targets[0].volumes[0].clone();
    let (name, device) = ("tank/vm/before".parse().unwrap(), disk.clone());
    let known = Volume { target: 0, guid: 7, name, device, template };
    follow.state().memory.remember(known);
    let (opens, begun) = hold_open(&disk);
    std::thread::scope(|scope| {
        let scan = scope.spawn(|| follow.scan(&gateway).map(|_| ()));
        begun.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(follow.is_state_free());
        drop(opens);
        scan.join().unwrap().unwrap();
    });
    assert_eq!(iscsi.rules().catalog.units().count(), 1);
}

#[test]
fn numbers_that_cannot_be_read_keep_no_access_from_being_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), "");
    let follow = with_one_zvol();
    let (target, disk) = ("iqn.2026-11.test:a", "iqn.2026-11.test:k8s:8");
    let text = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{target}\"\n\
         [[target.volumes]]\ndataset = \"tank/vm/*\"\ndirect = \"never\"\n"
    );
    let config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
    let iscsi = &gateway.shared.iscsi;
    serve_targets(&follow, &gateway, &config);
    let granted = granted_disk(disk);
    iscsi.replace_granted(std::slice::from_ref(&granted));
    // What was in effect before: the zvol is new, and access to the disk is withdrawn.
    follow.state().shown.volumes.clear();
    follow.state().shown.granted = vec![(granted, true)];
    let has = |name| has_target(&gateway, name);
    assert!(has(target) && has(disk));
    let numbers = iscsi.home.state_files.dir.luns_path(target);
    std::fs::create_dir(&numbers).unwrap();
    for _ in 0..2 {
        let said = follow.scan(&gateway).unwrap_err().to_string();
        assert!(said.contains(numbers.to_str().unwrap()), "{said}");
        assert!(has(target) && !has(disk));
        assert!(follow.is_due(Instant::now() + LONGEST_LOOK), "the zvol is still to be served");
    }
    // Zvols may come back that went with the search of which only a part is in effect.
    let found = follow.prepare(&config).unwrap().outcome;
    follow.state().shown.volumes = Shown::of(&found).volumes;
    follow.scan(&gateway).unwrap_err();
    // The API does not ask for zvols of patterns.
    follow.scan_but_zvols(&gateway).unwrap().require(&"tank".parse().unwrap()).unwrap();
    std::fs::remove_dir(&numbers).unwrap();
    follow.scan(&gateway).unwrap();
    assert!(!follow.is_due(Instant::now() + LONGEST_LOOK));
}

#[test]
fn exports_that_cannot_be_replaced_keep_no_access_from_being_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), "");
    let follow = with_one_zvol();
    let (path, disk) = (dir.path().display(), "iqn.2026-11.test:k8s:8");
    let text = format!(
        "[[export]]\npath = \"{path}\"\npseudo = \"/a\"\n[[export]]\npath = \"{path}\"\n\
         pseudo = \"/b\"\n[[export]]\ndataset = \"tank/m/*\"\npseudo = \"/m\"\n"
    );
    let mut config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
    // A check would refuse it.
    config.exports[1].pseudo = "/a/b".to_owned();
    follow.adopt(follow.prepare(&config).unwrap());
    let granted = granted_disk(disk);
    let iscsi = &gateway.shared.iscsi;
    iscsi.replace_granted(std::slice::from_ref(&granted));
    // What was in effect before: the exports are new, and access to the disk is withdrawn.
    follow.state().shown.exports.clear();
    follow.state().shown.granted = vec![(granted, true)];
    let has_disk = || has_target(&gateway, disk);
    assert!(has_disk());
    for _ in 0..2 {
        let said = follow.scan_but_zvols(&gateway).unwrap_err().to_string();
        assert!(said.contains("its pseudo path") && !has_disk(), "{said}");
    }
}

/// A gateway that serves one dataset of `tank`; nobody knows those of `slow`.
fn serve_two_pools(dir: &Path) -> (Arc<TwoPools>, Arc<Reconciler>, Arc<Gateway>) {
    let gateway = Arc::new(gateway_with(dir, ""));
    for name in ["a", "b"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let names = Mutex::new(vec!["a"]);
    let tool = Arc::new(TwoPools { dir: dir.into(), names, waits: Mutex::default() });
    let discovery = || Discovery::new(Arc::<TwoPools>::clone(&tool));
    let follow = Reconciler::with(discovery(), discovery());
    let config = "[[export]]\ndataset = \"slow/m/*\"\npseudo = \"/s\"\n\
        [[export]]\ndataset = \"tank/m/*\"\npseudo = \"/t\"\n";
    let config = zgate_config::parse(config, Path::new("x")).unwrap();
    follow
        .replace(&config, |prepared| {
            gateway.replace_exports(&prepared.outcome.exports, Opening::Reload)
        })
        .unwrap();
    assert_eq!(gateway.followed().len(), 1);
    (tool, follow, gateway)
}

/// The loss counters of all exports: clients write again when they have changed.
fn losses(gateway: &Gateway) -> Vec<u64> {
    let namespace = gateway.shared.nfs.v4.namespace();
    namespace.exports().map(|export| export.store.losses()).collect()
}

/// Starts the thread that follows these changes.
fn start(
    follow: &Arc<Reconciler>,
    gateway: &Arc<Gateway>,
    announcer: Announcer,
    (changes, happened): (&Changes, Receiver<Heard>),
) -> (DatasetWatcher, Arc<Announcer>) {
    let (announcer, changes) = (Arc::new(announcer), changes.clone());
    let known = Arc::clone(&announcer);
    let watcher = DatasetWatcher::follow_changes(follow, gateway, announcer, changes, happened);
    (watcher.unwrap(), known)
}

/// A mount table that is not read in time, what is told when a read begins, and what each read
/// waits for.
fn hanging_table() -> (Arc<MountTable>, Receiver<()>, Sender<()>) {
    let ((begins, begun), (end, ends)) = (channel(), channel::<()>());
    let ends = Mutex::new(ends);
    let reader = move || -> io::Result<Vec<MountLine>> {
        // The test may have ended.
        let _ = begins.send(());
        let _ = ends.lock().unwrap().recv();
        Ok(Vec::new())
    };
    (Arc::new(MountTable::with(Arc::new(reader), Duration::ZERO)), begun, end)
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::yield_now();
    }
}

/// Lets the pause between questions to late pools pass.
fn end_pause(follow: &Reconciler) {
    let now = Instant::now();
    for last in follow.answers().values_mut() {
        last.patient_at = last.patient_at.map(|_| now);
    }
}

#[test]
fn a_late_pool_that_is_asked_delays_neither_another_one_nor_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (tool, follow, gateway) = serve_two_pools(dir.path());
    let ((begins, has_begun), (end, ends)) = (channel(), channel());
    *tool.waits.lock().unwrap() = Some((begins, ends));
    end_pause(&follow);
    let (changes, happened) = Changes::new(&follow);
    let announcer = Announcer::new(&gateway);
    let (watcher, _) = start(&follow, &gateway, announcer, (&changes, happened));
    has_begun.recv_timeout(PATIENCE).unwrap();
    tool.names.lock().unwrap().push("b");
    changes.send(Change::Restarted);
    let is_in_effect = || gateway.followed().len() == 2;
    eventually("the change of the other pool is in effect", is_in_effect);
    drop(watcher);
    assert!(end.send(()).is_ok(), "the late pool has been waiting all the time");
}

#[test]
fn a_search_that_hangs_does_not_delay_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (tool, follow, gateway) = serve_two_pools(dir.path());
    let ((begins, has_begun), (end, ends)) = (channel(), channel());
    *tool.waits.lock().unwrap() = Some((begins, ends));
    let (changes, happened) = Changes::new(&follow);
    let announcer = Announcer::new(&gateway);
    let (watcher, _) = start(&follow, &gateway, announcer, (&changes, happened));
    changes.send(Change::Restarted);
    has_begun.recv_timeout(PATIENCE).unwrap();
    let (told, dropped) = channel();
    std::thread::spawn(move || {
        drop(watcher);
        told.send(()).unwrap();
    });
    assert!(dropped.recv_timeout(PATIENCE).is_ok(), "the stop waits for the search");
    assert!(end.send(()).is_ok(), "the search has been waiting all the time");
}

#[test]
fn clients_are_told_of_a_rollback_by_hand_while_exports_are_being_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (_, follow, gateway) = serve_two_pools(dir.path());
    let (changes, happened) = Changes::new(&follow);
    let listener = listener(changes, Arc::new(Announcer::new(&gateway)));
    let of = |name: &str| Change::Replaced(Replacement::Of(name.parse().unwrap()));
    // The storage of another export may hang then.
    let _one = gateway.replacing();
    let before = losses(&gateway);
    for other in [of("tank/m/b"), of("tank/m"), of("tank/m/a/below"), Change::Restarted] {
        listener(other);
    }
    assert_eq!(losses(&gateway), before);
    listener(of("tank/m/a"));
    let rolled_back = losses(&gateway);
    assert!(before.len() == 1 && rolled_back[0] > before[0], "{before:?} {rolled_back:?}");
    listener(Change::Replaced(Replacement::Any));
    assert!(losses(&gateway)[0] > rolled_back[0]);
    assert_eq!(happened.try_iter().count(), 6, "the thread that follows datasets hears of all");
}

#[test]
fn events_are_followed_where_anything_that_is_served_lies_in_zfs() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), "");
    let path = dir.path().canonicalize().unwrap();
    let mounted = |kind: &str, point: &str| {
        let line = format!("1 1 0:9 / {}{point} rw - {kind} tank/a rw\n", path.display());
        gateway.serves_zfs(&zgate_io::mountinfo::parse(line.as_bytes()))
    };
    // Around the directory of the export, and below it.
    assert!(mounted("zfs", "") && mounted("zfs", "/export/below"));
    assert!(!mounted("zfs", "/state") && !mounted("ext4", ""));
}

#[test]
fn clients_are_told_of_a_rollback_that_comes_before_a_new_name_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, gateway) = serve_two_pools(dir.path());
    let announcer = Announcer::new(&gateway);
    let before = losses(&gateway);
    announcer.tell(&Replacement::Of("tank/m/new".parse().unwrap()));
    assert_eq!(losses(&gateway), before, "nobody knows it by this name");
    let mut told = announcer.take_told().unwrap();
    // A search finds that it was renamed.
    gateway.followed()[0].1.set_name(&"tank/m/new".parse().unwrap());
    announcer.tell_others(&mut told);
    let after = losses(&gateway);
    assert!(after[0] > before[0], "{before:?} {after:?}");
    announcer.tell_others(&mut told);
    assert_eq!(losses(&gateway), after, "told once");
    assert!(announcer.take_told().is_none());
}

#[test]
fn clients_are_told_of_a_rollback_by_request_as_by_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let (_, follow, gateway) = serve_two_pools(dir.path());
    let (changes, happened) = Changes::new(&follow);
    let requests = ReplacementRequests::new(&Arc::new(Announcer::new(&gateway)), changes);
    let ask = |name: &str| logged(Level::INFO, || requests.tell(&Asker::Unknown, name));
    // The storage of another export may hang then.
    let _one = gateway.replacing();
    let before = losses(&gateway);
    for other in ["tank/m/b", "tank/m", "tank/m/a/below", "elsewhere"] {
        let (answer, log) = ask(other);
        let answer = answer.unwrap();
        assert_eq!((answer.exports, answer.luns), (0, 0), "{other}");
        assert!(log.is_empty(), "what is not served leaves no line: {log}");
    }
    assert_eq!(losses(&gateway), before);
    // Twice: an event tells of it as well.
    let mut last = before;
    for _ in 0..2 {
        let (answer, log) = ask("tank/m/a");
        let answer = answer.unwrap();
        assert_eq!(serde_json::to_value(&answer).unwrap()["dataset"], "tank/m/a");
        assert_eq!((answer.exports, answer.luns), (1, 0));
        assert!(log.contains("replaced tank/m/a") && log.contains("exports: 1"), "{log}");
        let now = losses(&gateway);
        assert!(now[0] > last[0], "{last:?} {now:?}");
        last = now;
    }
    for wrong in ["", "tank/m/a@monday", "tank/m/a/%rollback", "-r", "tank//a"] {
        let (answer, log) = ask(wrong);
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
        assert!(log.contains("change refused"), "{log}");
    }
    assert_eq!(losses(&gateway), last);
    let heard: Vec<_> = happened.try_iter().collect();
    assert_eq!(heard.len(), 6, "the thread that follows datasets hears of all: {heard:?}");
}

#[test]
fn rollbacks_that_nobody_takes_fill_no_memory_and_are_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (_, follow, gateway) = serve_two_pools(dir.path());
    let announcer = Arc::new(Announcer::new(&gateway));
    let (changes, happened) = Changes::new(&follow);
    let requests = ReplacementRequests::new(&announcer, changes);
    for number in 0..MAX_WAITING_REPLACEMENTS + 7 {
        requests.tell(&Asker::Unknown, &format!("tank/m/new{number}")).unwrap();
    }
    // Of those that found no place, each dataset may be one.
    assert_eq!(happened.try_iter().count(), MAX_WAITING_REPLACEMENTS + 1);
    let mut waiting: Vec<_> = std::iter::from_fn(|| announcer.take_told()).collect();
    assert_eq!(waiting.len(), MAX_WAITING_REPLACEMENTS + 1);
    let before = losses(&gateway);
    announcer.tell_others(&mut waiting[0]);
    assert_eq!(losses(&gateway), before, "another dataset");
    announcer.tell_others(waiting.last_mut().unwrap());
    assert!(losses(&gateway)[0] > before[0]);
}

#[test]
fn a_mount_table_that_is_not_read_in_time_keeps_nobody_from_following() {
    let dir = tempfile::tempdir().unwrap();
    let (tool, follow, gateway) = serve_two_pools(dir.path());
    let (table, begun, end) = hanging_table();
    let announcer = Announcer::reading(&gateway, table);
    let (changes, happened) = Changes::new(&follow);
    let before = losses(&gateway);
    let (watcher, announcer) = start(&follow, &gateway, announcer, (&changes, happened));
    let tell = listener(changes.clone(), announcer);
    begun.recv_timeout(PATIENCE).unwrap();
    tell(Change::Replaced(Replacement::Of("other/b".parse().unwrap())));
    eventually("its export may show it", || losses(&gateway)[0] > before[0]);
    tool.names.lock().unwrap().push("b");
    changes.send(Change::Restarted);
    eventually("the new dataset is served", || gateway.followed().len() == 2);
    assert!(begun.try_recv().is_err(), "one read waits");
    drop(watcher);
    drop(end);
}

#[test]
fn clients_of_all_exports_are_told_while_nobody_knows_the_mounts() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Arc::new(gateway_with(dir.path(), ""));
    let (table, _begun, _end) = hanging_table();
    let announcer = Announcer::reading(&gateway, Arc::clone(&table));
    let rolled_back = Replacement::Of("tank/a".parse().unwrap());
    let before = losses(&gateway);
    announcer.tell(&rolled_back);
    assert!(before.len() == 1 && losses(&gateway) == before, "no mount that is known shows it");
    assert!(announcer.look_at_mounts() && announcer.has_missed_mounts());
    let mut told = announcer.take_told().unwrap();
    announcer.tell_others(&mut told);
    let after = losses(&gateway);
    assert!(after[0] > before[0], "{before:?} {after:?}");
    announcer.tell_others(&mut told);
    assert_eq!(losses(&gateway), after, "told once");
    announcer.tell(&rolled_back);
    let again = losses(&gateway);
    assert!(again[0] > after[0], "of the next one at once");
    // By `zgate resume`, and by the API.
    gateway.content_replaced_by(&["tank/a".parse().unwrap()], &table);
    assert!(losses(&gateway)[0] > again[0]);
}

#[test]
fn mounts_that_were_missed_are_looked_at_again_once_they_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Arc::new(gateway_with(dir.path(), ""));
    let point = dir.path().canonicalize().unwrap();
    let line = format!("1 1 0:9 / {} rw - zfs tank/a rw\n", point.display());
    let (end, ends) = channel::<()>();
    let ends = Mutex::new(ends);
    let reader = move || -> io::Result<Vec<MountLine>> {
        let _ = ends.lock().unwrap().recv();
        Ok(zgate_io::mountinfo::parse(line.as_bytes()))
    };
    // A read that is late for another reason is repeated.
    let table = Arc::new(MountTable::with(Arc::new(reader), Duration::from_millis(100)));
    let follow = with_one_zvol();
    let (changes, happened) = Changes::new(&follow);
    let announcer = Announcer::reading(&gateway, table);
    let (watcher, announcer) = start(&follow, &gateway, announcer, (&changes, happened));
    eventually("the first look is not in time", || announcer.has_missed_mounts());
    assert!(announcer.mounts().is_empty());
    drop(end);
    eventually("the mounts are known", || !announcer.mounts().is_empty());
    drop(watcher);
}
