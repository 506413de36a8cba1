//! LOOKUP (RFC 1813 §3.3.3).

use super::Rule;
use crate::v3::cx::{Cx, Object};
use zgate_nfs_wire::v3::proc::Lookup;
use zgate_nfs_wire::v3::proc::lookup::Found;
use zgate_nfs_wire::v3::{Attributes, DirOpArgs, Name3, NameKind, Status};
use zgate_store::StoreError;
use zgate_store::attr::FileKind;
use zgate_store::file_store::Node;

impl Rule for Lookup {
    async fn run(
        cx: &Cx<'_>,
        args: DirOpArgs,
        fail: &mut Option<Attributes>,
    ) -> Result<Found, Status> {
        let dir = cx.enter(&args.dir)?;
        let found = find(&dir, &args.name).await;
        *fail = dir.post_op_attr().await;
        let node = found?;
        Ok(Found {
            fh: dir.fh_of(node.handle),
            attributes: Some(dir.attributes_of(&node.attr)),
            dir_attributes: fail.take(),
        })
    }
}

async fn find(dir: &Object, name: &Name3) -> Result<Node, Status> {
    match name.kind()? {
        NameKind::Plain(name) => Ok(dir.store().lookup(&dir.who, &dir.node, name).await?),
        NameKind::This => this(dir).await,
        NameKind::Parent => parent(dir).await,
    }
}

async fn this(dir: &Object) -> Result<Node, Status> {
    let attr = dir.store().getattr(&dir.node).await?;
    if attr.kind != FileKind::Directory {
        return Err(Status::NotDir);
    }
    Ok(Node { handle: dir.node, attr })
}

/// The parent of a directory; the root of an export is its own parent.
pub(in crate::v3) async fn parent(dir: &Object) -> Result<Node, Status> {
    match dir.store().lookup_parent(&dir.who, &dir.node).await {
        Ok(node) => Ok(node),
        Err(StoreError::NotFound) => this(dir).await,
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::Fh3;

    #[test]
    fn names_dot_and_dot_dot_lead_where_they_should() {
        let rig = Rig::new();
        let dir = rig.dir("d");
        let find = |dir: &Fh3, name: &str| {
            let args = DirOpArgs { dir: dir.clone(), name: Name3::from(name.as_bytes()) };
            rig.call::<Lookup>(&args).map(|found| found.fh).map_err(|failed| failed.0)
        };
        let root = rig.root();
        assert_eq!(find(&root, "d"), Ok(dir.clone()));
        assert_eq!(find(&dir, "."), Ok(dir.clone()));
        assert_eq!(find(&dir, ".."), Ok(root.clone()));
        assert_eq!(find(&root, ".."), Ok(root.clone()));
        assert_eq!(find(&root, "none"), Err(Status::NoEnt));
        assert_eq!(find(&root, ""), Err(Status::Inval));
        assert_eq!(find(&root, "a/b"), Err(Status::Inval));
        assert_eq!(find(&root, &"n".repeat(300)), Err(Status::NameTooLong));
        let file = rig.file("f", b"");
        assert_eq!(find(&file, "x"), Err(Status::NotDir));
        assert_eq!(find(&file, "."), Err(Status::NotDir));
    }
}
