//! Implementations of the procedures, one file each, with their tests.
//! Arguments and results are in `zgate_nfs_wire::v3::proc`.

pub mod access;
pub mod commit;
pub mod create;
pub mod fsinfo;
pub mod fsstat;
pub mod getattr;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod null;
pub mod pathconf;
pub mod read;
pub mod readdir;
pub mod readdirplus;
pub mod readlink;
pub mod remove;
pub mod rename;
pub mod rmdir;
pub mod setattr;
pub mod symlink;
pub mod write;

#[cfg(test)]
pub(crate) mod rig;

use super::cx::Cx;
use super::guard::BorrowingFuture;
use zgate_nfs_wire::v3::{Procedure, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Server implementation of a procedure.
pub trait Rule: Procedure {
    /// Runs the procedure. `fail` is the result for an error; it is filled in
    /// as soon as its parts are known.
    fn run(
        cx: &Cx<'_>,
        args: Self::Args,
        fail: &mut Self::Fail,
    ) -> impl Future<Output = Result<Self::Ok, Status>> + Send;
}

/// Reads a procedure's arguments; the returned future runs it and writes the
/// result.
pub(super) fn run<'a, P: Rule>(
    cx: &'a Cx<'a>,
    d: &mut Decoder<'_>,
    e: &'a mut Encoder,
) -> Result<BorrowingFuture<'a, ()>, XdrError> {
    let args = P::Args::decode(d)?;
    Ok(Box::pin(async move {
        let mut fail = P::Fail::default();
        match P::run(cx, args, &mut fail).await {
            Ok(ok) => {
                Status::Ok.encode(e);
                ok.encode(e);
            }
            Err(status) => {
                debug_assert_ne!(status, Status::Ok, "a failure has a status other than OK");
                status.encode(e);
                fail.encode(e);
            }
        }
    }))
}
