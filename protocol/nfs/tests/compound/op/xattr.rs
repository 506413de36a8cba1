//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 §8.4).

use zgate_test_harness::nfs::{Ops, Fixture, each, name};
use zgate_nfs_wire::v4::op::Getxattr;
use zgate_nfs_wire::v4::op::Listxattrs;
use zgate_nfs_wire::v4::op::listxattrs;
use zgate_nfs_wire::v4::op::Removexattr;
use zgate_nfs_wire::v4::op::Setxattr;
use zgate_nfs_wire::v4::op::setxattr::{Option4, self};
use zgate_nfs_wire::v4::Status;
use zgate_xdr::Opaque;

fn set(ops: Ops, option: Option4, text: &[u8], value: &[u8]) -> Ops {
    let value = Some(Opaque(value.to_vec()));
    ops.op::<Setxattr>(&setxattr::Args { option, name: name(text), value })
}

fn get(ops: Ops, text: &[u8]) -> Ops {
    ops.op::<Getxattr>(&name(text))
}

fn list(ops: Ops, cookie: u64, maxcount: u32) -> Ops {
    ops.op::<Listxattrs>(&listxattrs::Args { cookie, maxcount })
}

fn drop_it(ops: Ops, text: &[u8]) -> Ops {
    ops.op::<Removexattr>(&name(text))
}

fn at(s: &Fixture) -> Ops {
    Ops::new().at(&s.file)
}

#[test]
fn set_get_list_remove() {
    each([2], |s| {
        for fh in [&s.file, &s.dir] {
            let at = || Ops::new().at(fh);
            let before = s.c.number(fh, 3);
            let change = s.c.run(set(at(), Option4::Create, b"a", b"one")).ok().get::<Setxattr>();
            assert_eq!((change.before, change.after), (before, s.c.number(fh, 3)));
            assert!(change.after > before);
            assert_eq!(s.c.run(get(at(), b"a")).ok().get::<Getxattr>().0, b"one");
            s.c.check("exists", set(at(), Option4::Create, b"a", b"x"), Status::Exist);
            s.c.check("is not", set(at(), Option4::Replace, b"b", b"x"), Status::Noxattr);
            s.c.check("replaced", set(at(), Option4::Replace, b"a", b"two"), Status::Ok);
            s.c.check("either", set(at(), Option4::Either, b"b", b""), Status::Ok);
            let all = s.c.run(list(at(), 0, 4096)).ok().get::<Listxattrs>();
            let names: Vec<_> = all.names.iter().map(|n| n.0.clone()).collect();
            assert_eq!((names, all.eof), (vec![b"a".to_vec(), b"b".to_vec()], true));
            s.c.check("removed", drop_it(at(), b"a"), Status::Ok);
            s.c.check("gone", get(at(), b"a"), Status::Noxattr);
            s.c.check("gone", drop_it(at(), b"a"), Status::Noxattr);
        }
    });
}

#[test]
fn listing_in_pieces() {
    each([2], |s| {
        let names: Vec<String> = (0..20).map(|n| format!("attribute{n:02}")).collect();
        for text in &names {
            s.c.run(set(at(s), Option4::Create, text.as_bytes(), b"v")).ok();
        }
        for maxcount in [32, 33, 60, 200, 10_000] {
            let (mut cookie, mut seen) = (0, Vec::new());
            loop {
                let reply = s.c.run(list(at(s), cookie, maxcount)).ok();
                assert!(reply.answers.last().unwrap().body.len() <= maxcount as usize);
                let page = reply.get::<Listxattrs>();
                seen.extend(page.names.iter().map(|n| String::from_utf8(n.0.clone()).unwrap()));
                cookie = page.cookie;
                if page.eof {
                    break;
                }
            }
            assert_eq!(seen, names, "{maxcount}");
        }
        s.c.check("no room", list(at(s), 0, 15), Status::Toosmall);
        s.c.check("no room for one", list(at(s), 0, 20), Status::Toosmall);
        s.c.check("a cookie beyond", list(at(s), 21, 4096), Status::BadCookie);
        s.c.check("a far cookie", list(at(s), u64::MAX, 4096), Status::BadCookie);
    });
}

