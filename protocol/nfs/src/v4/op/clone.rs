//! CLONE (RFC 7862 §15.13): shares blocks, atomically.

use super::Rule;
use super::copy::open_files;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Clone;
use zgate_nfs_wire::v4::op::clone::Args;

impl Rule for Clone {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        cx.current()?;
        let from = cx.saved_object(Status::WrongType)?;
        let to = cx.writable_object()?;
        let (stateids, range) = ((args.from, args.to), (args.from_offset, args.count));
        let (source, target, changing, size) =
            open_files(cx, (&from, &to), stateids, range).await?;
        let store = &to.export.store;
        // Datasets below the export's root have a recordsize of their own.
        let traits = store.statfs(&to.node).await?.traits;
        let Some(block) = traits.clone_block_bytes.map(u64::from) else {
            return Err(Status::Notsupp.into());
        };
        let aligned =
            args.from_offset.is_multiple_of(block) && args.to_offset.is_multiple_of(block);
        let whole = args.count.is_multiple_of(block) || args.from_offset + args.count == size;
        if !aligned || !whole {
            return Err(Status::Inval.into());
        }
        let (from_offset, to_offset) = (args.from_offset, args.to_offset);
        let clone = async {
            store.clone_range(&source, from_offset, &target, to_offset, args.count).await?;
            // The reply has neither a verifier nor a degree of stability, as COPY's has: no
            // client asks for it by COMMIT, not even at fsync.
            store.commit(&target).await
        };
        Ok(changing.in_store(clone).await?)
    }
}
