//! GETATTR (RFC 8881 §18.7).

use std::sync::Arc;
use zgate_memory::{FileOp, MemoryStore};
use zgate_nfs::v4::attrs::acl::Ace;
use zgate_nfs::v4::attrs::table::{ATTRS, Use};
use zgate_nfs_wire::v4::attr::{CASE_INSENSITIVE, CASE_PRESERVING, MAXREAD, MAXWRITE};
use zgate_nfs_wire::v4::op::open::How;
use zgate_nfs_wire::v4::op::{
    Access, Create, Getattr, Getfh, Open, Readdir, Setattr, access, create, readdir, setattr,
};
use zgate_nfs_wire::v4::{Bitmap, Stateid, Status};
use zgate_store::FileStore;
use zgate_store::file_store::{NewNode, StoreTraits};
use super::root_traits::RootTraits;
use zgate_test_harness::nfs::{Fixture, Harness, OpenRequest, Ops, attrs, every_minor, mode, name};
use zgate_xdr::{Decode, Decoder, Encode};

#[test]
fn supported_attrs_tells_the_truth() {
    every_minor(|s| {
        for fh in [&s.file, &s.dir, &s.link, &s.fifo] {
            let reply = s.c.run(Ops::new().at(fh).getattr(&[0])).ok();
            let values = reply.get::<Getattr>().values.0;
            let supported = Bitmap::decode(&mut Decoder::new(&values)).unwrap();
            for bit in 0..96 {
                let known = ATTRS.iter().find(|row| row.0 == bit && row.1 <= s.c.minor);
                let write_only = known.is_some_and(|row| row.2 == Use::Write);
                if write_only {
                    s.c.check("can only be set", Ops::new().at(fh).getattr(&[bit]), Status::Inval);
                    continue;
                }
                let got = s.c.run(Ops::new().at(fh).getattr(&[bit])).ok().get::<Getattr>();
                assert_eq!(got.mask.contains(bit), supported.contains(bit), "{bit}");
                assert!(got.mask.contains(bit) || got.values.0.is_empty());
            }
        }
    });
}

#[test]
fn what_is_asked_together_is_what_is_asked_apart() {
    every_minor(|s| {
        let all: Vec<u32> = ATTRS
            .iter()
            .filter(|row| row.1 <= s.c.minor && row.2 != Use::Write)
            .map(|row| row.0)
            .collect();
        let together = s.c.run(Ops::new().at(&s.file).getattr(&all)).ok().get::<Getattr>();
        let mut apart = Vec::new();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        for bit in sorted {
            let one = s.c.run(Ops::new().at(&s.file).getattr(&[bit])).ok().get::<Getattr>();
            apart.extend(one.values.0);
        }
        assert_eq!(together.values.0, apart);
    });
}

#[test]
fn errors_and_unknown_attributes() {
    every_minor(|s| {
        s.c.check("no handle", Ops::new().getattr(&[1]), Status::Nofilehandle);
        s.c.check("stale", Ops::new().at(&s.stale).getattr(&[1]), Status::Stale);
        let odd = s.c.run(Ops::new().at(&s.file).getattr(&[1, 200, 2000])).ok();
        assert_eq!(odd.get::<Getattr>().mask, Bitmap::of(&[1]), "unknown ones are left out");
        let mut long = 65_u32.to_be_bytes().to_vec();
        long.resize(4 + 65 * 4, 0);
        s.c.check("an endless bitmap", Ops::new().at(&s.file).raw(9, &long), Status::Badxdr);
        let pseudo = s.c.run(Ops::new().root().getattr(&[1, 3, 8, 20, 33])).ok();
        assert_eq!(pseudo.get::<Getattr>().mask, Bitmap::of(&[1, 3, 8, 20, 33]));
    });
}

/// Clients derive wsize from it. A power of two, like a record of ZFS: WRITEs
/// of this size at multiples of it are whole records, or whole parts of longer
/// ones.
#[test]
fn transfers_are_as_long_as_the_export_takes_them() {
    every_minor(|s| {
        let got = s.c.run(Ops::new().at(&s.file).getattr(&[MAXREAD, MAXWRITE])).ok();
        let values = got.get::<Getattr>().values.0;
        let mut d = Decoder::new(&values);
        let (read, write) = (d.u64().unwrap(), d.u64().unwrap());
        assert_eq!((read, write), (1 << 20, 1 << 20));
        assert!(write.is_power_of_two());
    });
}

#[test]
fn a_file_system_that_is_case_insensitive_says_so() {
    let requests = (0..=2).flat_map(|minor| [(minor, false), (minor, true)]);
    for (minor, told) in requests {
        let store = MemoryStore::builder().case_insensitive(told).root_mode(0o777).build();
        let s = Fixture::in_harness(Harness::over(store), minor);
        for fh in [&s.root, &s.file] {
            assert_eq!(s.c.number(fh, CASE_INSENSITIVE), u64::from(told));
            assert_eq!(s.c.number(fh, CASE_PRESERVING), 1);
        }
        let want = Bitmap::of(&[CASE_INSENSITIVE]);
        let (cookie, verifier, dircount, maxcount) = (0, [0; 8], 0, 4096);
        let args = readdir::Args { cookie, verifier, dircount, maxcount, want };
        let listed = s.c.run(Ops::new().at(&s.root).op::<Readdir>(&args)).ok().get::<Readdir>();
        assert!(listed.entries.len() >= 4);
        for entry in listed.entries {
            assert_eq!(entry.attrs.values.0, u32::from(told).to_be_bytes());
        }
    }
}

