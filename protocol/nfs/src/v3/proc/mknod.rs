//! MKNOD (RFC 1813 §3.3.11).

use super::Procedure;
use super::mkdir::create_node;
use crate::v3::cx::Cx;
use crate::v3::wire::{Created, DirOp, FileType, SetAttributes, Status, WccData};
use zgate_store::file_store::NewNode;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The procedure.
#[derive(Debug)]
pub struct MkNod;

/// mknoddata3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A block device node with major and minor number.
    BlockDevice(SetAttributes, u32, u32),
    /// A character device node with major and minor number.
    CharDevice(SetAttributes, u32, u32),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// A type that other procedures create.
    Other(FileType),
}

impl Encode for What {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::BlockDevice(attributes, major, minor) => {
                (FileType::BlockDevice, attributes, [*major, *minor]).encode_parts(e);
            }
            Self::CharDevice(attributes, major, minor) => {
                (FileType::CharDevice, attributes, [*major, *minor]).encode_parts(e);
            }
            Self::Socket(attributes) => {
                FileType::Socket.encode(e);
                attributes.encode(e);
            }
            Self::Fifo(attributes) => {
                FileType::Fifo.encode(e);
                attributes.encode(e);
            }
            Self::Other(kind) => kind.encode(e),
        }
    }
}

/// A device node's parts in wire order.
trait EncodeParts {
    fn encode_parts(&self, e: &mut Encoder);
}

impl EncodeParts for (FileType, &SetAttributes, [u32; 2]) {
    fn encode_parts(&self, e: &mut Encoder) {
        self.0.encode(e);
        self.1.encode(e);
        e.u32(self.2[0]);
        e.u32(self.2[1]);
    }
}

impl Decode for What {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match FileType::decode(d)? {
            FileType::BlockDevice => {
                Self::BlockDevice(SetAttributes::decode(d)?, d.u32()?, d.u32()?)
            }
            FileType::CharDevice => Self::CharDevice(SetAttributes::decode(d)?, d.u32()?, d.u32()?),
            FileType::Socket => Self::Socket(SetAttributes::decode(d)?),
            FileType::Fifo => Self::Fifo(SetAttributes::decode(d)?),
            other => Self::Other(other),
        })
    }
}

zgate_xdr::xdr_struct! {
    /// MKNOD3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Where.
        pub place: DirOp,
        /// What.
        pub what: What,
    }
}

impl Procedure for MkNod {
    const NUMBER: u32 = 11;
    type Args = Args;
    type Ok = Created;
    type Fail = WccData;

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
        create_node(cx, &args.place, &what, &attributes, fail).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use crate::v3::wire::Name3;

    #[test]
    fn special_files_are_made_and_ordinary_ones_refused() {
        let rig = Rig::new();
        let make = |name: &str, what| {
            let place = DirOp { dir: rig.root(), name: Name3::from(name.as_bytes()) };
            rig.call::<MkNod>(&Args { place, what })
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
