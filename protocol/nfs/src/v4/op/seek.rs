//! SEEK (RFC 7862 §15.11).

use super::Rule;
use super::read::kind_first;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_io;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Seek;
use zgate_nfs_wire::v4::op::seek::{Args, Res};
use zgate_store::StoreError;
use zgate_store::file_store::SeekWhat;

impl Rule for Seek {
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
            // Only a hole follows.
            Err(StoreError::BeyondEnd) => Ok(Res { eof: true, offset: size }),
            Err(error) => Err(error.into()),
        }
    }
}
