//! RMDIR (RFC 1813 §3.3.13).

use super::Procedure;
use super::remove::remove;
use crate::v3::cx::Cx;
use crate::v3::wire::{DirOp, Status, WccData};
use zgate_store::attr::FileKind;

/// The procedure.
#[derive(Debug)]
pub struct RmDir;

impl Procedure for RmDir {
    const NUMBER: u32 = 13;
    type Args = DirOp;
    type Ok = WccData;
    type Fail = WccData;

    async fn run(cx: &Cx<'_>, args: DirOp, fail: &mut WccData) -> Result<WccData, Status> {
        // The parent of anything is not empty.
        if args.name.0 == b".." {
            return Err(Status::Exist);
        }
        remove(cx, &args, FileKind::Directory, fail).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::mkdir::{self, MkDir};
    use crate::v3::proc::rig::Rig;
    use crate::v3::wire::{Name3, SetAttributes};

    #[test]
    fn only_empty_directories_go() {
        let rig = Rig::new();
        let dir = rig.dir("d");
        rig.file("f", b"");
        let rmdir = |dir: &crate::v3::wire::Fh3, name: &str| {
            let args = DirOp { dir: dir.clone(), name: Name3::from(name.as_bytes()) };
            rig.call::<RmDir>(&args).map(|_| ()).map_err(|failed| failed.0)
        };
        let place = DirOp { dir: dir.clone(), name: Name3::from(&b"sub"[..]) };
        let args = mkdir::Args { place, attributes: SetAttributes::default() };
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
