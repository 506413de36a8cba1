//! Datasets that are created, moved and destroyed while a client uses them.
//! `zfs` and `zpool` are scripts that print the test's data, a dataset is a
//! tmpfs; the tests need the right to mount. Where everything is required they fail
//! without it.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zgate_loader::ClientError;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_test_harness::{Client, Gateway, not_run};

/// File systems of the test; unmounted at its end in any case.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mine = self.0.display().to_string();
        let points = table.lines().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| point.starts_with(&mine)).collect::<Vec<_>>() {
            let _ = unmount(point, UnmountFlags::DETACH);
        }
    }
}

struct Fixture {
    // In this order: the gateway ends before its file systems are unmounted.
    gateway: Gateway,
    _mounts: Mounts,
    dir: PathBuf,
}

const SCRIPTS: [(&str, &str); 2] = [
    ("zfs", "case \"$*\" in *-j*) echo \"invalid option 'j'\" >&2; exit 2;; esac\ncat {dir}/list"),
    ("zpool", "case \"$1\" in events) exec tail -n +1 -f {dir}/events;; esac\ncat {dir}/pools"),
];

impl Fixture {
    /// Starts with one dataset, `tank/m/a`, mounted at `mnt/a`.
    fn new() -> Option<Self> {
        let mut ready = false;
        let mut place = PathBuf::new();
        let more = "[[export]]\ndataset = \"tank/m/**\"\npseudo = \"/m\"\n\
            clients = [{ match = \"127.0.0.1\", access = \"rw\", squash = \"none\" }]\n";
        let gateway = Gateway::start_prepared(60, more, |dir| {
            place = dir.to_owned();
            for name in ["bin", "keep", "mnt/a", "mnt/b"] {
                fs::create_dir_all(dir.join(name)).unwrap();
            }
            for (name, script) in SCRIPTS {
                let path = dir.join("bin").join(name);
                let script = script.replace("{dir}", &dir.display().to_string());
                fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            fs::write(dir.join("pools"), "tank\t1\n").unwrap();
            fs::write(dir.join("events"), "").unwrap();
            let made = mount("none", dir.join("keep"), "tmpfs", MountFlags::empty(), c"size=4m");
            ready = made.and_then(|()| mount_bind(dir.join("keep"), dir.join("mnt/a"))).is_ok();
            let at = if ready { dir.join("mnt/a").display().to_string() } else { "-".into() };
            list(dir, &[("tank/m/a", 7, &at)]);
        });
        let mounts = Mounts(place.clone());
        if !ready {
            not_run("a test of datasets that come and go", "it needs the right to mount");
        }
        ready.then_some(Self { gateway, _mounts: mounts, dir: place })
    }

    /// Sets the output of `zfs list`, and triggers an event.
    fn becomes(&self, datasets: &[(&str, u64, &str)]) {
        list(&self.dir, datasets);
        self.event("set", "tank/m");
    }

    /// Has ZFS report an operation.
    fn event(&self, operation: &str, dataset: &str) {
        let mut events = fs::File::options().append(true).open(self.dir.join("events")).unwrap();
        let event = format!(
            "T\tsysevent.fs.zfs.history_event\n    pool = \"tank\"\n    \
             history_internal_name = \"{operation}\"\n    history_dsname = \"{dataset}\"\n\n"
        );
        events.write_all(event.as_bytes()).unwrap();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join("mnt").join(name)
    }

    fn lookup(&self, client: &mut Client, name: &str) -> Result<Fh, ClientError> {
        let ops = Ops::new().putrootfh().lookup(b"m").lookup(name.as_bytes()).getfh();
        let mut results = client.call(ops)?;
        results.skip(OpNum::Putrootfh)?;
        results.skip(OpNum::Lookup)?;
        results.skip(OpNum::Lookup)?;
        results.next(OpNum::Getfh)
    }
}

/// Writes the output of `zfs list -Hp`; `-` for a dataset that is not mounted.
fn list(dir: &Path, datasets: &[(&str, u64, &str)]) {
    let line = |(name, guid, at): &(&str, u64, &str)| {
        let mounted = if *at == "-" { "no" } else { "yes" };
        format!(
            "{name}\tfilesystem\t{guid}\t1\t1\t1\t1\t131072\t-\t-\tstandard\tlatency\toff\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\t{mounted}\t{at}\n"
        )
    };
    // As a whole: a search may read it at any time.
    let new = dir.join("list.new");
    fs::write(&new, datasets.iter().map(line).collect::<String>()).unwrap();
    fs::rename(new, dir.join("list")).unwrap();
}

fn eventually<T, E: std::fmt::Debug>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "{what}: {error:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn refused(result: Result<Fh, ClientError>, status: Status) -> Result<(), Option<Status>> {
    match result.map_err(|error| error.status()) {
        Err(Some(found)) if found == status => Ok(()),
        other => Err(other.err().flatten()),
    }
}

