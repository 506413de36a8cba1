//! MKDIR (RFC 1813 §3.3.9), and code shared by all procedures that create
//! something other than a regular file.

use super::Rule;
use crate::v3::cx::Cx;
use crate::v3::guard::Change;
use zgate_nfs_wire::v3::proc::MkDir;
use zgate_nfs_wire::v3::proc::mkdir::Args;
use zgate_nfs_wire::v3::{Created, DirOpArgs, SetAttributes, Status, WccData};
use zgate_store::file_store::NewNode;

impl Rule for MkDir {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Created, Status> {
        create_node(cx, &args.dir_op, &NewNode::Directory, &args.attributes, fail).await
    }
}

/// Creates a node of any type except a regular file.
pub(super) async fn create_node(
    cx: &Cx<'_>,
    dir_op: &DirOpArgs,
    what: &NewNode,
    attributes: &SetAttributes,
    wcc: &mut WccData,
) -> Result<Created, Status> {
    let dir = cx.enter_writable(&dir_op.dir)?;
    let name = dir_op.name.to_create()?;
    let mut attrs = dir.new_attr(attributes)?;
    // Only a regular file has a size to set.
    attrs.size = None;
    let _entries = cx.before_change(&dir, dir.node, Change::Entries).await?;
    let before = dir.before().await;
    let made = dir.store().create_node(&dir.who, &dir.node, name, what, &attrs).await;
    *wcc = before.after(made.as_ref().ok().map(|(_, change)| *change)).await;
    let (node, _) = made?;
    Ok(Created {
        fh: Some(dir.fh_of(node.handle)),
        attributes: Some(dir.attributes_of(&node.attr)),
        dir_wcc: std::mem::take(wcc),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::{FileType, Name3};

    #[test]
    fn a_directory_is_made_once() {
        let rig = Rig::new();
        let dir_op = DirOpArgs { dir: rig.root(), name: Name3::from(&b"d"[..]) };
        let attributes = SetAttributes { mode: Some(0o711), ..Default::default() };
        let args = Args { dir_op, attributes };
        let made = rig.call::<MkDir>(&args).unwrap();
        let attributes = made.attributes.unwrap();
        assert_eq!((attributes.kind, attributes.mode), (FileType::Directory, 0o711));
        assert!(made.dir_wcc.after.is_some());
        assert_eq!(rig.call::<MkDir>(&args).unwrap_err().0, Status::Exist);
    }
}
