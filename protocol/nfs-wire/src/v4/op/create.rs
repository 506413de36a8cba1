//! CREATE (RFC 8881 §18.4): all types except regular files.

use crate::limits::MAX_LINK_BYTES;
use crate::v4::{Bitmap, ChangeInfo, Component, Fattr};
use zgate_store::file_store::NewNode;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// createtype4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A supported type.
    Node(NewNode),
    /// NF4REG and unknown numbers.
    Other(u32),
}

impl Encode for Kind {
    fn encode(&self, e: &mut Encoder) {
        let device = |e: &mut Encoder, number, major: u32, minor: u32| {
            for word in [number, major, minor] {
                e.u32(word);
            }
        };
        match self {
            Self::Node(NewNode::Directory) => e.u32(2),
            Self::Node(NewNode::BlockDevice(major, minor)) => device(e, 3, *major, *minor),
            Self::Node(NewNode::CharDevice(major, minor)) => device(e, 4, *major, *minor),
            Self::Node(NewNode::Symlink(target)) => {
                e.u32(5);
                e.opaque(target);
            }
            Self::Node(NewNode::Socket) => e.u32(6),
            Self::Node(NewNode::Fifo) => e.u32(7),
            Self::Other(number) => e.u32(*number),
        }
    }
}

impl Decode for Kind {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self::Node(match d.u32()? {
            2 => NewNode::Directory,
            3 => NewNode::BlockDevice(d.u32()?, d.u32()?),
            4 => NewNode::CharDevice(d.u32()?, d.u32()?),
            5 => NewNode::Symlink(Opaque::<MAX_LINK_BYTES>::decode(d)?.0),
            6 => NewNode::Socket,
            7 => NewNode::Fifo,
            other => return Ok(Self::Other(other)),
        }))
    }
}

xdr_struct! {
    /// CREATE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Type.
        pub kind: Kind,
        /// Its name.
        pub name: Component,
        /// Its attributes.
        pub attrs: Fattr,
    }
}

xdr_struct! {
    /// CREATE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// The directory's change.
        pub change: ChangeInfo,
        /// Attributes that were set.
        pub attrs_set: Bitmap,
    }
}
