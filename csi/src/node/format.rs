//! Programs that make, check and grow file systems. On a large disk they take hours, for longer
//! than a caller waits. The call goes on under the lock of its volume, which refuses the caller's
//! repeated calls, until one of them finds the work done.

use super::host::{Host, HostError};
use crate::limits::{FORMAT_LOOK_SECONDS, FORMAT_SECONDS, MAX_FORMATS, MAX_LOOKS_AWAY};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Places for such programs.
#[derive(Clone, Debug)]
pub(super) struct Formats(Arc<Semaphore>);

impl Formats {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_FORMATS)))
    }

    /// Runs a program on a disk of an iSCSI target to its end; the log says each minute that it
    /// runs. It is given up if no session with the target is logged in for two of them: the
    /// volume of a dead gateway stays locked no longer.
    ///
    /// # Errors
    /// The end of the program, or that there is no place for it.
    pub(super) async fn run(
        &self,
        host: &dyn Host,
        target: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<String, HostError> {
        let place = timeout(FORMAT_LOOK_SECONDS, Arc::clone(&self.0).acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(HostError::Stuck) };
        let begun = Instant::now();
        let mut looks_away = 0;
        let mut goes_on = || {
            looks_away = if host.is_logged_in(target) { 0 } else { looks_away + 1 };
            let seconds = begun.elapsed().as_secs();
            tracing::info!(program, ?arguments, seconds, looks_away, "a file system is worked on");
            looks_away < MAX_LOOKS_AWAY
        };
        host.run_while(program, arguments, FORMAT_SECONDS, Box::new(place), &mut goes_on).await
    }
}