/// RFC 8881 §2.10.6.4.
#[test]
fn a_value_that_the_session_has_no_room_for() {
    each([2], |s| {
        s.c.run(set(at(s), Option4::Create, b"a", &[7; 500])).ok();
        s.c.run(set(at(s), Option4::Create, b"b", &[7; 800])).ok();
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| {
            fore.max_response_bytes = 700;
            fore.max_cached_bytes = 400;
        });
        assert_eq!(small.run(get(at(s), b"a")).ok().get::<Getxattr>().0, [7_u8; 500]);
        small.check("too big", get(at(s), b"b"), Status::RepTooBig);
        small.cache.set(true);
        small.check("too big to keep", get(at(s), b"a"), Status::RepTooBigToCache);
    });
}

/// RFC 8881 §2.10.6.4.
#[test]
fn a_name_that_the_session_has_no_room_for() {
    each([2], |s| {
        s.c.run(set(at(s), Option4::Create, &[b'n'; 240], b"")).ok();
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| {
            fore.max_response_bytes = 380;
            fore.max_cached_bytes = 300;
        });
        small.check("too big", list(at(s), 0, 4096), Status::RepTooBig);
        small.check("too few asked for", list(at(s), 0, 60), Status::Toosmall);
        small.cache.set(true);
        small.check("too big to keep", list(at(s), 0, 4096), Status::RepTooBigToCache);
    });
}

#[test]
fn a_list_without_a_name_tells_whose_limit_it_is() {
    each([2], |s| {
        s.c.run(set(at(s), Option4::Create, &[b'a'; 200], b"v")).ok();
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| fore.max_response_bytes = 300);
        small.check("of the session", list(at(s), 0, 4096), Status::RepTooBig);
        small.check("of the client", list(at(s), 0, 100), Status::Toosmall);
    });
}

#[test]
fn errors() {
    each([2], |s| {
        for op in [get, drop_it] {
            s.c.check("no handle", op(Ops::new(), b"a"), Status::Nofilehandle);
            s.c.check("stale", op(Ops::new().at(&s.stale), b"a"), Status::Stale);
            s.c.check("no name", op(at(s), b""), Status::Inval);
            s.c.check("a long name", op(at(s), &[b'a'; 251]), Status::Nametoolong);
            s.c.check("no text", op(at(s), b"\xff"), Status::Inval);
        }
        let put = |ops, text: &[u8]| set(ops, Option4::Either, text, b"v");
        s.c.check("no handle", put(Ops::new(), b"a"), Status::Nofilehandle);
        s.c.check("stale", put(Ops::new().at(&s.stale), b"a"), Status::Stale);
        s.c.check("a long name", put(at(s), &[b'a'; 251]), Status::Nametoolong);
        s.c.check("no handle", list(Ops::new(), 0, 99), Status::Nofilehandle);
        s.c.check("stale", list(Ops::new().at(&s.stale), 0, 99), Status::Stale);
        s.c.check("pseudo", put(Ops::new().root(), b"a"), Status::Rofs);
        s.c.check("pseudo", get(Ops::new().root(), b"a"), Status::Noxattr);
        let ro = s.c.lookup(&s.harness.root_of("/dir/ro"), "file").unwrap();
        s.c.check("read-only", put(Ops::new().at(&ro), b"a"), Status::Rofs);
        s.c.check("read-only", drop_it(Ops::new().at(&ro), b"a"), Status::Rofs);
        let large = set(at(s), Option4::Either, b"a", &[0; (64 << 10) + 1]);
        s.c.check("a large value", large, Status::Xattr2big);
        s.c.as_user(1000, || {
            s.c.check("not mine", put(at(s), b"a"), Status::Access);
        });
    });
}
