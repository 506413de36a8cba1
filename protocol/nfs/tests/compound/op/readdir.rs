//! READDIR (RFC 8881 §18.23).

use zgate_test_harness::nfs::{Ops, Fixture, every_minor, mode, sessions};
use std::collections::HashSet;
use zgate_memory::FileOp;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Readdir;
use zgate_nfs_wire::v4::op::readdir::{Res, self};
use zgate_nfs_wire::v4::{Bitmap, Stateid, Status};
use zgate_store::StoreError;

fn list(fh: &Fh, cookie: u64, verifier: [u8; 8], maxcount: u32, want: &[u32]) -> Ops {
    let want = Bitmap::of(want);
    let args = readdir::Args { cookie, verifier, dircount: 1000, maxcount, want };
    Ops::new().at(fh).op::<Readdir>(&args)
}

/// Reads the whole directory in pages of `maxcount` bytes.
fn walk(s: &Fixture, fh: &Fh, maxcount: u32, want: &[u32]) -> Vec<Vec<u8>> {
    let (mut cookie, mut verifier, mut names) = (0, [0; 8], Vec::new());
    let mut cookies = HashSet::new();
    loop {
        let reply = s.c.run(list(fh, cookie, verifier, maxcount, want)).ok();
        let body = reply.answers.last().unwrap().body.len();
        assert!(body <= maxcount as usize, "{body} bytes for {maxcount}");
        let res: Res = reply.get::<Readdir>();
        for entry in &res.entries {
            assert!(entry.cookie > 2 && cookies.insert(entry.cookie), "cookies are unique");
            names.push(entry.name.0.clone());
            cookie = entry.cookie;
        }
        verifier = res.verifier;
        if res.eof {
            return names;
        }
        assert!(!res.entries.is_empty(), "a page without entries that is not the last");
    }
}

#[test]
fn every_page_size_lists_the_same_names_once() {
    every_minor(|s| {
        for at in 0..40 {
            s.c.mkdir(&s.dir, &format!("{at:0>width$}", width = 1 + at * 5));
        }
        let all = walk(s, &s.dir, 1 << 20, &[1, 20]);
        assert_eq!(all.len(), 41);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 41);
        assert!(!all.iter().any(|name| name == b"." || name == b".."), "RFC 8881 §18.23.3");
        for maxcount in [300, 512, 1000, 4096, 8192] {
            assert_eq!(walk(s, &s.dir, maxcount, &[1, 20]), all, "{maxcount}");
            assert_eq!(walk(s, &s.dir, maxcount, &[]), all, "{maxcount} without attributes");
        }
    });
}

#[test]
fn a_page_without_an_entry_tells_whose_limit_it_is() {
    sessions(|s| {
        s.c.mkdir(&s.c.mkdir(&s.root, "long"), &"n".repeat(200));
        let dir = s.c.lookup(&s.root, "long").unwrap();
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| fore.max_response_bytes = 300);
        // A larger maxcount would not help (RFC 8881 §2.10.6.4).
        small.check("of the session", list(&dir, 0, [0; 8], 4096, &[]), Status::RepTooBig);
        small.check("of the client", list(&dir, 0, [0; 8], 100, &[]), Status::Toosmall);
    });
}

#[test]
fn entries_removed_between_pages_do_not_hide_others() {
    every_minor(|s| {
        for at in 0..20 {
            s.c.mkdir(&s.dir, &format!("entry{at:02}"));
        }
        let first = s.c.run(list(&s.dir, 0, [0; 8], 400, &[])).ok().get::<Readdir>();
        for entry in &first.entries {
            let text = String::from_utf8(entry.name.0.clone()).unwrap();
            s.c.remove(&s.dir, &text).unwrap();
        }
        let cookie = first.entries.last().unwrap().cookie;
        let rest = s.c.run(list(&s.dir, cookie, first.verifier, 1 << 16, &[])).ok().get::<Readdir>();
        assert!(rest.eof);
        assert_eq!(first.entries.len() + rest.entries.len(), 21);
    });
}