#[test]
fn an_idle_dataset_moves_with_open_files_and_goes() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = Client::ready(&fixture.gateway, "mover");
    let root = fixture.lookup(&mut client, "a").unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, 2, b"before").unwrap();
    assert!(unmount(fixture.at("a"), UnmountFlags::empty()).is_err(), "in use a moment ago");
    // Open on the client, idle on the server.
    eventually("idle", || unmount(fixture.at("a"), UnmountFlags::empty()));
    let delayed = client.read(&file.fh, file.stateid, 0, 100).unwrap_err();
    assert_eq!(delayed.status(), Some(Status::Delay), "nothing is mounted there");
    mount_bind(fixture.dir.join("keep"), fixture.at("b")).unwrap();
    let new_place = fixture.at("b").display().to_string();
    fixture.becomes(&[("tank/m/b", 7, &new_place)]);
    let (_, data) = eventually("moved", || client.read(&file.fh, file.stateid, 0, 100));
    assert_eq!(data, b"before");
    client.write(&file, 6, 2, b" after").unwrap();
    assert_eq!(fs::read(fixture.at("b").join("file")).unwrap(), b"before after");
    assert_eq!(fixture.lookup(&mut client, "b").unwrap(), root, "the same handle elsewhere");
    refused(fixture.lookup(&mut client, "a"), Status::Noent).unwrap();
    // Destroyed.
    fixture.becomes(&[]);
    eventually("gone", || {
        let answer = client.read(&file.fh, file.stateid, 0, 1);
        if answer.as_ref().err().and_then(ClientError::status) == Some(Status::Stale) {
            return Ok(());
        }
        Err(answer)
    });
    eventually("let go of", || unmount(fixture.at("b"), UnmountFlags::empty()));
}

#[test]
fn a_dataset_in_use_is_let_go_of_on_request() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = Client::ready(&fixture.gateway, "user");
    let root = fixture.lookup(&mut client, "a").unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, 2, b"kept").unwrap();
    let released = fixture.gateway.command(&["release", "tank", "--json"]);
    assert!(released.status.success(), "{released:?}");
    assert!(String::from_utf8_lossy(&released.stdout).contains("tank/m/a"));
    unmount(fixture.at("a"), UnmountFlags::empty()).unwrap();
    let delayed = client.read(&file.fh, file.stateid, 0, 100).unwrap_err();
    assert_eq!(delayed.status(), Some(Status::Delay));
    // Its pool is exported, maybe while a search that has seen it imported lists its datasets.
    fs::write(fixture.dir.join("pools"), "").unwrap();
    fixture.becomes(&[]);
    std::thread::sleep(Duration::from_secs(1));
    refused(client.lookup(&root, "file"), Status::Delay).unwrap();
    mount_bind(fixture.dir.join("keep"), fixture.at("a")).unwrap();
    // It is imported again, and listed no earlier than its datasets.
    let place = fixture.at("a").display().to_string();
    fixture.becomes(&[("tank/m/a", 7, &place)]);
    fs::write(fixture.dir.join("pools"), "tank\t2\n").unwrap();
    let (_, data) = eventually("back", || client.read(&file.fh, file.stateid, 0, 100));
    assert_eq!(data, b"kept");
    client.close(&file).unwrap();
}

#[test]
fn what_is_not_committed_is_written_again_after_a_rollback_by_hand() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = Client::ready(&fixture.gateway, "writer");
    let root = fixture.lookup(&mut client, "a").unwrap();
    let file = client.create(&root, "file").unwrap();
    let written = client.write(&file, 0, 0, b"data").unwrap();
    assert_eq!(client.commit(&file.fh).unwrap(), written.verifier);
    for temporary in ["tank/m/a/%rollback", "tank/m/a/%recv"] {
        let before = client.commit(&file.fh).unwrap();
        fixture.event("clone swap", temporary);
        eventually("told", || match client.commit(&file.fh).unwrap() {
            now if now == before => Err("the verifier is the same"),
            _ => Ok(()),
        });
    }
}
