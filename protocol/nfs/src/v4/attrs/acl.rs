//! Conversion between NFSv4 ACLs and POSIX ACLs (RFC 8881 §6). Only rights that
//! rwx can express are kept.

use super::principals::Principals;
use crate::limits::{MAX_ACES, MAX_PRINCIPAL_BYTES};
use crate::runtime::{PrincipalId, PrincipalKind};
use zgate_nfs_wire::v4::Status;
use zgate_store::file_store::{PosixAcl, PosixAclEntry, PosixAclTag};
use zgate_store::{Attr, FileKind};
use zgate_xdr::{Decoder, Opaque, XdrError, xdr_struct};

xdr_struct! {
    /// nfsace4.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Ace {
        /// ALLOW 0, DENY 1, AUDIT 2, ALARM 3.
        pub kind: u32,
        /// Inheritance, and a flag for groups.
        pub flags: u32,
        /// Rights.
        pub mask: u32,
        /// OWNER@, GROUP@, EVERYONE@ or a numeric id.
        pub who: Opaque<MAX_PRINCIPAL_BYTES>,
    }
}

const ALLOW: u32 = 0;
const DENY: u32 = 1;
const FLAG_FILE_INHERIT: u32 = 0x1;
const FLAG_DIRECTORY_INHERIT: u32 = 0x2;
const FLAG_NO_PROPAGATE_INHERIT: u32 = 0x4;
const FLAG_INHERIT_ONLY: u32 = 0x8;
const FLAG_GROUP: u32 = 0x40;

const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const APPEND_DATA: u32 = 0x4;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const READ_ACL: u32 = 0x2_0000;
const WRITE_ACL: u32 = 0x4_0000;
const SYNCHRONIZE: u32 = 0x10_0000;
/// Rights of everyone.
const ALWAYS: u32 = READ_ATTRIBUTES | READ_ACL | SYNCHRONIZE;
/// Additional rights of the owner.
const OWNER_ALWAYS: u32 = WRITE_ATTRIBUTES | WRITE_ACL;

fn mask_of(perms: u8, is_dir: bool) -> u32 {
    let mut mask = 0;
    if perms & 4 != 0 {
        mask |= READ_DATA;
    }
    if perms & 2 != 0 {
        mask |= WRITE_DATA | APPEND_DATA;
        if is_dir {
            mask |= DELETE_CHILD;
        }
    }
    if perms & 1 != 0 {
        mask |= EXECUTE;
    }
    mask
}

/// The bits of rwx of which all rights are in the mask: `w` allows to append, and to
/// delete what is in a directory, too.
fn perms_of(mask: u32, is_dir: bool) -> u8 {
    let has = |bit: &u8| {
        let rights = mask_of(*bit, is_dir);
        mask & rights == rights
    };
    [4, 2, 1].into_iter().filter(has).sum()
}

/// The NFSv4 ACL equivalent to a POSIX ACL, with these names of users and groups;
/// all others are numbers. Contains DENY entries where a
/// later, wider entry would otherwise allow more than POSIX does.
#[must_use]
pub fn from_posix(posix: &PosixAcl, attr: &Attr, names: &[(PrincipalId, Box<str>)]) -> Vec<Ace> {
    let is_dir = attr.kind == FileKind::Directory;
    let mut aces = Vec::new();
    let written = |id: PrincipalId| {
        let name = names.iter().find(|(known, _)| *known == id).map(|(_, name)| name.to_string());
        name.unwrap_or_else(|| id.number().to_string())
    };
    write_entries(&mut aces, &posix.access, (is_dir, 0), written);
    let inherit = FLAG_FILE_INHERIT | FLAG_DIRECTORY_INHERIT | FLAG_INHERIT_ONLY;
    write_entries(&mut aces, &posix.default, (is_dir, inherit), written);
    aces
}

