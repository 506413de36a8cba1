//! MKNOD (RFC 1813 §3.3.11).

use crate::v3::{DirOpArgs, FileType, SetAttributes};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// mknoddata3: type and data of the new node.
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
        /// Directory and name.
        pub dir_op: DirOpArgs,
        /// Type and data.
        pub what: What,
    }
}
