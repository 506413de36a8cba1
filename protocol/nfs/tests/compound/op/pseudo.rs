//! The pseudo file system: crossing into exports and back, without a way around
//! access rules (RFC 8881 §7.3, §7.4).

use zgate_nfs::namespace::{ExportId, FileHandle};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Getfh;
use zgate_nfs_wire::v4::op::Lookupp;
use zgate_nfs_wire::v4::op::Readdir;
use zgate_nfs_wire::v4::op::readdir;
use zgate_nfs_wire::v4::{Bitmap, Status};
use zgate_test_harness::nfs::{Harness, Ops, every_minor};

fn names(
    c: &zgate_test_harness::nfs::Client,
    ops: Ops,
    want: &[u32],
) -> Result<Vec<String>, Status> {
    let args = readdir::Args {
        cookie: 0,
        verifier: [0; 8],
        dircount: 4096,
        maxcount: 32_768,
        want: Bitmap::of(want),
    };
    let res = c.run(ops.op::<Readdir>(&args)).result()?.get::<Readdir>();
    assert!(res.eof);
    Ok(res.entries.iter().map(|e| String::from_utf8(e.name.0.clone()).unwrap()).collect())
}

#[test]
fn exports_hang_where_their_paths_say() {
    every_minor(|s| {
        let expected: &[&str] = match s.c.minor {
            0 => &["dir", "export", "old", "weak"],
            _ => &["dir", "export", "weak"],
        };
        // RDATTR_ERROR: an export of another flavour is listed nevertheless.
        assert_eq!(names(&s.c, Ops::new().root(), &[11, 20]).unwrap(), expected);
        assert_eq!(names(&s.c, Ops::new().root().lookup("dir"), &[20]).unwrap(), ["ro", "second"]);
        let fh = s.c.run(Ops::new().root().lookup("dir").lookup("second").getfh()).ok();
        assert_eq!(fh.get::<Getfh>(), s.harness.root_of("/dir/second"));
    });
}

#[test]
fn the_way_up_leads_into_the_pseudo_file_system() {
    every_minor(|s| {
        let up = |ops: Ops| ops.op::<Lookupp>(&());
        let root = s.c.run(Ops::new().root().getfh()).ok().get::<Getfh>();
        let dir = s.c.run(Ops::new().root().lookup("dir").getfh()).ok().get::<Getfh>();
        let second = s.harness.root_of("/dir/second");
        let parent = s.c.run(up(Ops::new().at(&second)).getfh()).ok().get::<Getfh>();
        assert_eq!(parent, dir);
        let top = s.c.run(up(up(Ops::new().at(&second))).getfh()).ok().get::<Getfh>();
        assert_eq!(top, root);
        let beyond = up(up(up(Ops::new().at(&second))));
        s.c.check("above the root", beyond, Status::Noent);
        s.c.check("dots are no way", Ops::new().at(&second).lookup(".."), Status::Badname);
    });
}

#[test]
fn crossing_is_seen_in_fsid_and_fileid() {
    every_minor(|s| {
        let pseudo = s.c.run(Ops::new().root().getfh()).ok().get::<Getfh>();
        let fsid = |fh: &Fh| s.c.run(Ops::new().at(fh).getattr(&[8])).ok().raw;
        assert_ne!(fsid(&pseudo), fsid(&s.root));
        assert_ne!(fsid(&s.root), fsid(&s.harness.root_of("/dir/second")));
        assert_ne!(s.c.number(&s.root, 55), s.c.number(&s.root, 20), "mounted_on_fileid");
        assert_eq!(s.c.number(&s.file, 55), s.c.number(&s.file, 20));
    });
}

#[test]
fn closed_exports_do_not_exist() {
    every_minor(|s| {
        s.c.check("for others", Ops::new().root().lookup("closed"), Status::Noent);
        s.c.check("wrong flavour", Ops::new().root().lookup("weak"), Status::Wrongsec);
        let expected = if s.c.minor == 0 { Status::Ok } else { Status::Noent };
        s.c.check("wrong version", Ops::new().root().lookup("old"), expected);
    });
}