/// Linux asks for these two when it lists without attributes.
#[test]
fn names_come_with_their_numbers_and_without_an_error() {
    every_minor(|s| {
        let entries = |want: &[u32]| {
            let reply = s.c.run(list(&s.root, 0, [0; 8], 1 << 16, want)).ok();
            reply.get::<Readdir>().entries
        };
        for entry in entries(&[11, 55]) {
            let text = String::from_utf8(entry.name.0).unwrap();
            let number = s.c.number(&s.c.lookup(&s.root, &text).unwrap(), 55);
            assert_eq!(entry.attrs.mask, Bitmap::of(&[11, 55]), "{text}");
            assert_eq!(entry.attrs.values.0[..4], [0; 4], "{text}");
            assert_eq!(entry.attrs.values.0[4..], number.to_be_bytes(), "{text}");
        }
        for (want, bytes) in [(&[11][..], 4), (&[55][..], 8), (&[][..], 0)] {
            let listed = entries(want);
            assert!(listed.len() >= 4);
            for entry in listed {
                assert_eq!(entry.attrs.mask, Bitmap::of(want));
                assert_eq!(entry.attrs.values.0.len(), bytes);
            }
        }
    });
}

/// RFC 8881 §2.10.6.4.
#[test]
fn an_entry_that_the_session_has_no_room_for() {
    sessions(|s| {
        let dir = s.c.mkdir(&s.dir, "of one");
        s.c.mkdir(&dir, &"n".repeat(250));
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| {
            fore.max_response_bytes = 380;
            fore.max_cached_bytes = 300;
        });
        let all = || list(&dir, 0, [0; 8], 4096, &[]);
        small.check("too big", all(), Status::RepTooBig);
        small.check("too few asked for", list(&dir, 0, [0; 8], 60, &[]), Status::Toosmall);
        small.cache.set(true);
        small.check("too big to keep", all(), Status::RepTooBigToCache);
    });
}

#[test]
fn a_cookie_that_nobody_has_given_is_refused() {
    every_minor(|s| {
        let faults = s.harness.store.faults();
        faults.fail_every(FileOp::ReadDir, StoreError::Invalid);
        let at = |cookie| list(&s.dir, cookie, [0; 8], 4096, &[]);
        s.c.check("RFC 8881 §15.2", at(u64::MAX), Status::BadCookie);
        s.c.check("it is not the cookie", at(0), Status::Inval);
        faults.heal(FileOp::ReadDir);
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        let args = readdir::Args {
            cookie: 0,
            verifier: [0; 8],
            dircount: 0,
            maxcount: 4096,
            want: Bitmap::default(),
        };
        s.c.check("no handle", Ops::new().op::<Readdir>(&args), Status::Nofilehandle);
        for fh in [&s.file, &s.link, &s.fifo] {
            s.c.check("no directory", list(fh, 0, [0; 8], 4096, &[]), Status::Notdir);
        }
        s.c.check("stale", list(&s.stale, 0, [0; 8], 4096, &[]), Status::Stale);
        for cookie in [1, 2] {
            s.c.check("a reserved cookie", list(&s.dir, cookie, [0; 8], 4096, &[]), Status::BadCookie);
        }
        for maxcount in [0, 15, 20, 40] {
            s.c.check("too small", list(&s.dir, 0, [0; 8], maxcount, &[1]), Status::Toosmall);
        }
        s.c.check("can only be set", list(&s.dir, 0, [0; 8], 4096, &[48]), Status::Inval);
        s.c.check("a strange verifier", list(&s.dir, 3, [1; 8], 4096, &[]), Status::NotSame);
        s.c.check("far cookie", list(&s.dir, u64::MAX >> 1, [0; 8], 4096, &[]), Status::Ok);
        s.c.setattr(&s.dir, Stateid::ANONYMOUS, mode(0o311)).unwrap();
        s.c.as_user(1000, || {
            s.c.check("no right", list(&s.dir, 0, [0; 8], 4096, &[]), Status::Access);
        });
    });
}
