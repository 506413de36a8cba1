//! COMMIT (RFC 8881 §18.3).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Status, Verifier};
use zgate_store::FileKind;
use zgate_store::file_store::OpenAccess;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// COMMIT4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// First byte.
        pub offset: u64,
        /// Bytes; 0: to the end.
        pub count: u32,
    }
}

/// The operation.
pub struct Commit;

impl Operation for Commit {
    const NUM: OpNum = OpNum::Commit;
    type Args = Args;
    type Res = Verifier;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Verifier, Failure> {
        let object = cx.object(Status::Isdir)?;
        let store = &object.export.store;
        match store.getattr(&object.node).await?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::Isdir.into()),
            FileKind::Symlink if cx.minor > 0 => return Err(Status::Symlink.into()),
            _ if cx.minor > 0 => return Err(Status::WrongType.into()),
            _ => return Err(Status::Inval.into()),
        }
        if args.offset.checked_add(u64::from(args.count)).is_none() {
            return Err(Status::Inval.into());
        }
        // COMMIT carries no stateid: whoever may write may commit. A file
        // written through an open that its mode no longer allows is committed
        // by reading rights, or by the server itself.
        let write = OpenAccess { read: false, write: true, stateless: true };
        let read = OpenAccess { read: true, write: false, stateless: true };
        let file = match store.open(object.who(), &object.node, write).await {
            Ok(file) => file,
            Err(_) => store.open(object.who(), &object.node, read).await?,
        };
        store.commit(&file).await?;
        // Afterwards: what another's sync was told meanwhile counts as well.
        Ok(cx.server.write_verifier.of(&**store))
    }
}
