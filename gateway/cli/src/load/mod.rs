//! `zgate load`, `cp` and `ls`: the user-space client on the command line. It
//! needs no mount and no gateway on this machine, and works with any NFSv4.1
//! server.

mod copy;
mod list;
mod model;
mod remote;

pub(crate) use copy::CopyArgs;
pub(crate) use list::ListArgs;
pub(crate) use model::LoadArgs;

use std::error::Error;
use std::future::Future;

/// Runs `zgate load`.
///
/// # Errors
/// The file and the reason.
pub(crate) fn load(args: &LoadArgs) -> Result<bool, Box<dyn Error>> {
    block_on(model::run(args))
}

/// Runs `zgate cp`.
///
/// # Errors
/// The file and the reason.
pub(crate) fn copy(args: &CopyArgs) -> Result<bool, Box<dyn Error>> {
    block_on(copy::run(args))
}

/// Runs `zgate ls`.
///
/// # Errors
/// The file and the reason.
pub(crate) fn list(args: &ListArgs) -> Result<bool, Box<dyn Error>> {
    block_on(list::run(args))
}

fn block_on<T>(work: impl Future<Output = Result<T, Box<dyn Error>>>) -> Result<T, Box<dyn Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
