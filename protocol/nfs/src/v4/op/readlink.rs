//! READLINK (RFC 8881 §18.24).

use super::Rule;
use crate::limits::MAX_LINK_BYTES;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Readlink;
use zgate_store::{FileKind, StoreError};
use zgate_xdr::DirectOpaque;

impl Rule for Readlink {
    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<DirectOpaque<MAX_LINK_BYTES>, Failure> {
        let object = cx.object(Status::Inval)?;
        let store = &object.export.store;
        match store.readlink(object.who(), &object.node).await {
            Ok(target) => Ok(DirectOpaque(target)),
            Err(StoreError::WrongType | StoreError::Invalid | StoreError::IsDirectory) => {
                // RFC 8881 §18.24.4 and RFC 7530 §16.25.5 differ.
                let kind = store.getattr(&object.node).await?.kind;
                let directory = kind == FileKind::Directory;
                Err(if cx.minor == 0 || directory { Status::Inval } else { Status::WrongType }
                    .into())
            }
            Err(error) => Err(error.into()),
        }
    }
}
