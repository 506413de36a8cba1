//! SEEK (RFC 7862 §15.11).

use super::read::kind_first;
use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::io::{IoAccess, open_for_io};
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_store::StoreError;
use zgate_store::file_store::SeekWhat;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// SEEK4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows reading.
        pub stateid: Stateid,
        /// Where to start.
        pub offset: u64,
        /// NFS4_CONTENT_DATA 0 or NFS4_CONTENT_HOLE 1.
        pub what: u32,
    }
}

xdr_struct! {
    /// seek_res4.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Nothing of that kind before the end.
        pub eof: bool,
        /// Where it begins.
        pub offset: u64,
    }
}

/// The operation.
pub struct Seek;

impl Operation for Seek {
    const NUM: OpNum = OpNum::Seek;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let what = match args.what {
            0 => SeekWhat::Data,
            1 => SeekWhat::Hole,
            _ => return Err(Status::UnionNotsupp.into()),
        };
        let store = &object.export.store;
        let size = store.getattr(&object.node).await?.size;
        if args.offset >= size {
            return Err(Status::Nxio.into());
        }
        match store.seek(&file, args.offset, what).await {
            Ok(offset) => Ok(Res { eof: offset >= size, offset }),
            // Only a hole is left.
            Err(StoreError::BeyondEnd) => Ok(Res { eof: true, offset: size }),
            Err(error) => Err(error.into()),
        }
    }
}
