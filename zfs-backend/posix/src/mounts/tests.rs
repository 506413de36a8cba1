//! Tests of the table of mounts.

use super::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zgate_io::EngineChoice;

/// A mount, removed when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A table of the mounts at and below a directory.
fn table_at(path: &Path, asleep: &Asleep) -> MountTable {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
    let (devices, asleep) = (MountedDevices::default(), asleep.clone());
    let (root_fsid, waits_for) = (None, None);
    let policy =
        MountPolicy { engine, kernel_handles: true, root_fsid, devices, asleep, waits_for };
    MountTable::new(path.as_os_str().as_bytes().to_vec(), &root, policy).unwrap()
}

/// Needs the right to mount. Without it nothing is tested, a failure where everything is required.
#[test]
fn one_lookup_takes_up_all_mounts_that_wait_for_the_same_storage() {
    let dir = tempfile::tempdir().unwrap();
    let outer = dir.path().canonicalize().unwrap();
    let root_path = outer.join("export");
    let at = |name: &str| root_path.join(name);
    // Outside the root, so that what is mounted there does not show in it, too.
    let source = outer.join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::create_dir_all(at("other")).unwrap();
    if mount("none", at("other"), "tmpfs", MountFlags::empty(), c"size=1m").is_err() {
        let wish = std::env::var("ZGATE_TEST_LOOP").unwrap_or_default();
        assert!(wish != "require", "nothing can be mounted");
        return;
    }
    let mut mounts = vec![Mounted(at("other"))];
    for name in ["a", "b", "other/c"] {
        std::fs::create_dir_all(at(name)).unwrap();
        mount_bind(&source, at(name)).unwrap();
        // Those that are mounted last are unmounted first.
        mounts.insert(0, Mounted(at(name)));
    }
    let table = table_at(&root_path, &Asleep::default());
    let lines = read_lines().unwrap();
    let ids = ["a", "b", "other", "other/c"].map(|name| {
        let point = at(name);
        let line = lines.iter().rfind(|line| line.point == point.as_os_str().as_bytes());
        line.unwrap().id
    });
    let known = || ids.map(|id| table.known(id).is_some());
    assert_eq!(known(), [true; 4]);
    table.release();
    assert_eq!(table.by_id(ids[0]).unwrap().id, ids[0]);
    assert_eq!(known(), [true, true, false, false], "what lies in other storage may hang");
    table.by_id(ids[2]).unwrap();
    assert_eq!(known(), [true; 4], "both wait for these two");
}

#[test]
fn who_asks_for_a_snapshot_that_another_thread_mounts_again_is_told_to_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (path, asleep) = (dir.path().canonicalize().unwrap(), Asleep::default());
    let table = table_at(&path, &asleep);
    let key = !table.root().key;
    assert_eq!(table.by_key(key).err(), Some(StoreError::Stale));
    asleep.remember(key, path.into_os_string().into_encoded_bytes());
    let waking = asleep.begin(key).unwrap();
    assert_eq!(table.by_key(key).err(), Some(StoreError::OutOfResources));
    drop(waking);
    // What is there now is another file system.
    assert_eq!(table.by_key(key).err(), Some(StoreError::Stale));
}

#[test]
fn a_snapshot_that_leaves_the_table_is_asleep_also_for_a_reopened_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (path, asleep) = (dir.path().canonicalize().unwrap(), Asleep::default());
    let table = table_at(&path, &asleep);
    let lines = read_lines().unwrap();
    let line = lines.iter().find(|line| line.id == table.root().id).unwrap();
    let ways: [fn(&MountTable); 2] =
        [MountTable::release, |table| table.let_go_of(table.snapshots().remove(0))];
    for (key, leave) in (7..).zip(ways) {
        let mut mount = take_up(line, &table.root_path, true, &table.policy).unwrap();
        let asked_for = AtomicBool::new(true);
        mount.snapshot = Some(SnapshotMount { point: b"/snapshot".to_vec(), asked_for });
        mount.key = key;
        table.children.write().unwrap().push(Arc::new(mount));
        leave(&table);
        let again = table_at(&path, &asleep);
        let found = again.policy.asleep.begin(key).unwrap();
        assert_eq!(found.unwrap().point(), b"/snapshot");
    }
}

#[test]
fn snapshots_are_told_by_their_source() {
    let parsed = mountinfo::parse(
        b"50 28 0:49 / /tank/.zfs/snapshot/daily ro,relatime shared:27 - zfs tank@daily ro\n\
          51 28 0:50 / /tank/a@b rw,relatime shared:28 - zfs tank/a rw\n",
    );
    let found: Vec<_> = parsed.iter().map(snapshot_mount).collect();
    assert_eq!(found.len(), 2);
    let point = found[0].as_ref().map(|one| one.point.as_slice());
    assert_eq!(point, Some(&b"/tank/.zfs/snapshot/daily"[..]));
    assert!(found[1].is_none());
}

#[test]
fn only_a_dataset_that_says_so_is_case_insensitive() {
    let lines = mountinfo::parse(
        b"50 28 0:49 / /tank/a rw - zfs tank/a rw,xattr,posixacl,casesensitive\n\
          51 28 0:50 / /tank/b rw - zfs tank/b rw,xattr,posixacl,caseinsensitive\n\
          52 28 0:51 / /tank/c rw - zfs tank/c rw,xattr,noacl,casemixed\n\
          53 28 0:52 / /tank/d rw - zfs tank/d rw,xattr,noacl\n\
          54 28 254:0 / /caseinsensitive rw - ext4 /dev/vda rw\n",
    );
    let found: Vec<_> = lines.iter().map(is_case_insensitive).collect();
    assert_eq!(found, [false, true, false, false, false]);
}

#[test]
fn a_dataset_is_taken_for_itself_alone() {
    let lines = mountinfo::parse(
        b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
          50 27 0:49 / /tank rw shared:27 - zfs tank rw\n\
          51 50 0:50 / /tank/a rw shared:28 - zfs tank/a\\040b rw\n\
          52 51 0:51 / /tank/a rw shared:29 - zfs tank/copy rw\n\
          53 50 0:50 /sub /srv rw shared:30 - zfs tank/a\\040b rw\n",
    );
    let found = |dataset, at: usize| other_than(dataset, &lines[at], &lines);
    assert_eq!(found("tank/a b", 2), None);
    assert_eq!(found("tank/a b", 3).as_deref(), Some("tank/copy (zfs)"), "mounted over it");
    assert_eq!(found("tank/a b", 1).as_deref(), Some("tank (zfs)"), "not mounted");
    assert_eq!(found("tank/a b", 0).as_deref(), Some("/dev/vda (ext4)"), "not mounted");
    assert_eq!(found("tank/a b", 4).as_deref(), Some("/sub of tank/a b (zfs)"));
    assert_eq!(found("tank/a", 2).as_deref(), Some("tank/a b (zfs)"), "before a rename");
    assert_eq!(found("model/a", 0), None, "a stand-in's dataset");
    assert!(found("model/a", 1).is_some());
}

#[test]
fn below_means_whole_components() {
    assert!(is_below(b"/a/b", b"/a"));
    assert!(is_below(b"/a", b"/a"));
    assert!(is_below(b"/a", b"/"));
    assert!(!is_below(b"/ab", b"/a"));
    assert!(!is_below(b"(unreachable)/a", b"/"), "not an absolute path");
}
