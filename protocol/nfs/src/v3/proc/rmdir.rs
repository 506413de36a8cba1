//! RMDIR (RFC 1813 §3.3.13).

use super::Rule;
use super::remove::remove;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::RmDir;
use zgate_nfs_wire::v3::{DirOpArgs, Status, WccData};
use zgate_store::attr::FileKind;

impl Rule for RmDir {
    async fn run(cx: &Cx<'_>, args: DirOpArgs, fail: &mut WccData) -> Result<WccData, Status> {
        // `..` names a directory that is not empty.
        if args.name.0 == b".." {
            return Err(Status::Exist);
        }
        remove(cx, &args, FileKind::Directory, fail).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::proc::{MkDir, mkdir};
    use zgate_nfs_wire::v3::{Name3, SetAttributes};

    #[test]
    fn only_empty_directories_go() {
        let rig = Rig::new();
        let dir = rig.dir("d");
        rig.file("f", b"");
        let rmdir = |dir: &zgate_nfs_wire::v3::Fh3, name: &str| {
            let args = DirOpArgs { dir: dir.clone(), name: Name3::from(name.as_bytes()) };
            rig.call::<RmDir>(&args).map(|_| ()).map_err(|failed| failed.0)
        };
        let dir_op = DirOpArgs { dir: dir.clone(), name: Name3::from(&b"sub"[..]) };
        let args = mkdir::Args { dir_op, attributes: SetAttributes::default() };
        rig.call::<MkDir>(&args).unwrap();
        let root = rig.root();
        assert_eq!(rmdir(&root, "d"), Err(Status::NotEmpty));
        assert_eq!(rmdir(&dir, "sub"), Ok(()));
        assert_eq!(rmdir(&root, "d"), Ok(()));
        assert_eq!(rmdir(&root, "f"), Err(Status::NotDir));
        assert_eq!(rmdir(&root, "."), Err(Status::Inval));
        assert_eq!(rmdir(&root, ".."), Err(Status::Exist));
    }
}
