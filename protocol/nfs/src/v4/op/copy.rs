//! COPY (RFC 7862 §15.2) within the server.

use super::{Failure, Operation};
use crate::v4::copy_jobs::{self, Job};
use crate::v4::cx::Cx;
use crate::v4::state::io::{IoAccess, open_for_change, open_for_io};
use crate::v4::wire::{OpNum, StableHow, Stateid, Status, Verifier};
use zgate_store::FileKind;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// Copies up to this length are done before the answer, in bytes; longer ones
/// go on after it when the client allows that.
const SYNCHRONOUS_BYTES: u64 = 64 << 20;

/// netloc4, of which only the fact that there is one matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetLocation {
    /// NL4_NAME or NL4_URL.
    Text(Opaque<1024>),
    /// NL4_NETADDR.
    Address(Opaque<128>, Opaque<128>),
}

impl Encode for NetLocation {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Text(text) => {
                e.u32(1);
                text.encode(e);
            }
            Self::Address(netid, address) => {
                e.u32(3);
                netid.encode(e);
                address.encode(e);
            }
        }
    }
}

impl Decode for NetLocation {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            1 | 2 => Decode::decode(d).map(Self::Text),
            3 => Ok(Self::Address(Decode::decode(d)?, Decode::decode(d)?)),
            _ => Err(XdrError::BadValue),
        }
    }
}

/// COPY4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Allows reading the saved file.
    pub from: Stateid,
    /// Allows writing the current file.
    pub to: Stateid,
    /// First byte to copy.
    pub from_offset: u64,
    /// Where it goes.
    pub to_offset: u64,
    /// Bytes; 0: to the source's end.
    pub count: u64,
    /// Must be copied in order.
    pub consecutive: bool,
    /// Must be done before the answer.
    pub synchronous: bool,
    /// Other servers; none means this one.
    pub servers: Vec<NetLocation>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.from.encode(e);
        self.to.encode(e);
        e.u64(self.from_offset);
        e.u64(self.to_offset);
        e.u64(self.count);
        self.consecutive.encode(e);
        self.synchronous.encode(e);
        e.array(&self.servers);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            from: Decode::decode(d)?,
            to: Decode::decode(d)?,
            from_offset: d.u64()?,
            to_offset: d.u64()?,
            count: d.u64()?,
            consecutive: Decode::decode(d)?,
            synchronous: Decode::decode(d)?,
            servers: d.array(16)?,
        })
    }
}

xdr_struct! {
    /// COPY4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Names a copy that goes on; an XDR array of at most one.
        pub callback: Option<Stateid>,
        /// Bytes copied so far.
        pub count: u64,
        /// How stable they are.
        pub committed: StableHow,
        /// Write verifier.
        pub verifier: Verifier,
        /// Copied in order.
        pub consecutive: bool,
        /// Done before the answer.
        pub synchronous: bool,
    }
}

/// The operation.
pub struct Copy;

impl Operation for Copy {
    const NUM: OpNum = OpNum::Copy;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let from = cx.saved_object(Status::Isdir)?;
        let to = cx.writable_object()?;
        if !args.servers.is_empty() {
            return Err(Status::Notsupp.into());
        }
        for object in [&from, &to] {
            match object.export.store.getattr(&object.node).await?.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Status::Isdir.into()),
                _ => return Err(Status::WrongType.into()),
            }
        }
        let source = open_for_io(cx, &from, args.from, IoAccess::Read).await?;
        let (target, changing) = open_for_change(cx, &to, args.to, IoAccess::Write).await?;
        if from.export.id != to.export.id {
            return Err(Status::Xdev.into());
        }
        let size = from.export.store.getattr(&from.node).await?.size;
        let end = args.from_offset.checked_add(args.count).ok_or(Status::Inval)?;
        if args.from_offset > size || end > size {
            return Err(Status::Inval.into());
        }
        let count = if args.count == 0 { size - args.from_offset } else { args.count };
        let to_end = args.to_offset.checked_add(count).ok_or(Status::Inval)?;
        let overlap = args.from_offset < to_end && args.to_offset < args.from_offset + count;
        if from.node == to.node && overlap {
            return Err(Status::Inval.into());
        }
        let verifier = cx.server.write_verifier.of(&*to.export.store);
        let job = Job {
            store: to.export.store.clone(),
            source,
            target,
            changing,
            from_offset: args.from_offset,
            to_offset: args.to_offset,
            count,
        };
        let mut res = Res {
            callback: None,
            count: 0,
            committed: StableHow::Unstable,
            verifier,
            consecutive: true,
            synchronous: true,
        };
        if args.synchronous || count <= SYNCHRONOUS_BYTES {
            res.count = copy_jobs::run(&job, None).await?;
        } else {
            let fh = crate::namespace::Place::Node(to.export.id, to.node).to_fh();
            res.callback = Some(copy_jobs::start(cx, job, fh)?);
            res.synchronous = false;
        }
        Ok(res)
    }
}
