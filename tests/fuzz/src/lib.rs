//! Code shared by the fuzz targets in `tests/`. Each target is an ordinary test
//! that runs for a bounded time; `cargo bolero test` runs the same function
//! under a coverage-guided fuzzer (see docs/CONFORMANCE.md).
//!
//! `BOLERO_RANDOM_TEST_TIME_MS` makes every target run that long instead of
//! for [`INPUTS`] inputs, and `BOLERO_RANDOM_SEED` repeats one input.

mod dice;

pub use bolero;
pub use dice::Dice;

use bolero::ValueGenerator;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default number of inputs of a target.
pub const INPUTS: usize = 2000;
/// Default time limit of a target.
pub const LONGEST: Duration = Duration::from_secs(3);

/// Counts the inputs of one target and prints the number at the end.
#[derive(Debug)]
pub struct Tally {
    target: &'static str,
    begun: Instant,
    inputs: AtomicU64,
}

impl Tally {
    /// Begins to count.
    #[must_use]
    pub fn new(target: &'static str) -> Self {
        Self { target, begun: Instant::now(), inputs: AtomicU64::new(0) }
    }

    /// Counts one input.
    pub fn count(&self) {
        self.inputs.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let (inputs, seconds) =
            (self.inputs.load(Ordering::Relaxed), self.begun.elapsed().as_secs_f64());
        println!("fuzz {}: {inputs} inputs in {seconds:.1} s", self.target);
    }
}

/// Makes inputs of up to `most_bytes` bytes.
#[must_use]
pub fn inputs(most_bytes: usize) -> impl ValueGenerator<Output = Vec<u8>> {
    bolero::produce::<Vec<u8>>().with().len(0..=most_bytes)
}

/// Declares a target: `target!(name, most_bytes, |dice| ...)` makes a test that
/// feeds inputs of up to `most_bytes` bytes.
#[macro_export]
macro_rules! target {
    ($name:ident, $most_bytes:expr, $run:expr) => {
        #[test]
        fn $name() {
            let tally = $crate::Tally::new(stringify!($name));
            let limited = std::env::var_os("BOLERO_RANDOM_TEST_TIME_MS").is_none();
            let check = $crate::bolero::check!()
                .with_max_len($most_bytes + 64)
                .with_generator($crate::inputs($most_bytes));
            let check = if limited {
                check.with_iterations($crate::INPUTS).with_test_time($crate::LONGEST)
            } else {
                check
            };
            check.for_each(|input: &Vec<u8>| {
                tally.count();
                let run: fn(&mut $crate::Dice<'_>) = $run;
                run(&mut $crate::Dice::new(input));
            });
        }
    };
}