/// RFC 8881 §5.4: they are the file system's, and a dataset below the export's root is one of its
/// own.
#[test]
fn a_file_system_below_the_root_has_abilities_of_its_own() {
    every_minor(|s| {
        let store = &s.harness.store;
        let traits = StoreTraits { acls: false, xattrs: false, clone_block_bytes: None, ..store.traits() };
        s.harness.serve_through("/export", Arc::new(RootTraits(store.clone(), traits)));
        let got = s.c.run(Ops::new().at(&s.file).getattr(&[0])).ok().get::<Getattr>();
        let supported = Bitmap::decode(&mut Decoder::new(&got.values.0)).unwrap();
        assert!(supported.contains(12) && supported.contains(13));
        let got = s.c.run(Ops::new().at(&s.file).getattr(&[12])).ok().get::<Getattr>();
        assert_eq!(got.mask, Bitmap::of(&[12]));
        let everyone = Ace { kind: 0, flags: 0, mask: 0x1, who: b"EVERYONE@"[..].into() };
        let acl = attrs(&[12], |e| {
            e.u32(1);
            everyone.encode(e);
        });
        s.c.setattr(&s.file, Stateid::ANONYMOUS, acl).unwrap();
        if s.c.minor == 2 {
            assert!(supported.contains(77));
            assert_eq!(s.c.number(&s.file, 82), 1, "xattr_support");
        }
    });
}

/// The store is not asked again for what the operation before has read, and the answer shows
/// what that operation has done.
#[test]
fn behind_an_operation_that_has_read_the_attributes_they_are_known() {
    every_minor(|s| {
        // Number of times that the store is asked, and the mode.
        let cost = |ops: Ops| {
            let faults = s.harness.store.faults();
            let before = faults.calls(FileOp::GetAttr);
            let reply = s.c.run(ops).ok();
            (faults.calls(FileOp::GetAttr) - before, reply)
        };
        let with_mode = |ops: Ops| {
            let (times, reply) = cost(ops.getfh().getattr(&[33]));
            let values = reply.get::<Getattr>().values.0;
            (times, u32::from_be_bytes(values[..4].try_into().unwrap()))
        };
        let set = |bits| {
            let args = setattr::Args { stateid: Stateid::ANONYMOUS, attrs: mode(bits) };
            Ops::new().at(&s.file).op::<Setattr>(&args)
        };
        assert_eq!(with_mode(set(0o640)), (cost(set(0o600)).0, 0o640));
        assert_eq!(s.c.number(&s.file, 33), 0o600);
        let twice = set(0o640)
            .op::<Setattr>(&setattr::Args { stateid: Stateid::ANONYMOUS, attrs: mode(0o604) });
        assert_eq!(with_mode(twice).1, 0o604, "the last one counts");
        let ask = |ops: Ops| ops.op::<Access>(&access::Args { access: 1 });
        assert_eq!(with_mode(ask(Ops::new().at(&s.file))), (1, 0o604));
        assert_eq!(with_mode(ask(set(0o606))), (cost(set(0o606)).0, 0o606), "with one between");
        let other = ask(Ops::new().at(&s.file)).at(&s.dir);
        assert_eq!(with_mode(other).1, 0o755, "of the current object");
        let make = |text: &str| {
            let kind = create::Kind::Node(NewNode::Directory);
            let args = create::Args { kind, name: name(text), attrs: mode(0o710) };
            Ops::new().at(&s.dir).op::<Create>(&args)
        };
        assert_eq!(with_mode(make("a")), (cost(make("b")).0, 0o710));
        let open = |text: &str, owner| {
            let how = How::Unchecked(mode(0o640));
            let wish = OpenRequest::name(&s.dir, text).owner(owner).how(how);
            Ops::new().at(&s.dir).op::<Open>(&s.c.open_args(&wish))
        };
        let known = with_mode(ask(open("c", "one")));
        assert_eq!(known, (cost(open("d", "two")).0, 0o640));
    });
}

/// The ACL is set last, and changes the mode that was set before.
#[test]
fn behind_an_operation_that_sets_an_acl_the_mode_is_that_of_the_acl() {
    every_minor(|s| {
        let everyone = Ace { kind: 0, flags: 0, mask: 0x1, who: b"EVERYONE@"[..].into() };
        let both = attrs(&[12, 33], |e| {
            e.u32(1);
            everyone.encode(e);
            e.u32(0o700);
        });
        let set = setattr::Args { stateid: Stateid::ANONYMOUS, attrs: both.clone() };
        let kind = create::Kind::Node(NewNode::Directory);
        let make = create::Args { kind, name: name("made"), attrs: both.clone() };
        let wish = OpenRequest::name(&s.dir, "opened").how(How::Unchecked(both));
        let requests = [
            ("SETATTR", Ops::new().at(&s.file).op::<Setattr>(&set)),
            ("CREATE", Ops::new().at(&s.dir).op::<Create>(&make)),
            ("OPEN", Ops::new().at(&s.dir).op::<Open>(&s.c.open_args(&wish))),
        ];
        for (what, ops) in requests {
            let reply = s.c.run(ops.getfh().getattr(&[33])).ok();
            let values = reply.get::<Getattr>().values.0;
            let told = u32::from_be_bytes(values[..4].try_into().unwrap());
            assert_eq!(u64::from(told), s.c.number(&reply.get::<Getfh>(), 33), "{what}");
            assert_ne!(told, 0o700, "{what} has set the ACL");
        }
    });
}