fn write_entries(
    aces: &mut Vec<Ace>,
    entries: &[PosixAclEntry],
    (is_dir, flags): (bool, u32),
    written: impl Fn(PrincipalId) -> String,
) {
    let mask = entries.iter().find(|e| e.tag == PosixAclTag::Mask).map_or(7, |e| e.perms);
    let all = mask_of(7, is_dir);
    // A user may be in several groups: what one of them allows comes before what
    // another one refuses.
    let mut refused_to_groups = Vec::new();
    for entry in entries {
        let (who, group, perms, extra) = match entry.tag {
            PosixAclTag::UserObj => ("OWNER@".to_owned(), 0, entry.perms, OWNER_ALWAYS),
            PosixAclTag::User(uid) => (written(PrincipalId::User(uid)), 0, entry.perms & mask, 0),
            PosixAclTag::GroupObj => ("GROUP@".to_owned(), FLAG_GROUP, entry.perms & mask, 0),
            PosixAclTag::Group(gid) => {
                (written(PrincipalId::Group(gid)), FLAG_GROUP, entry.perms & mask, 0)
            }
            PosixAclTag::Mask => continue,
            PosixAclTag::Other => ("EVERYONE@".to_owned(), 0, entry.perms, 0),
        };
        let who = Opaque(who.into_bytes());
        let allowed = mask_of(perms, is_dir);
        let ace = |kind, mask| Ace { kind, flags: flags | group, mask, who: who.clone() };
        if entry.tag == PosixAclTag::Other {
            aces.append(&mut refused_to_groups);
        }
        aces.push(ace(ALLOW, allowed | ALWAYS | extra));
        if entry.tag != PosixAclTag::Other && all & !allowed != 0 {
            let refused = if group == 0 { &mut *aces } else { &mut refused_to_groups };
            refused.push(ace(DENY, all & !allowed));
        }
    }
    aces.append(&mut refused_to_groups);
}

/// Reads an ACL from the wire.
///
/// # Errors
/// [`XdrError`].
pub fn decode(d: &mut Decoder<'_>) -> Result<Vec<Ace>, XdrError> {
    d.array(MAX_ACES)
}

fn tag_of(ace: &Ace, principals: &mut Principals) -> Result<PosixAclTag, Status> {
    let group = ace.flags & FLAG_GROUP != 0;
    match ace.who.0.as_slice() {
        b"OWNER@" => Ok(PosixAclTag::UserObj),
        b"GROUP@" => Ok(PosixAclTag::GroupObj),
        b"EVERYONE@" => Ok(PosixAclTag::Other),
        who => {
            let kind = if group { PrincipalKind::Group } else { PrincipalKind::User };
            let id = principals.id(kind, who)?;
            Ok(if group { PosixAclTag::Group(id) } else { PosixAclTag::User(id) })
        }
    }
}

/// The closest POSIX ACL that does not allow more, of a directory or something else.
///
/// # Errors
/// [`Status::Badowner`] for a principal that is unknown,
/// [`Status::Attrnotsupp`] for AUDIT and ALARM entries, for inheritance that ends
/// after one level, because a default ACL goes on for ever, and for inheritance of what has no
/// children or by nobody (RFC 8881 §6.2.1.4.1).
pub fn to_posix(
    aces: &[Ace],
    is_dir: bool,
    principals: &mut Principals,
) -> Result<PosixAcl, Status> {
    let ends = |ace: &Ace| inherits(ace) && ace.flags & FLAG_NO_PROPAGATE_INHERIT != 0;
    let is_in_vain =
        |ace: &Ace| if inherits(ace) { !is_dir } else { ace.flags & FLAG_INHERIT_ONLY != 0 };
    if aces.iter().any(|ace| ace.kind > DENY || ends(ace) || is_in_vain(ace)) {
        return Err(Status::Attrnotsupp);
    }
    // All of them first: names that are unknown are looked up together.
    let tags: Vec<_> = aces.iter().map(|ace| tag_of(ace, principals)).collect();
    let aces = aces.iter().zip(tags).map(|(ace, tag)| Ok((ace, tag?)));
    let aces: Vec<(&Ace, PosixAclTag)> = aces.collect::<Result<_, Status>>()?;
    let applies = |(ace, _): &&(&Ace, _)| ace.flags & FLAG_INHERIT_ONLY == 0;
    let access: Vec<_> = aces.iter().filter(applies).copied().collect();
    let default: Vec<_> = aces.iter().filter(|(ace, _)| inherits(ace)).copied().collect();
    Ok(PosixAcl {
        access: entries_of(&access, is_dir),
        default: if default.is_empty() { Vec::new() } else { entries_of(&default, is_dir) },
    })
}

