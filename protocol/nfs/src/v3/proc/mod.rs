//! The procedures, one file each: arguments, result, rule, tests.

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
use super::guard::LocalBox;
use super::wire::Status;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// A procedure whose result begins with a status: all but NULL.
pub trait Procedure {
    /// Its number.
    const NUMBER: u32;
    /// What it takes.
    type Args: Decode + Encode + 'static;
    /// What follows NFS3_OK.
    type Ok: Decode + Encode;
    /// What follows any other status.
    type Fail: Decode + Encode + Default;

    /// Runs it. `fail` is what is sent when it does not succeed; it is filled
    /// in as soon as it is known.
    fn run(
        cx: &Cx<'_>,
        args: Self::Args,
        fail: &mut Self::Fail,
    ) -> impl Future<Output = Result<Self::Ok, Status>>;
}

/// Reads a procedure's arguments; the work returned runs it and writes the
/// result.
pub(super) fn run<'a, P: Procedure>(
    cx: &'a Cx<'a>,
    d: &mut Decoder<'_>,
    e: &'a mut Encoder,
) -> Result<LocalBox<'a, ()>, XdrError> {
    let args = P::Args::decode(d)?;
    Ok(Box::pin(async move {
        let mut fail = P::Fail::default();
        match P::run(cx, args, &mut fail).await {
            Ok(ok) => {
                Status::Ok.encode(e);
                ok.encode(e);
            }
            Err(status) => {
                debug_assert_ne!(status, Status::Ok, "a failure says why");
                status.encode(e);
                fail.encode(e);
            }
        }
    }))
}
