//! Users and groups: ids of clients that stand for others of the server, groups
//! that the server knows, and names with a domain (RFC 8881 §5.9).

use std::sync::Arc;
use std::task::Poll;
use zgate_memory::{FileOp, When};
use zgate_nfs::namespace::{ClientRule, IdMap, IdRange, IdView, Squash};
use zgate_nfs::runtime::{BoxedFuture, Names, PrincipalId, PrincipalKind, UserGroups};
use zgate_nfs::v4::attrs::acl::Ace;
use zgate_nfs_wire::v4::op::readdir;
use zgate_nfs_wire::v4::op::{Getattr, Readdir};
use zgate_nfs_wire::v4::{Bitmap, Fattr, Fh, Stateid, Status};
use zgate_test_harness::nfs::{FixedNames, Fixture, Ops, attrs, every_minor};
use zgate_xdr::{Decoder, Encoder};

const OWNER: u32 = 36;
const OWNER_GROUP: u32 = 37;
const ACL: u32 = 12;

fn range(client: u32, server: u32, count: u32) -> IdRange {
    IdRange { client, server, more: count - 1 }
}

/// Users 1000 to 1999 are 101000 to 101999, groups 100 to 199 are 5100 to 5199.
fn mapped(squash: Squash) -> ClientRule {
    let ids = IdView {
        users: IdMap::new(&[range(1000, 101_000, 1000)]),
        groups: IdMap::new(&[range(100, 5100, 100)]),
        anon_uid: 65_534,
        anon_gid: 65_534,
    };
    ClientRule { ids: Some(Arc::new(ids)), squash, ..ClientRule::open_to_all() }
}

fn list(fh: &Fh, want: &[u32]) -> Ops {
    let (verifier, want) = ([0; 8], Bitmap::of(want));
    let args = readdir::Args { cookie: 0, verifier, dircount: 4000, maxcount: 4000, want };
    Ops::new().at(fh).op::<Readdir>(&args)
}

fn owners(s: &Fixture, fh: &Fh) -> (String, String) {
    let ops = Ops::new().at(fh).getattr(&[OWNER, OWNER_GROUP]);
    let values = s.c.run(ops).ok().get::<Getattr>().values.0;
    let mut d = Decoder::new(&values);
    let mut text = || String::from_utf8(d.opaque(64).unwrap().to_vec()).unwrap();
    (text(), text())
}

fn chown(owner: &str, group: &str) -> Fattr {
    attrs(&[OWNER, OWNER_GROUP], |e| {
        e.opaque(owner.as_bytes());
        e.opaque(group.as_bytes());
    })
}

fn pair(owner: &str, group: &str) -> (String, String) {
    (owner.to_owned(), group.to_owned())
}

#[test]
fn ids_are_those_of_the_client_on_the_wire_and_the_servers_in_the_store() {
    every_minor(|s| {
        s.c.setattr(&s.file, Stateid::ANONYMOUS, chown("101001", "5150")).unwrap();
        s.harness.admit_by(&mapped(Squash::None));
        assert_eq!(owners(s, &s.file), pair("1001", "150"));
        // The file is hers: she may give it to her other group.
        s.c.become_user(1001, 150);
        let (fh, any) = (&s.file, Stateid::ANONYMOUS);
        s.c.setattr(fh, any, attrs(&[33], |e| e.u32(0o640))).unwrap();
        // No id of the server is one of a client by itself.
        for (owner, group) in [("101001", "150"), ("1001", "5150"), ("0", "150")] {
            assert_eq!(s.c.setattr(fh, any, chown(owner, group)), Err(Status::Badowner));
        }
        // The server's ids again.
        s.harness.admit_by(&ClientRule::open_to_all());
        assert_eq!(owners(s, fh), pair("101001", "5150"));
        s.c.become_user(0, 0);
        s.c.setattr(fh, any, chown("7", "7")).unwrap();
        s.harness.admit_by(&mapped(Squash::None));
        assert_eq!(owners(s, fh), pair("65534", "65534"), "nobody that the client knows");
    });
}

#[test]
fn a_listing_shows_the_clients_ids() {
    every_minor(|s| {
        s.c.setattr(&s.file, Stateid::ANONYMOUS, chown("101001", "5150")).unwrap();
        s.harness.admit_by(&mapped(Squash::None));
        let listed = s.c.run(list(&s.c.export(), &[OWNER, OWNER_GROUP])).ok();
        let (mut e, mut stored) = (Encoder::new(), Encoder::new());
        e.opaque(b"1001");
        stored.opaque(b"101001");
        let has = |e: Encoder| {
            let wanted = e.finish().flatten().unwrap();
            listed.raw.windows(wanted.len()).any(|part| part == &wanted[..])
        };
        assert!(has(e) && !has(stored));
    });
}

