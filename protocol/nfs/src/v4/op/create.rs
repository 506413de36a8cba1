//! CREATE (RFC 8881 §18.4): everything but regular files.

use super::remove::as_directory;
use super::{Failure, Operation, names};
use crate::limits::MAX_LINK_BYTES;
use crate::v4::attrs::settable;
use crate::v4::cx::Cx;
use crate::v4::wire::{Bitmap, ChangeInfo, Component, Fattr, OpNum, Status};
use zgate_store::file_store::NewNode;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// createtype4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that can be made.
    Node(NewNode),
    /// NF4REG and numbers without meaning here.
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
        /// What.
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

/// The operation.
pub struct Create;

impl Operation for Create {
    const NUM: OpNum = OpNum::Create;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let Kind::Node(kind) = args.kind else { return Err(Status::Badtype.into()) };
        let dir = cx.writable_object()?;
        super::lookup::require_directory(&dir).await?;
        names::check(&args.name.0)?;
        if matches!(&kind, NewNode::Symlink(target) if target.is_empty()) {
            return Err(Status::Inval.into());
        }
        let settable = settable::parse(&args.attrs, cx.minor)?;
        let made = dir
            .export
            .store
            .create_node(dir.who(), &dir.node, &args.name.0, &kind, &settable.set)
            .await;
        let (node, change) = match made {
            Ok(made) => made,
            Err(error) => return Err(as_directory(&dir, error).await.into()),
        };
        cx.set_current_node(&dir, node.handle);
        settable::apply_acl(&cx.object(Status::Serverfault)?, &settable).await?;
        Ok(Res { change: change.into(), attrs_set: settable.applied })
    }
}
