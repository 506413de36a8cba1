//! WRITE (RFC 8881 §18.32).

use super::Rule;
use super::read::kind_first;
use crate::changes::ChangeGuard;
use crate::namespace::Object;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::{IoFile, open_for_change};
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::op::Write;
use zgate_nfs_wire::v4::op::write::{Args, Res};
use zgate_nfs_wire::v4::{StableHow, Stateid, Status};
use zgate_store::file_store::Stability;

/// The store's stability for stable_how4.
#[must_use]
pub fn stability(how: StableHow) -> Stability {
    match how {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

/// The stable_how4 for a store's stability.
#[must_use]
pub fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}

impl Rule for Write {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let object = match cx.writable_object() {
            Ok(object) => object,
            Err(status) => {
                let object = cx.object(Status::Isdir)?;
                return Err(kind_first(cx, &object, status).await.into());
            }
        };
        let len = args.data.len() as u64;
        let (file, changing) = open_range(cx, &object, args.stateid, args.offset, len).await?;
        let verifier = cx.server.write_verifier.of(&*object.export.store);
        if len == 0 {
            return Ok(Res { count: 0, committed: args.stable, verifier });
        }
        let store = &object.export.store;
        let write = store.write(&file, args.offset, args.data, stability(args.stable));
        let written = changing.in_store(write).await;
        let (count, done) = written?;
        Ok(Res { count: count as u32, committed: stable_how(done), verifier })
    }
}

/// As [`open_range`], for ALLOCATE and DEALLOCATE: a directory and a symbolic link are no
/// exceptions among what is no regular file (RFC 7862 §15.1.3, §15.4.3).
pub(super) async fn open_space(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    offset: u64,
    len: u64,
) -> Result<(IoFile, ChangeGuard), Failure> {
    let opened = open_range(cx, object, stateid, offset, len).await;
    opened.map_err(|failure| match failure.status {
        Status::Isdir | Status::Symlink => Status::WrongType.into(),
        _ => failure,
    })
}

/// Opens a file for a change of the data in this range. Errors of the object and of the stateid
/// precede those of the range.
async fn open_range(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    offset: u64,
    len: u64,
) -> Result<(IoFile, ChangeGuard), Failure> {
    let opened = match open_for_change(cx, object, stateid, IoAccess::Write).await {
        Ok(opened) => opened,
        Err(status) => return Err(kind_first(cx, object, status).await.into()),
    };
    let end = offset.checked_add(len).ok_or(Status::Inval)?;
    if end > object.export.store.traits().max_file_bytes {
        return Err(Status::Fbig.into());
    }
    Ok(opened)
}
