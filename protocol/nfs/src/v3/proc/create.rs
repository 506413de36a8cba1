//! CREATE (RFC 1813 §3.3.8).

use super::Rule;
use crate::v3::cx::{Cx, Object};
use crate::v3::guard::Change;
use zgate_nfs_wire::v3::proc::Create;
use zgate_nfs_wire::v3::proc::create::{Args, How};
use zgate_nfs_wire::v3::{Created, Status, WccData};
use zgate_store::attr::{FileKind, SetAttr};
use zgate_store::file_store::{CreateMode, CreatedFile};

impl Rule for Create {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Created, Status> {
        let dir = cx.enter_writable(&args.dir_op.dir)?;
        let file = create(cx, &dir, &args, fail).await?;
        Ok(Created {
            fh: Some(dir.fh_of(file.node.handle)),
            attributes: Some(dir.attributes_of(&file.node.attr)),
            dir_wcc: std::mem::take(fail),
        })
    }
}

async fn create(
    cx: &Cx<'_>,
    dir: &Object,
    args: &Args,
    wcc: &mut WccData,
) -> Result<CreatedFile, Status> {
    let name = args.dir_op.name.to_create()?;
    let (mode, attrs) = match &args.how {
        How::Unchecked(attributes) => (CreateMode::Unchecked, dir.new_attr(attributes)?),
        How::Guarded(attributes) => (CreateMode::Guarded, dir.new_attr(attributes)?),
        How::Exclusive(verifier) => (CreateMode::Exclusive(*verifier), SetAttr::default()),
    };
    let mut change = cx.before_change(dir, dir.node, Change::Entries).await?;
    if mode == CreateMode::Unchecked && attrs.size == Some(0) {
        change = cx.before_change_of_child(dir, name, Change::Data).await?;
    }
    let before = dir.before().await;
    let create = dir.store().create_file(&dir.who, &dir.node, name, mode, &attrs);
    let made = change.in_store(create).await;
    *wcc = before.after(made.as_ref().ok().map(|file| file.dir)).await;
    let made = made?;
    if !made.created && made.node.attr.kind != FileKind::Regular {
        return Err(Status::Exist);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Squash;
    use crate::v3::proc::rig::Rig;
    use std::sync::Arc;
    use zgate_memory::MemoryStore;
    use zgate_nfs_wire::v3::DirOpArgs;
    use zgate_nfs_wire::v3::SetAttributes;
    use zgate_nfs_wire::v3::proc::{MkDir, mkdir};
    use zgate_nfs_wire::v3::{Fh3, Name3};

    fn create(rig: &Rig, name: &str, how: How) -> Result<Fh3, Status> {
        let dir_op = DirOpArgs { dir: rig.root(), name: Name3::from(name.as_bytes()) };
        match rig.call::<Create>(&Args { dir_op, how }) {
            Ok(created) => Ok(created.fh.unwrap()),
            Err(failed) => Err(failed.0),
        }
    }

    #[test]
    fn three_ways_to_create() {
        let rig = Rig::new();
        let plain = SetAttributes { mode: Some(0o640), ..Default::default() };
        let file = create(&rig, "f", How::Guarded(plain.clone())).unwrap();
        assert_eq!(rig.attributes(&file).mode, 0o640);
        assert_eq!(create(&rig, "f", How::Guarded(plain.clone())), Err(Status::Exist));
        assert_eq!(create(&rig, "f", How::Unchecked(plain)), Ok(file));
        let once = create(&rig, "x", How::Exclusive(*b"verifier")).unwrap();
        assert_eq!(create(&rig, "x", How::Exclusive(*b"verifier")), Ok(once));
        assert_eq!(create(&rig, "x", How::Exclusive(*b"another!")), Err(Status::Exist));
    }

    /// macOS sends the user and the directory's group with each object that it makes.
    #[test]
    fn an_owner_that_the_caller_may_not_give_is_no_reason_to_refuse() {
        let rig = Rig::with(|export| {
            export.store = Arc::new(MemoryStore::builder().root_mode(0o777).build());
            export.clients[0].squash = Squash::All;
        });
        let attributes = SetAttributes { uid: Some(501), gid: Some(0), ..Default::default() };
        let file = create(&rig, "f", How::Unchecked(attributes.clone())).unwrap();
        let dir_op = DirOpArgs { dir: rig.root(), name: Name3::from(&b"d"[..]) };
        let made = rig.call::<MkDir>(&mkdir::Args { dir_op, attributes }).unwrap();
        for made in [rig.attributes(&file), made.attributes.unwrap()] {
            assert_eq!((made.uid, made.gid), (65_534, 65_534));
        }
    }

    #[test]
    fn unchecked_with_size_zero_empties_an_existing_file() {
        let rig = Rig::new();
        let file = rig.file("f", b"full");
        let empty = SetAttributes { size: Some(0), ..Default::default() };
        assert_eq!(create(&rig, "f", How::Unchecked(empty)), Ok(file.clone()));
        assert_eq!(rig.attributes(&file).size, 0);
    }

    #[test]
    fn other_kinds_dots_and_read_only_exports_are_in_the_way() {
        let rig = Rig::new();
        rig.dir("d");
        let any = || How::Unchecked(SetAttributes::default());
        assert_eq!(create(&rig, "d", any()), Err(Status::Exist));
        assert_eq!(create(&rig, ".", any()), Err(Status::Exist));
        assert_eq!(create(&rig, "..", any()), Err(Status::Exist));
        assert_eq!(create(&rig, "", any()), Err(Status::Inval));
        let fixed = Rig::with(|export| export.read_only = true);
        assert_eq!(create(&fixed, "f", any()), Err(Status::Rofs));
    }
}
