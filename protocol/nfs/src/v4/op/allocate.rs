//! ALLOCATE (RFC 7862 §15.1).

use super::read::kind_first;
use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::io::{IoAccess, open_for_change};
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// ALLOCATE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows writing.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
    }
}

/// The operation.
pub struct Allocate;

impl Operation for Allocate {
    const NUM: OpNum = OpNum::Allocate;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let object = cx.writable_object()?;
        let opened = open_for_change(cx, &object, args.stateid, IoAccess::Write).await;
        let (file, changing) = match opened {
            Ok(opened) => opened,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let end = args.offset.checked_add(args.length).ok_or(Status::Inval)?;
        if end > object.export.store.traits().max_file_bytes {
            return Err(Status::Fbig.into());
        }
        if args.length == 0 {
            return Ok(());
        }
        let work = object.export.store.allocate(&file, args.offset, args.length);
        Ok(changing.in_store(work).await?)
    }
}
