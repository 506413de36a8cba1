//! LINK (RFC 1813 §3.3.15).

use super::Rule;
use crate::v3::cx::Cx;
use crate::v3::guard::Change;
use zgate_nfs_wire::v3::Status;
use zgate_nfs_wire::v3::proc::Link;
use zgate_nfs_wire::v3::proc::link::{Args, Linked};

impl Rule for Link {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut Linked) -> Result<Linked, Status> {
        let file = cx.enter_writable(&args.file)?;
        let dir = cx.enter_writable(&args.link.dir)?;
        let name = args.link.name.to_create()?;
        if file.export.id != dir.export.id {
            return Err(Status::Xdev);
        }
        let _entries = cx.before_change(&dir, dir.node, Change::Entries).await?;
        let change = cx.before_change(&file, file.node, Change::Name).await?;
        let before = dir.before().await;
        let link = dir.store().link(&dir.who, &file.node, &dir.node, name);
        let linked = change.in_store(link).await;
        let dir_wcc = before.after(linked.as_ref().ok().copied()).await;
        *fail = Linked { attributes: file.post_op_attr().await, dir_wcc };
        linked?;
        Ok(std::mem::take(fail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::DirOpArgs;
    use zgate_nfs_wire::v3::Name3;

    #[test]
    fn one_file_has_two_names() {
        let rig = Rig::new();
        let file = rig.file("a", b"A");
        let link = DirOpArgs { dir: rig.root(), name: Name3::from(&b"b"[..]) };
        let args = Args { file: file.clone(), link };
        assert_eq!(rig.call::<Link>(&args).unwrap().attributes.unwrap().nlink, 2);
        assert_eq!(rig.lookup(&rig.root(), "b"), Ok(file));
        assert_eq!(rig.call::<Link>(&args).unwrap_err().0, Status::Exist);
    }
}
