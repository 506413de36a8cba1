//! Results of suites, and the line that sums them up.

use serde::Serialize;
use std::time::{Duration, Instant};

/// Result of one suite.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Name of the suite.
    pub(crate) suite: String,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed, by name and reason.
    pub(crate) failed: Vec<String>,
    /// Tests that were not run, by name and reason.
    pub(crate) skipped: Vec<String>,
    /// Time it took, in seconds.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Creates a result without tests.
    pub(crate) fn new(suite: impl Into<String>) -> Self {
        Self {
            suite: suite.into(),
            passed: 0,
            failed: Vec::new(),
            skipped: Vec::new(),
            seconds: 0.0,
        }
    }

    /// Counts one check.
    pub(crate) fn check(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(reason) => self.failed.push(format!("{name}: {reason}")),
        }
    }
}

/// Work of a suite that runs beside others.
pub(crate) type Work<'a> = Box<dyn FnOnce(&mut Outcome) -> std::io::Result<()> + Send + 'a>;

/// Results of all suites of a run.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    outcomes: Vec<Outcome>,
}

impl Totals {
    /// Runs a suite and prints its result. An error is a failure, never a skip.
    pub(crate) fn run(
        &mut self,
        suite: &str,
        work: impl FnOnce(&mut Outcome) -> std::io::Result<()>,
    ) {
        eprintln!("== {suite}");
        let begun = Instant::now();
        let mut outcome = Outcome::new(suite);
        if let Err(error) = work(&mut outcome) {
            outcome.failed.push(format!("{suite}: {error}"));
        }
        self.add(outcome, begun.elapsed());
    }

    /// Runs suites that wait for clocks most of the time, all at once, and prints their
    /// results in their order. An error is a failure, never a skip.
    pub(crate) fn run_at_once(&mut self, suites: Vec<(&str, Work<'_>)>) {
        let begin = |suite: &str, work: Work<'_>| {
            let (begun, mut outcome) = (Instant::now(), Outcome::new(suite));
            if let Err(error) = work(&mut outcome) {
                outcome.failed.push(format!("{suite}: {error}"));
            }
            (outcome, begun.elapsed())
        };
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            for (suite, work) in suites {
                eprintln!("== {suite}, beside others");
                running.push((suite, scope.spawn(move || begin(suite, work))));
            }
            for (suite, thread) in running {
                match thread.join() {
                    Ok((outcome, took)) => self.add(outcome, took),
                    Err(_) => self.run(suite, |_| Err(std::io::Error::other("it panicked"))),
                }
            }
        });
    }

    /// Adds the result of a suite that ran elsewhere.
    pub(crate) fn add(&mut self, mut outcome: Outcome, took: Duration) {
        outcome.seconds = took.as_secs_f64();
        for failure in &outcome.failed {
            eprintln!("   FAILED {failure}");
        }
        for skip in &outcome.skipped {
            eprintln!("   skipped {skip}");
        }
        eprintln!(
            "   {}: {} passed, {} failed, {} skipped, {:.0} s",
            outcome.suite,
            outcome.passed,
            outcome.failed.len(),
            outcome.skipped.len(),
            outcome.seconds
        );
        self.outcomes.push(outcome);
    }

    /// Records a suite that cannot run here, and how to get it.
    pub(crate) fn skip(&mut self, suite: &str, reason: &str) {
        let mut outcome = Outcome::new(suite);
        outcome.skipped.push(format!("{suite}: {reason}"));
        self.add(outcome, Duration::ZERO);
    }

    /// Returns whether nothing failed.
    pub(crate) fn all_passed(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.failed.is_empty())
    }

    /// Returns the line of totals.
    pub(crate) fn line(&self) -> String {
        let sum = |of: fn(&Outcome) -> usize| self.outcomes.iter().map(of).sum::<usize>();
        format!(
            "total: {} suites, {} passed, {} failed, {} skipped",
            self.outcomes.len(),
            sum(|o| o.passed),
            sum(|o| o.failed.len()),
            sum(|o| o.skipped.len())
        )
    }

    /// Returns JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "passed": self.all_passed(), "suites": self.outcomes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_suite_is_a_failure() {
        let mut totals = Totals::default();
        totals.run("good", |outcome| {
            outcome.check("one", Ok(()));
            Ok(())
        });
        assert!(totals.all_passed());
        totals.run("bad", |_| Err(std::io::Error::other("did not start")));
        totals.skip("absent", "not here");
        assert!(!totals.all_passed());
        assert_eq!(totals.line(), "total: 3 suites, 1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn suites_beside_each_other_keep_their_order_and_their_errors() {
        let (send, wait) = std::sync::mpsc::channel();
        let mut totals = Totals::default();
        totals.run_at_once(vec![
            (
                "waits for the second",
                Box::new(move |outcome| {
                    wait.recv().map_err(std::io::Error::other)?;
                    outcome.check("one", Ok(()));
                    Ok(())
                }),
            ),
            ("second", Box::new(move |_| send.send(()).map_err(std::io::Error::other))),
            ("bad", Box::new(|_| Err(std::io::Error::other("did not start")))),
        ]);
        let names: Vec<_> = totals.outcomes.iter().map(|one| one.suite.as_str()).collect();
        assert_eq!(names, ["waits for the second", "second", "bad"]);
        assert_eq!(totals.line(), "total: 3 suites, 1 passed, 1 failed, 0 skipped");
    }
}
