//! What the fuzz targets in `tests/` share. Each target is an ordinary test
//! that runs for a bounded time; `cargo bolero test` runs the same function
//! under a fuzzer that looks at coverage (docs/CONFORMANCE.md says how).
//!
//! `BOLERO_RANDOM_TEST_TIME_MS` makes every target run that long instead of
//! for [`INPUTS`] inputs, and `BOLERO_RANDOM_SEED` repeats one input.

mod dice;

pub use bolero;
pub use dice::Dice;

use std::time::{Duration, Instant};

/// Inputs of a target when nothing else is said.
pub const INPUTS: usize = 400;
/// What a target may take at most when nothing else is said.
pub const LONGEST: Duration = Duration::from_secs(5);

/// Counts the inputs of one target and says so at the end.
#[derive(Debug)]
pub struct Tally {
    target: &'static str,
    begun: Instant,
    inputs: std::cell::Cell<u64>,
}

impl Tally {
    /// Begins to count.
    #[must_use]
    pub fn new(target: &'static str) -> Self {
        Self { target, begun: Instant::now(), inputs: std::cell::Cell::new(0) }
    }

    /// One more input.
    pub fn count(&self) {
        self.inputs.set(self.inputs.get() + 1);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let (inputs, seconds) = (self.inputs.get(), self.begun.elapsed().as_secs_f64());
        println!("fuzz {}: {inputs} inputs in {seconds:.1} s", self.target);
    }
}

/// Declares a target: `target!(name, most_bytes, |dice| ...)` makes a test that
/// feeds inputs of up to `most_bytes` bytes.
#[macro_export]
macro_rules! target {
    ($name:ident, $most_bytes:expr, $run:expr) => {
        #[test]
        fn $name() {
            let tally = std::panic::AssertUnwindSafe($crate::Tally::new(stringify!($name)));
            let limited = std::env::var_os("BOLERO_RANDOM_TEST_TIME_MS").is_none();
            let check = $crate::bolero::check!().with_max_len($most_bytes);
            let check = if limited {
                check.with_iterations($crate::INPUTS).with_test_time($crate::LONGEST)
            } else {
                check
            };
            check.for_each(|input: &[u8]| {
                tally.0.count();
                let run: fn(&mut $crate::Dice<'_>) = $run;
                run(&mut $crate::Dice::new(input));
            });
        }
    };
}