fn inherits(ace: &Ace) -> bool {
    ace.flags & (FLAG_FILE_INHERIT | FLAG_DIRECTORY_INHERIT) != 0
}

/// Rights of one tag by the entries so far.
struct Verdict {
    tag: PosixAclTag,
    allowed: u32,
    decided: u32,
}

/// Returns whether somebody whose rights are those of `tag` may be refused
/// something by an entry about `about`: any user may be in any group, and any
/// user may be the owner.
fn may_refuse(about: PosixAclTag, tag: PosixAclTag) -> bool {
    match about {
        PosixAclTag::Group(_) | PosixAclTag::GroupObj => tag != PosixAclTag::Other,
        PosixAclTag::User(_) => tag == PosixAclTag::UserObj,
        PosixAclTag::UserObj | PosixAclTag::Mask | PosixAclTag::Other => false,
    }
}

/// Evaluates the entries in order; the first one with a right decides about it
/// (RFC 8881 §6.2.1). POSIX takes one entry for a user, NFSv4 all that match: so
/// a refusal to a group holds for everybody who may be in it.
fn verdicts(aces: &[(&Ace, PosixAclTag)]) -> Vec<Verdict> {
    let mut tags = vec![PosixAclTag::UserObj, PosixAclTag::GroupObj, PosixAclTag::Other];
    for (_, tag) in aces {
        if !tags.contains(tag) {
            tags.push(*tag);
        }
    }
    tags.sort();
    let mut verdicts: Vec<_> =
        tags.into_iter().map(|tag| Verdict { tag, allowed: 0, decided: 0 }).collect();
    for (ace, about) in aces {
        // What an earlier entry has allowed to the same group, it refuses to
        // nobody.
        let own = verdicts.iter().find(|verdict| verdict.tag == *about);
        let refused = own.map_or(ace.mask, |own| ace.mask & !own.decided);
        for verdict in &mut verdicts {
            let mask = if *about == verdict.tag || *about == PosixAclTag::Other {
                ace.mask
            } else if ace.kind == DENY && may_refuse(*about, verdict.tag) {
                refused
            } else {
                continue;
            };
            let fresh = mask & !verdict.decided;
            verdict.decided |= fresh;
            if ace.kind == ALLOW {
                verdict.allowed |= fresh;
            }
        }
    }
    verdicts
}

