//! `zgate load`, `cp` and `ls`: the user-space client on the command line. It
//! needs no mount and no gateway on this machine, and works with any NFSv4.1
//! server.

mod copy;
mod list;
mod model;
mod part;
mod remote;
mod signals;

pub(crate) use copy::CopyArgs;
pub(crate) use list::ListArgs;
pub(crate) use model::LoadArgs;

use futures_util::FutureExt;
use signals::StopSignals;
use std::error::Error;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};

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

/// Runs the work until it ends or a signal stops it. However it ends, also by a
/// panic, its clients unregister from their servers before the process does; a
/// second signal ends the process at once.
fn block_on<T>(work: impl Future<Output = Result<T, Box<dyn Error>>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        let ended = tokio::select! {
            ended = AssertUnwindSafe(work).catch_unwind() => Ok(ended),
            signal = signals.next() => Err(signal),
        };
        tokio::select! {
            () = zgate_loader::all_left() => {}
            _ = signals.next() => {}
        }
        io::Result::Ok(ended)
    })?;
    // A thread may wait for another rank, or for the kernel.
    runtime.shutdown_background();
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(signal) => {
            eprintln!("zgate: stopped by {}", signal.name);
            std::process::exit(signal.exit_status());
        }
    }
}