#[test]
fn a_handle_does_not_reach_into_another_export() {
    every_minor(|s| {
        let Some(FileHandle::Node(_, node)) = FileHandle::parse(&s.file.0) else {
            panic!("a node")
        };
        for path in ["/dir/second", "/closed", "/weak"] {
            let moved = FileHandle::Node(ExportId::from_pseudo_path(path), node).to_fh();
            let status = s.c.run(Ops::new().at(&moved).getattr(&[1])).status;
            assert!(
                matches!(status, Status::Stale | Status::Badhandle | Status::Wrongsec),
                "{path}: {status:?}"
            );
        }
    });
}

#[test]
fn an_export_taken_away_is_stale_until_it_is_back() {
    every_minor(|s| {
        let harness: &Harness = &s.harness;
        let opened = s.open();
        harness.reload(|path| path != "/export");
        s.c.check("gone", Ops::new().at(&s.file).getattr(&[1]), Status::Stale);
        s.c.check("gone by name", Ops::new().root().lookup("export"), Status::Noent);
        harness.reload(|_| true);
        // The open file was closed: its file system may have been unmounted.
        s.c.check("back", Ops::new().at(&s.file).getattr(&[1]), Status::Ok);
        assert_eq!(s.c.write(&s.file, opened.stateid, 0, b"x"), Err(Status::BadStateid));
    });
}

#[test]
fn nothing_is_final_before_all_exports_are_known() {
    every_minor(|s| {
        let harness: &Harness = &s.harness;
        let dir = s.c.run(Ops::new().root().lookup("dir").getfh()).ok().get::<Getfh>();
        harness.exports_unknown(true);
        s.c.check("a file", Ops::new().at(&s.file).getattr(&[1]), Status::Delay);
        s.c.check("a pseudo directory", Ops::new().at(&dir).getattr(&[1]), Status::Delay);
        s.c.check("the root", Ops::new().root().getattr(&[1]), Status::Ok);
        harness.exports_unknown(false);
        s.c.check("a file", Ops::new().at(&s.file).getattr(&[1]), Status::Ok);
        s.c.check("a pseudo directory", Ops::new().at(&dir).getattr(&[1]), Status::Ok);
    });
}

/// RFC 8881 §5.8.1.4: it may serve something else, however often it was reloaded before.
#[test]
fn the_pseudo_file_system_has_changed_after_a_restart() {
    every_minor(|s| {
        let harness: &Harness = &s.harness;
        let root = s.c.run(Ops::new().root().getfh()).ok().get::<Getfh>();
        // The change attribute, and time_modify.
        let version = || [3, 53].map(|bit| s.c.number(&root, bit));
        let first = version();
        harness.reload(|_| true);
        let before = version();
        assert!(before[0] > first[0] && before[1] > first[1], "{first:?}, {before:?}");
        harness.restart();
        s.c.reconnect();
        s.c.introduce(false);
        let after = version();
        assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, {after:?}");
    });
}

#[test]
fn listings_of_the_pseudo_file_system_notice_a_reload() {
    every_minor(|s| {
        let list = |cookie, verifier, maxcount| {
            let want = Bitmap::of(&[11]);
            let args = readdir::Args { cookie, verifier, dircount: 0, maxcount, want };
            Ops::new().root().op::<Readdir>(&args)
        };
        let first = s.c.run(list(0, [0; 8], 100)).ok().get::<Readdir>();
        assert!(!first.eof && !first.entries.is_empty());
        let cookie = first.entries.last().unwrap().cookie;
        s.c.check("goes on", list(cookie, first.verifier, 4096), Status::Ok);
        s.c.check("another verifier", list(cookie, [9; 8], 4096), Status::NotSame);
        s.harness.reload(|path| path != "/weak");
        s.c.check("reloaded", list(cookie, first.verifier, 4096), Status::NotSame);
    });
}
