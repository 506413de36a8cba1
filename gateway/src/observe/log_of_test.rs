//! The log of a test, in memory.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use tracing::{Dispatch, Level};

/// Lines of a log in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `run` and returns what this thread logged meanwhile, down to `level`,
/// beside the result.
pub(crate) fn logged<T>(level: Level, run: impl FnOnce() -> T) -> (T, String) {
    hear_each_line();
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    let result = tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    (result, text)
}

/// Keeps one subscriber registered that wants every line, for the process.
///
/// With one subscriber in the process, `tracing` asks only the thread that
/// reaches a line first whether the line is wanted, and keeps the answer: a test
/// without a log, on another thread, would switch the line off for the test that
/// has one. With two it asks them all.
fn hear_each_line() {
    static EACH: OnceLock<Dispatch> = OnceLock::new();
    EACH.get_or_init(|| {
        let each = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(io::sink);
        Dispatch::new(each.finish())
    });
    tracing::callsite::rebuild_interest_cache();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_thread_without_log_reached_first_is_there() {
        let line = || tracing::warn!("reached on two threads");
        let ((), text) = logged(Level::TRACE, || {
            std::thread::spawn(line).join().unwrap();
            line();
        });
        assert_eq!(text.matches("reached on two threads").count(), 1, "{text}");
    }
}
