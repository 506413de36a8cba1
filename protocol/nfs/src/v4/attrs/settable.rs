//! Reads attributes that are to be set.

use super::acl;
use super::principals::Principals;
use super::table::{Use, usage};
use super::values::asks_principals;
use crate::limits::{FIRST_PAUSE_MILLISECONDS, MAX_PRINCIPAL_BYTES, NEW_ACL_WAIT_MILLISECONDS};
use crate::namespace::Object;
use crate::namespace::ids::NoSuchId;
use crate::runtime::PrincipalKind;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::attr::*;
use zgate_nfs_wire::v4::{Bitmap, Fattr, NfsTime, Status};
use zgate_store::file_store::PosixAcl;
use zgate_store::{Caller, SetAttr, SetTime, Timestamp};
use zgate_xdr::{Decode, Decoder};

/// Attributes to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settable {
    /// Attributes for the store.
    pub set: SetAttr,
    /// An ACL to set.
    pub acl: Option<PosixAcl>,
    /// Mode bits to set under a mask: (value, mask) (RFC 8881 §6.2.5).
    pub masked_mode: Option<(u32, u32)>,
    /// All requested attributes.
    pub applied: Bitmap,
}

impl Settable {
    /// Leaves out another owner of an object than its maker, and a group that the maker is not
    /// in, unless root makes it: clients of BSD's kind send those of the user and of the
    /// directory along, and do not try again without them. The answer says that they are not set
    /// (RFC 8881 §18.4.2, §18.16.2).
    fn leave_out_foreign_owners(&mut self, maker: &Caller) {
        if maker.uid == 0 {
            return;
        }
        if self.set.uid.take_if(|uid| *uid != maker.uid).is_some() {
            self.applied.clear(OWNER);
        }
        if self.set.gid.take_if(|gid| !maker.in_group(*gid)).is_some() {
            self.applied.clear(OWNER_GROUP);
        }
    }
}

/// ACL that an object can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclOf {
    /// One from which children inherit.
    Directory,
    /// None: a symbolic link.
    Link,
    /// One of its own only.
    Other,
}

/// Object whose attributes are set. An ACL alone depends on its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An object that is made: CREATE, OPEN.
    New(AclOf),
    /// An object that is there: SETATTR.
    Existing(AclOf),
}

impl Subject {
    /// Returns whether an attribute may be set of it: a masked mode needs a mode, a umask is
    /// for new objects (RFC 8881 §6.2.5, RFC 8275 §5), and the holder of a delegation sets its
    /// times under the delegation's stateid, which SETATTR alone has (RFC 9754 §5).
    fn takes(self, attribute: u32) -> bool {
        match self {
            Self::New(_) => {
                !matches!(attribute, MODE_SET_MASKED | TIME_DELEG_ACCESS | TIME_DELEG_MODIFY)
            }
            Self::Existing(_) => attribute != MODE_UMASK,
        }
    }

    fn acl(self) -> AclOf {
        let (Self::New(acl) | Self::Existing(acl)) = self;
        acl
    }
}

fn time(d: &mut Decoder<'_>) -> Result<Timestamp, Status> {
    let time = NfsTime::decode(d)?;
    if time.nanoseconds >= 1_000_000_000 {
        return Err(Status::Inval);
    }
    Ok(Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds })
}

fn set_time(d: &mut Decoder<'_>) -> Result<SetTime, Status> {
    match d.u32()? {
        0 => Ok(SetTime::Now),
        1 => time(d).map(SetTime::At),
        _ => Err(Status::Badxdr),
    }
}

fn mode(bits: u32) -> Result<u32, Status> {
    if bits & !0o7777 == 0 { Ok(bits) } else { Err(Status::Inval) }
}