#[test]
fn an_acl_speaks_of_the_clients_ids() {
    every_minor(|s| {
        let ace = |who: &str, flags, mask| Ace {
            kind: 0,
            flags,
            mask,
            who: zgate_xdr::Opaque(who.as_bytes().to_vec()),
        };
        let acl = |user: &str, group: &str| {
            let aces = vec![
                ace("OWNER@", 0, 3),
                ace(user, 0, 1),
                ace(group, 0x40, 1),
                ace("GROUP@", 0x40, 1),
                ace("EVERYONE@", 0, 0),
            ];
            attrs(&[ACL], |e| e.array(&aces))
        };
        s.harness.admit_by(&mapped(Squash::None));
        s.c.become_user(1001, 150);
        s.harness.admit_by(&ClientRule::open_to_all());
        s.c.become_user(0, 0);
        s.c.setattr(&s.file, Stateid::ANONYMOUS, chown("101001", "5150")).unwrap();
        s.harness.admit_by(&mapped(Squash::None));
        s.c.become_user(1001, 150);
        let set =
            |user: &str, group: &str| s.c.setattr(&s.file, Stateid::ANONYMOUS, acl(user, group));
        set("1002", "101").unwrap();
        assert_eq!(set("102000", "101"), Err(Status::Badowner));
        assert_eq!(set("1002", "99"), Err(Status::Badowner));
        let principals = || {
            let values =
                s.c.run(Ops::new().at(&s.file).getattr(&[ACL])).ok().get::<Getattr>().values;
            let aces: Vec<Ace> = Decoder::new(&values.0).array(100).unwrap();
            let text = |ace: &Ace| String::from_utf8(ace.who.0.clone()).unwrap();
            let mut all: Vec<_> = aces.iter().map(text).filter(|who| !who.contains('@')).collect();
            all.dedup();
            all
        };
        assert_eq!(principals(), ["1002", "101"]);
        s.harness.admit_by(&ClientRule::open_to_all());
        assert_eq!(principals(), ["101002", "5101"]);
    });
}

/// A map does not make root, whatever it says, unless root is not squashed.
#[test]
fn root_is_squashed_on_either_side_of_a_map() {
    use zgate_rpc::{AuthSys, Credential};
    let ids = IdView {
        users: IdMap::new(&[range(0, 500, 1), range(1000, 0, 1)]),
        groups: IdMap::new(&[range(0, 500, 1), range(100, 0, 1)]),
        anon_uid: 65_534,
        anon_gid: 65_534,
    };
    every_minor(|s| {
        let who = |squash, uid, gid| {
            let ids = Some(Arc::new(ids.clone()));
            s.harness.admit_by(&ClientRule { ids, squash, ..ClientRule::open_to_all() });
            let sys = AuthSys { uid, gid, groups: vec![100, 0], ..AuthSys::default() };
            *s.c.credential.borrow_mut() = Credential::Sys(sys);
            let namespace = s.harness.server().namespace();
            let export = namespace.exports().next().unwrap();
            let who = export.admit(&s.c.rpc_call()).unwrap().who;
            (who.uid, who.gid, who.groups.to_vec())
        };
        let nobody = (65_534, 65_534, vec![]);
        assert_eq!(who(Squash::Root, 0, 0), nobody);
        assert_eq!(who(Squash::Root, 1000, 100), nobody);
        assert_eq!(who(Squash::Root, 7, 0), nobody, "not in the map");
        assert_eq!(who(Squash::All, 1000, 100), nobody);
        assert_eq!(who(Squash::None, 1000, 100), (0, 0, vec![0, 500]));
        assert_eq!(who(Squash::None, 0, 0), (500, 500, vec![0, 500]));
    });
}

#[test]
fn groups_are_those_of_the_server() {
    every_minor(|s| {
        let rule = |squash| ClientRule { server_groups: true, ..mapped(squash) };
        let admit = |known: Option<&[UserGroups]>| {
            let mut call = s.c.rpc_call();
            call.groups = known.map(Arc::from);
            let namespace = s.harness.server().namespace();
            let export = namespace.exports().next().unwrap();
            export.admit(&call).map(|entry| entry.who)
        };
        s.harness.admit_by(&rule(Squash::Root));
        s.c.become_user(1001, 150);
        assert!(admit(None).is_err(), "not known yet");
        let alice = UserGroups { uid: 101_001, groups: (0..40).collect() };
        let who = admit(Some(std::slice::from_ref(&alice))).unwrap();
        assert_eq!((who.uid, who.gid, who.groups.len()), (101_001, 5150, 40));
        assert_eq!(who.groups[0], 65_534, "that of root is squashed");
        let of_another = UserGroups { uid: 1001, ..alice };
        assert!(admit(Some(&[of_another])).is_err());
        // While they are unknown, the client tries again.
        s.c.check("later", Ops::new().at(&s.file).getattr(&[OWNER]), Status::Delay);
        // Nobody's groups need not be asked for, and are not believed.
        s.c.become_user(0, 0);
        let who = admit(None).unwrap();
        assert_eq!((who.uid, who.groups.len()), (65_534, 0));
    });
}