/// Returns the entries of a POSIX ACL, with a mask if POSIX asks for one.
fn entries_of(aces: &[(&Ace, PosixAclTag)], is_dir: bool) -> Vec<PosixAclEntry> {
    let entry = |verdict: Verdict| PosixAclEntry {
        tag: verdict.tag,
        perms: perms_of(verdict.allowed, is_dir),
    };
    let mut entries: Vec<_> = verdicts(aces).into_iter().map(entry).collect();
    let named = |e: &PosixAclEntry| matches!(e.tag, PosixAclTag::User(_) | PosixAclTag::Group(_));
    if entries.iter().any(named) {
        let in_group_class = |e: &&PosixAclEntry| named(e) || e.tag == PosixAclTag::GroupObj;
        let perms = entries.iter().filter(in_group_class).fold(0, |mask, e| mask | e.perms);
        entries.push(PosixAclEntry { tag: PosixAclTag::Mask, perms });
        entries.sort_by_key(|e| e.tag);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: PosixAclTag, perms: u8) -> PosixAclEntry {
        PosixAclEntry { tag, perms }
    }

    #[test]
    fn a_posix_acl_survives_the_trip() {
        for access in [
            vec![
                entry(PosixAclTag::UserObj, 7),
                entry(PosixAclTag::GroupObj, 5),
                entry(PosixAclTag::Other, 0),
            ],
            vec![
                entry(PosixAclTag::UserObj, 2),
                entry(PosixAclTag::User(7), 4),
                entry(PosixAclTag::GroupObj, 5),
                entry(PosixAclTag::Group(9), 1),
                entry(PosixAclTag::Mask, 5),
                entry(PosixAclTag::Other, 4),
            ],
            vec![
                entry(PosixAclTag::UserObj, 7),
                entry(PosixAclTag::User(7), 6),
                entry(PosixAclTag::User(8), 1),
                entry(PosixAclTag::GroupObj, 1),
                entry(PosixAclTag::Group(9), 6),
                entry(PosixAclTag::Mask, 7),
                entry(PosixAclTag::Other, 7),
            ],
        ] {
            for is_dir in [false, true] {
                let mut aces = Vec::new();
                write_entries(&mut aces, &access, (is_dir, 0), |id| id.number().to_string());
                let back = to_posix(&aces, is_dir, &mut Principals::numbers());
                assert_eq!(back.unwrap().access, access);
            }
        }
    }

    fn one(kind: u32, flags: u32, mask: u32) -> Ace {
        Ace { kind, flags, mask, who: Opaque(b"EVERYONE@".to_vec()) }
    }

    #[test]
    fn a_part_of_the_rights_of_w_is_not_w() {
        let of = |aces: &[Ace], is_dir| {
            let posix = to_posix(aces, is_dir, &mut Principals::numbers());
            perms(&posix.unwrap().access, PosixAclTag::Other)
        };
        let change = WRITE_DATA | APPEND_DATA;
        for part in [WRITE_DATA, APPEND_DATA] {
            assert_eq!(of(&[one(ALLOW, 0, part | READ_DATA)], false), 4, "{part:x}");
            assert_eq!(of(&[one(DENY, 0, part), one(ALLOW, 0, change)], false), 0, "{part:x}");
        }
        assert_eq!(of(&[one(ALLOW, 0, change)], false), 2);
        // A directory whose entries may be added and not deleted.
        assert_eq!(of(&[one(ALLOW, 0, change | READ_DATA)], true), 4);
        assert_eq!(of(&[one(ALLOW, 0, change | DELETE_CHILD)], true), 2);
        let whole = one(ALLOW, 0, change | DELETE_CHILD);
        assert_eq!(of(&[one(DENY, 0, DELETE_CHILD), whole.clone()], true), 0);
        assert_eq!(of(&[one(DENY, 0, DELETE_CHILD), whole], false), 2, "a file has no children");
    }

    #[test]
    fn inheritance_that_ends_is_refused() {
        let ask =
            |flags| to_posix(&[one(ALLOW, flags, READ_DATA)], true, &mut Principals::numbers());
        for inherit in [FLAG_FILE_INHERIT, FLAG_DIRECTORY_INHERIT] {
            assert_eq!(ask(inherit | FLAG_NO_PROPAGATE_INHERIT), Err(Status::Attrnotsupp));
            assert!(!ask(inherit).unwrap().default.is_empty());
        }
        // It means nothing alone.
        assert!(ask(FLAG_NO_PROPAGATE_INHERIT).unwrap().default.is_empty());
    }

    /// RFC 8881 §6.2.1.4.1.
    #[test]
    fn inheritance_in_vain_is_refused() {
        let ask = |flags, is_dir| {
            to_posix(&[one(ALLOW, flags, READ_DATA)], is_dir, &mut Principals::numbers())
        };
        for inherit in [FLAG_FILE_INHERIT, FLAG_DIRECTORY_INHERIT] {
            for flags in [inherit, inherit | FLAG_INHERIT_ONLY] {
                assert_eq!(ask(flags, false), Err(Status::Attrnotsupp), "of a file");
                assert!(ask(flags, true).is_ok());
            }
        }
        for is_dir in [false, true] {
            assert_eq!(ask(FLAG_INHERIT_ONLY, is_dir), Err(Status::Attrnotsupp), "by nobody");
        }
    }

    /// Returns the POSIX ACL of `(kind, group, rights as rwx, who)`.
    fn posix_of(aces: &[(u32, bool, u8, &str)]) -> Vec<PosixAclEntry> {
        let ace = |&(kind, group, perms, who): &(u32, bool, u8, &str)| Ace {
            kind,
            flags: if group { FLAG_GROUP } else { 0 },
            mask: mask_of(perms, false),
            who: Opaque(who.as_bytes().to_vec()),
        };
        let aces: Vec<Ace> = aces.iter().map(ace).collect();
        to_posix(&aces, false, &mut Principals::numbers()).unwrap().access
    }

    fn perms(entries: &[PosixAclEntry], tag: PosixAclTag) -> u8 {
        entries.iter().find(|entry| entry.tag == tag).unwrap().perms
    }

    #[test]
    fn what_a_group_is_refused_nobody_gets_who_may_be_in_it() {
        let posix = posix_of(&[
            (DENY, true, 4, "77"),
            (ALLOW, false, 6, "OWNER@"),
            (ALLOW, false, 4, "1001"),
            (ALLOW, true, 6, "GROUP@"),
            (ALLOW, true, 6, "78"),
            (ALLOW, false, 4, "EVERYONE@"),
        ]);
        for tag in [PosixAclTag::UserObj, PosixAclTag::GroupObj, PosixAclTag::Group(78)] {
            assert_eq!(perms(&posix, tag), 2, "{tag:?}");
        }
        assert_eq!(perms(&posix, PosixAclTag::User(1001)), 0);
        assert_eq!(perms(&posix, PosixAclTag::Group(77)), 0);
        assert_eq!(perms(&posix, PosixAclTag::Other), 4, "others are in no group");
        let posix = posix_of(&[(DENY, true, 2, "GROUP@"), (ALLOW, false, 6, "EVERYONE@")]);
        assert_eq!(perms(&posix, PosixAclTag::UserObj), 4);
        assert_eq!(perms(&posix, PosixAclTag::Other), 6);
    }

    #[test]
    fn what_a_user_is_refused_the_owner_does_not_get() {
        let posix = posix_of(&[
            (DENY, false, 2, "1000"),
            (ALLOW, false, 6, "OWNER@"),
            (ALLOW, false, 6, "1001"),
        ]);
        assert_eq!(perms(&posix, PosixAclTag::UserObj), 4);
        assert_eq!(perms(&posix, PosixAclTag::User(1001)), 6, "another user");
    }

    #[test]
    fn what_was_allowed_before_is_refused_to_nobody() {
        let posix = posix_of(&[
            (ALLOW, true, 4, "77"),
            (DENY, true, 6, "77"),
            (ALLOW, false, 6, "OWNER@"),
            (ALLOW, true, 4, "GROUP@"),
        ]);
        assert_eq!(perms(&posix, PosixAclTag::UserObj), 4);
        assert_eq!(perms(&posix, PosixAclTag::GroupObj), 4);
        assert_eq!(perms(&posix, PosixAclTag::Group(77)), 4);
    }

    /// The order of Linux's server, which `nfs4_getfacl` may have saved.
    #[test]
    fn the_order_of_other_servers_is_understood() {
        let posix = posix_of(&[
            (DENY, false, 1, "OWNER@"),
            (ALLOW, false, 6, "OWNER@"),
            (DENY, false, 2, "7"),
            (ALLOW, false, 5, "7"),
            (ALLOW, true, 4, "GROUP@"),
            (ALLOW, true, 6, "9"),
            (DENY, true, 1, "GROUP@"),
            (DENY, true, 1, "9"),
            (ALLOW, false, 1, "EVERYONE@"),
        ]);
        assert_eq!(
            posix,
            [
                entry(PosixAclTag::UserObj, 6),
                entry(PosixAclTag::User(7), 5),
                entry(PosixAclTag::GroupObj, 4),
                entry(PosixAclTag::Group(9), 6),
                entry(PosixAclTag::Mask, 7),
                entry(PosixAclTag::Other, 1),
            ]
        );
    }

    #[test]
    fn audit_entries_are_refused() {
        let ace = Ace { kind: 2, flags: 0, mask: 1, who: Opaque(b"OWNER@".to_vec()) };
        let posix = to_posix(&[ace], false, &mut Principals::numbers());
        assert_eq!(posix, Err(Status::Attrnotsupp));
    }
}
