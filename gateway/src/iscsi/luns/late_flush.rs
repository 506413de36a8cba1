//! Flushes that do not end in time.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A flush that has not ended in time. It goes on: the kernel tells a lost write to
/// whoever asks first, and an initiator that flushes later has to learn of it.
#[derive(Debug, Default)]
pub(crate) struct LateFlush(Mutex<Weak<()>>);

impl LateFlush {
    fn running(&self) -> MutexGuard<'_, Weak<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_under_way(&self) -> bool {
        self.running().strong_count() > 0
    }

    /// Runs `flush` on a thread of its own and waits for it, at most `patience`. While
    /// an earlier one is late, none begins, so that threads do not accumulate.
    ///
    /// # Errors
    /// The error of the flush, or that it is late.
    pub(crate) fn run(
        &self,
        patience: Duration,
        flush: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let late = |reason: String| {
            let next_step = "check its pool with `zpool status`";
            io::Error::new(io::ErrorKind::TimedOut, format!("{reason}; {next_step}"))
        };
        if self.is_under_way() {
            return Err(late("an earlier flush has not ended".to_owned()));
        }
        let (done, ended) = channel();
        let runs = Arc::new(());
        let running = Arc::downgrade(&runs);
        std::thread::Builder::new().name("zgate-flush".to_owned()).spawn(move || {
            let result = flush();
            drop(runs);
            // Nobody waits for one that is late.
            let _ = done.send(result);
        })?;
        ended.recv_timeout(patience).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => {
                *self.running() = running;
                Err(late(format!("the volume has not answered for {} s", patience.as_secs())))
            }
            RecvTimeoutError::Disconnected => Err(io::Error::other("the flush panicked")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_does_not_end_is_an_error_and_no_second_one_begins() {
        let (late, long) = (LateFlush::default(), Duration::from_secs(60));
        let (ends, waits) = channel::<()>();
        let hangs = move || {
            let _ = waits.recv();
            Ok(())
        };
        let error = late.run(Duration::ZERO, hangs).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("not answered for 0 s; check its pool"), "{error}");
        let error = late.run(long, || panic!("one at a time")).unwrap_err();
        assert!(error.to_string().contains("an earlier flush"), "{error}");
        drop(ends);
        while late.is_under_way() {
            std::thread::yield_now();
        }
        late.run(long, || Ok(())).unwrap();
        let error = late.run(long, || Err(io::Error::other("lost"))).unwrap_err();
        assert_eq!(error.to_string(), "lost");
    }
}