#[test]
fn names_with_the_domain_are_read_and_written() {
    every_minor(|s| {
        let names = FixedNames(vec![
            (PrincipalId::User(1001), "alice"),
            (PrincipalId::Group(4000), "crew"),
            (PrincipalId::User(4000), "crew"),
        ]);
        assert!(s.harness.simulation.names.set(Box::new(names)).is_ok());
        let any = Stateid::ANONYMOUS;
        s.c.setattr(&s.file, any, chown("alice@example.org", "crew@EXAMPLE.ORG")).unwrap();
        assert_eq!(owners(s, &s.file), pair("alice@example.org", "crew@example.org"));
        let listed = s.c.run(list(&s.c.export(), &[OWNER])).ok();
        assert!(listed.raw.windows(17).any(|part| part == b"alice@example.org"));
        for unknown in ["bob@example.org", "alice@example.com", "alice"] {
            let refused = s.c.setattr(&s.file, any, chown(unknown, "4000"));
            assert_eq!(refused, Err(Status::Badowner), "{unknown}");
        }
        // Numbers are understood, and those without a name are written as numbers.
        s.c.setattr(&s.file, any, chown("77", "4000")).unwrap();
        assert_eq!(owners(s, &s.file), pair("77", "crew@example.org"));
        // Clients with ids of their own are not told names of the server.
        s.c.setattr(&s.file, any, chown("101001", "5150")).unwrap();
        s.harness.admit_by(&mapped(Squash::None));
        assert_eq!(owners(s, &s.file), pair("1001", "150"));
    });
}

/// A name service that knows groups, and is silent about users.
struct SilentAboutUsers(FixedNames);

impl Names for SilentAboutUsers {
    fn domain(&self) -> Arc<str> {
        self.0.domain()
    }

    fn name_of(&self, id: PrincipalId) -> BoxedFuture<Option<Arc<str>>> {
        match id {
            PrincipalId::User(_) => Box::pin(std::future::pending()),
            PrincipalId::Group(_) => self.0.name_of(id),
        }
    }

    fn id_of(&self, kind: PrincipalKind, name: &str) -> BoxedFuture<Option<u32>> {
        self.0.id_of(kind, name)
    }
}

/// A request waits once, not for each name; what is known is told all the same.
#[test]
fn a_silent_name_service_holds_up_a_listing_once() {
    const FILES: usize = 20;
    const PATIENCE_NANOS: u64 = 3_000_000_000;
    every_minor(|s| {
        let dir = s.c.export();
        for number in 0..FILES {
            let file = s.c.file(&dir, &format!("listed{number}"), b"");
            s.c.setattr(&file, Stateid::ANONYMOUS, chown("77", "88")).unwrap();
        }
        let names = FixedNames(vec![(PrincipalId::Group(88), "crew")]);
        let names = Box::new(SilentAboutUsers(names));
        assert!(s.harness.simulation.names.set(names).is_ok());
        let now = || s.harness.simulation.clock().monotonic_nanos;
        let begun = now();
        let listed = s.c.run(list(&dir, &[OWNER, OWNER_GROUP])).ok();
        assert_eq!(now() - begun, PATIENCE_NANOS);
        let mut e = Encoder::new();
        e.opaque(b"77");
        e.opaque(b"crew@example.org");
        let wanted = e.finish().flatten().unwrap();
        let found = listed.raw.windows(wanted.len()).filter(|part| *part == &wanted[..]);
        assert_eq!(found.count(), FILES);
        // The next request may wait again.
        assert!(owners(s, &s.file).0.parse::<u32>().is_ok());
        assert_eq!(now() - begun, 2 * PATIENCE_NANOS);
    });
}

/// A name service that tells one name for everybody, though not at the first look.
struct AtTheSecondLook;

impl Names for AtTheSecondLook {
    fn domain(&self) -> Arc<str> {
        "d".into()
    }

    fn name_of(&self, _: PrincipalId) -> BoxedFuture<Option<Arc<str>>> {
        let mut was_asked = false;
        Box::pin(std::future::poll_fn(move |context| {
            if std::mem::replace(&mut was_asked, true) {
                return Poll::Ready(Some(Arc::<str>::from("al")));
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    fn id_of(&self, _: PrincipalKind, _: &str) -> BoxedFuture<Option<u32>> {
        Box::pin(std::future::ready(None))
    }
}

/// The store gives the entries in more than one page.
#[test]
fn slow_storage_does_not_count_as_a_wait_for_names() {
    const ENTRIES: usize = 75;
    every_minor(|s| {
        let dir = s.c.mkdir(&s.root, "many");
        for number in 0..ENTRIES {
            s.c.mkdir(&dir, &format!("f{number:02}"));
        }
        assert!(s.harness.simulation.names.set(Box::new(AtTheSecondLook)).is_ok());
        let faults = s.harness.store.faults();
        let first = faults.hold_next(FileOp::ReadDir, When::BeforeEffect);
        let second = faults.hold_next(FileOp::ReadDir, When::BeforeEffect);
        let listed = s.c.begin_next(list(&dir, &[OWNER]));
        s.harness.simulation.settle();
        first.release();
        s.harness.simulation.settle();
        assert_eq!(second.waiting(), 1, "a second page");
        s.harness.pass_seconds(4);
        second.release();
        s.harness.simulation.settle();
        let raw = listed.borrow().clone().unwrap();
        let found = raw.windows(8).filter(|part| *part == b"\0\0\0\x04al@d");
        assert_eq!(found.count(), ENTRIES);
    });
}
