//! SYMLINK (RFC 1813 §3.3.10).

use super::Rule;
use super::mkdir::create_node;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::Symlink;
use zgate_nfs_wire::v3::proc::symlink::Args;
use zgate_nfs_wire::v3::{Created, SetAttributes, Status, WccData};
use zgate_store::file_store::NewNode;

impl Rule for Symlink {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Created, Status> {
        if args.target.0.is_empty() || args.target.0.contains(&0) {
            return Err(Status::Inval);
        }
        // A link's own mode has no meaning and cannot be set on every file
        // system.
        let attributes = SetAttributes { mode: None, ..args.attributes };
        let what = NewNode::Symlink(args.target.0);
        create_node(cx, &args.dir_op, &what, &attributes, fail).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::DirOpArgs;
    use zgate_nfs_wire::v3::{FileType, Name3};
    use zgate_xdr::Opaque;

    #[test]
    fn a_link_is_made_and_an_empty_one_refused() {
        let rig = Rig::new();
        let link = rig.symlink("l", "there");
        assert_eq!(rig.attributes(&link).kind, FileType::Symlink);
        let dir_op = DirOpArgs { dir: rig.root(), name: Name3::from(&b"m"[..]) };
        let args = Args { dir_op, attributes: SetAttributes::default(), target: Opaque(vec![]) };
        assert_eq!(rig.call::<Symlink>(&args).unwrap_err().0, Status::Inval);
    }
}
