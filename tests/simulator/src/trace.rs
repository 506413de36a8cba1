//! The trace of a run: every event with its virtual time, and a hash of all.

use crate::executor::{Executor, SECOND, lock};
use sha2::{Digest, Sha256};
use std::fmt::{Arguments, Write};
use std::sync::{Arc, Mutex};

/// Events of a run.
pub struct Trace {
    executor: Arc<Executor>,
    lines: Mutex<Vec<String>>,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(executor: Arc<Executor>) -> Self {
        Self { executor, lines: Mutex::default() }
    }

    /// Notes an event of `who`.
    pub fn note(&self, who: &str, what: Arguments<'_>) {
        let nanos = self.executor.elapsed();
        let mut line = format!("{:>4}.{:09} {who:<8} ", nanos / SECOND, nanos % SECOND);
        // Writing to a string does not fail.
        let _ = line.write_fmt(what);
        lock(&self.lines).push(line);
    }

    /// The events so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// Hash of all events and of the order in which tasks ran.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for line in lock(&self.lines).iter() {
            hasher.update(line);
            hasher.update("\n");
        }
        let (polls, schedule) = self.executor.schedule();
        hasher.update(polls.to_be_bytes());
        hasher.update(schedule.to_be_bytes());
        let mut text = String::new();
        for byte in &hasher.finalize()[..16] {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_changes_the_hash() {
        let trace = Trace::new(Executor::new(1));
        let before = trace.hash();
        trace.note("client0", format_args!("WRITE {}", 5));
        assert_ne!(trace.hash(), before);
        assert_eq!(trace.lines(), ["   0.000000000 client0  WRITE 5"]);
    }
}
