//! MKNOD (RFC 1813 §3.3.11).

use super::Rule;
use super::mkdir::create_node;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::MkNod;
use zgate_nfs_wire::v3::proc::mknod::{Args, What};
use zgate_nfs_wire::v3::{Created, Status, WccData};
use zgate_store::file_store::NewNode;

impl Rule for MkNod {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Created, Status> {
        let (what, attributes) = match args.what {
            What::BlockDevice(attributes, major, minor) => {
                (NewNode::BlockDevice(major, minor), attributes)
            }
            What::CharDevice(attributes, major, minor) => {
                (NewNode::CharDevice(major, minor), attributes)
            }
            What::Socket(attributes) => (NewNode::Socket, attributes),
            What::Fifo(attributes) => (NewNode::Fifo, attributes),
            What::Other(_) => return Err(Status::BadType),
        };
        create_node(cx, &args.dir_op, &what, &attributes, fail).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::DirOpArgs;
    use zgate_nfs_wire::v3::FileType;
    use zgate_nfs_wire::v3::Name3;
    use zgate_nfs_wire::v3::SetAttributes;

    #[test]
    fn special_files_are_made_and_ordinary_ones_refused() {
        let rig = Rig::new();
        let make = |name: &str, what| {
            let dir_op = DirOpArgs { dir: rig.root(), name: Name3::from(name.as_bytes()) };
            rig.call::<MkNod>(&Args { dir_op, what })
        };
        let plain = SetAttributes::default;
        let kind = |created: Created| created.attributes.unwrap().kind;
        assert_eq!(kind(make("p", What::Fifo(plain())).unwrap()), FileType::Fifo);
        assert_eq!(kind(make("s", What::Socket(plain())).unwrap()), FileType::Socket);
        let device = make("b", What::BlockDevice(plain(), 8, 1)).unwrap().attributes.unwrap();
        assert_eq!((device.rdev_major, device.rdev_minor), (8, 1));
        assert_eq!(kind(make("c", What::CharDevice(plain(), 1, 3)).unwrap()), FileType::CharDevice);
        let refused = make("d", What::Other(FileType::Directory)).unwrap_err().0;
        assert_eq!(refused, Status::BadType);
    }
}