/// Decodes the attributes (RFC 8881 §18.30.3) that a caller sets of an object, or of a new one
/// in this directory. Users and groups become those of the server.
///
/// # Errors
/// [`Status::Attrnotsupp`] for unknown attributes, for delegated times of a new object where
/// there are none, and for an ACL where the file system or
/// the subject has none: nothing may be made before that is said. [`Status::Inval`] for
/// read-only ones, those that the subject does not take, and invalid values,
/// [`Status::Badxdr`], [`Status::Badowner`]; [`Status::Delay`] if the name service does
/// not answer.
pub async fn read(
    cx: &Cx<'_>,
    of: &Object,
    attrs: &Fattr,
    subject: Subject,
) -> Result<Settable, Status> {
    let has = |attribute| attrs.mask.contains(attribute);
    let store = &of.export.store;
    if has(ACL) && (subject.acl() == AclOf::Link || !store.statfs(&of.node).await?.traits.acls) {
        return Err(Status::Attrnotsupp);
    }
    let is_new = matches!(subject, Subject::New(_));
    if is_new
        && !of.export.gives_delegated_times()
        && (has(TIME_DELEG_ACCESS) || has(TIME_DELEG_MODIFY))
    {
        return Err(Status::Attrnotsupp);
    }
    if attrs.mask.iter().any(|one| usage(one, cx.minor).is_some() && !subject.takes(one)) {
        return Err(Status::Inval);
    }
    let parse = |principals: &mut Principals| parse(attrs, cx.minor, subject, principals);
    if !asks_principals(&attrs.mask) {
        return parse(&mut Principals::numbers());
    }
    let mut settable = match &of.entry.ids {
        None => Principals::read(&*cx.server.runtime, parse).await?,
        Some(ids) => {
            let mut settable = parse(&mut Principals::numbers())?;
            ids.accept(&mut settable.set).map_err(|NoSuchId| Status::Badowner)?;
            if let Some(acl) = &mut settable.acl {
                ids.accept_acl(acl).map_err(|NoSuchId| Status::Badowner)?;
            }
            settable
        }
    };
    if is_new {
        settable.leave_out_foreign_owners(of.who());
    }
    Ok(settable)
}

fn parse(
    attrs: &Fattr,
    minor: u8,
    subject: Subject,
    principals: &mut Principals,
) -> Result<Settable, Status> {
    let mut d = Decoder::new(&attrs.values.0);
    let mut out = Settable { applied: attrs.mask.clone(), ..Settable::default() };
    for attribute in attrs.mask.iter() {
        match usage(attribute, minor) {
            None => return Err(Status::Attrnotsupp),
            Some(Use::Read) => return Err(Status::Inval),
            Some(Use::Write | Use::Both) => {}
        }
    }
    let mut aces = None;
    for attribute in attrs.mask.iter() {
        match attribute {
            SIZE => out.set.size = Some(d.u64()?),
            ACL => aces = Some(acl::decode(&mut d)?),
            MODE => out.set.mode = Some(mode(d.u32()?)?),
            OWNER => {
                let text = d.opaque(MAX_PRINCIPAL_BYTES)?;
                out.set.uid = Some(principals.id(PrincipalKind::User, text)?);
            }
            OWNER_GROUP => {
                let text = d.opaque(MAX_PRINCIPAL_BYTES)?;
                out.set.gid = Some(principals.id(PrincipalKind::Group, text)?);
            }
            TIME_ACCESS_SET => out.set.atime = Some(set_time(&mut d)?),
            TIME_MODIFY_SET => out.set.mtime = Some(set_time(&mut d)?),
            TIME_CREATE => out.set.btime = Some(time(&mut d)?),
            TIME_DELEG_ACCESS => out.set.atime = Some(SetTime::At(time(&mut d)?)),
            TIME_DELEG_MODIFY => out.set.mtime = Some(SetTime::At(time(&mut d)?)),
            MODE_SET_MASKED => out.masked_mode = Some((mode(d.u32()?)?, mode(d.u32()?)?)),
            MODE_UMASK => {
                let (wanted, umask) = (mode(d.u32()?)?, d.u32()?);
                if umask & !0o777 != 0 {
                    return Err(Status::Inval);
                }
                out.set.mode = Some(wanted & !umask);
            }
            _ => return Err(Status::Attrnotsupp),
        }
    }
    d.finish()?;
    let posix = |aces: Vec<_>| acl::to_posix(&aces, subject.acl() == AclOf::Directory, principals);
    out.acl = aces.map(posix).transpose()?;
    // RFC 8275 §5, RFC 8881 §6.2.5.
    let is_set_twice = attrs.mask.contains(MODE) && attrs.mask.contains(MODE_UMASK);
    if is_set_twice || out.masked_mode.is_some() && out.set.mode.is_some() {
        return Err(Status::Inval);
    }
    Ok(out)
}

/// Sets the requested ACL, if any.
///
/// # Errors
/// Errors of the store.
pub async fn apply_acl(object: &Object, settable: &Settable) -> Result<(), Status> {
    let Some(posix) = &settable.acl else { return Ok(()) };
    object.export.store.set_acl(object.who(), &object.node, posix).await.map_err(
        |error| match error {
            zgate_store::StoreError::NotSupported => Status::Attrnotsupp,
            other => other.into(),
        },
    )
}

/// Sets the requested ACL, if any, of an object that has just been made. Returns the
/// attributes that are set.
///
/// The answer is never [`Status::Delay`]: a client that repeated the request would find
/// the object there. While storage tells to wait, this attempts it again, for
/// [`NEW_ACL_WAIT_MILLISECONDS`]; afterwards the ACL is missing among the attributes that
/// are set (RFC 8881 §18.4.2, §18.16.2), and its client may set it. Nor is it
/// [`Status::Attrnotsupp`], after which clients take the object for not made: the ACL is missing,
/// too, if the file system has had none since this was asked.
///
/// # Errors
/// As [`apply_acl`], without these two.
pub async fn apply_new_acl(
    cx: &Cx<'_>,
    object: &Object,
    settable: &Settable,
) -> Result<Bitmap, Status> {
    let mut applied = settable.applied.clone();
    let (mut pause, mut waited) = (FIRST_PAUSE_MILLISECONDS, 0);
    loop {
        match apply_acl(object, settable).await {
            Err(Status::Delay) if waited < NEW_ACL_WAIT_MILLISECONDS => {}
            Err(Status::Delay) => {
                tracing::warn!(
                    "storage was too busy to set the ACL of a new object; its client is told \
                     that it is not set"
                );
                applied.clear(ACL);
                return Ok(applied);
            }
            Err(Status::Attrnotsupp) => {
                applied.clear(ACL);
                return Ok(applied);
            }
            outcome => return outcome.map(|()| applied),
        }
        cx.server.runtime.sleep(pause).await;
        waited += pause;
        pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::Opaque;

    fn fattr(bits: &[u32], values: &[u8]) -> Fattr {
        Fattr { mask: Bitmap::of(bits), values: Opaque(values.to_vec()) }
    }

    #[test]
    fn what_may_not_be_set_is_refused() {
        let subject = Subject::Existing(AclOf::Other);
        let parse = |attrs: &Fattr, minor| parse(attrs, minor, subject, &mut Principals::numbers());
        assert_eq!(parse(&fattr(&[FSID], &[0; 16]), 0), Err(Status::Inval));
        assert_eq!(parse(&fattr(&[14], &[0; 4]), 0), Err(Status::Attrnotsupp));
        assert_eq!(parse(&fattr(&[MODE], &[0, 0, 0, 1, 9, 9, 9, 9]), 0), Err(Status::Badxdr));
        assert_eq!(parse(&fattr(&[MODE], &[0, 1, 0, 0]), 0), Err(Status::Inval));
        assert_eq!(parse(&fattr(&[MODE_SET_MASKED], &[0; 8]), 0), Err(Status::Attrnotsupp));
        assert_eq!(parse(&fattr(&[SIZE], &[0; 8]), 0).unwrap().set.size, Some(0));
        assert_eq!(parse(&fattr(&[MODE, MODE_SET_MASKED], &[0; 12]), 1), Err(Status::Inval));
    }

    #[test]
    fn who_makes_an_object_gives_it_to_none_but_its_own_groups() {
        let left = |uid: u32, gid: u32, owner: u32, group: u32| {
            let set = SetAttr { uid: Some(owner), gid: Some(group), ..SetAttr::default() };
            let applied = Bitmap::of(&[MODE, OWNER, OWNER_GROUP]);
            let mut settable = Settable { set, applied, ..Settable::default() };
            settable.leave_out_foreign_owners(&Caller { uid, gid, groups: [20].into() });
            let Settable { set, applied, .. } = settable;
            assert!(applied.contains(MODE));
            assert_eq!(applied.contains(OWNER), set.uid.is_some());
            assert_eq!(applied.contains(OWNER_GROUP), set.gid.is_some());
            (set.uid, set.gid)
        };
        assert_eq!(left(0, 0, 7, 21), (Some(7), Some(21)), "root");
        assert_eq!(left(7, 7, 7, 20), (Some(7), Some(20)));
        assert_eq!(left(7, 7, 7, 7), (Some(7), Some(7)));
        assert_eq!(left(7, 7, 8, 21), (None, None));
    }

    /// RFC 8275 §5.
    #[test]
    fn a_umask_has_nine_bits() {
        let with = |umask: u32| {
            let values = [0o1777_u32.to_be_bytes(), umask.to_be_bytes()].concat();
            let attrs = fattr(&[MODE_UMASK], &values);
            let subject = Subject::New(AclOf::Directory);
            parse(&attrs, 2, subject, &mut Principals::numbers()).map(|settable| settable.set.mode)
        };
        assert_eq!(with(0o022), Ok(Some(0o1755)));
        assert_eq!(with(0o777), Ok(Some(0o1000)));
        for umask in [0o1000, 0o1022, 0o100_022, u32::MAX] {
            assert_eq!(with(umask), Err(Status::Inval), "{umask:o}");
        }
        let subject = Subject::New(AclOf::Other);
        let both = fattr(&[MODE, MODE_UMASK], &[0; 12]);
        assert_eq!(parse(&both, 2, subject, &mut Principals::numbers()), Err(Status::Inval));
    }
}
