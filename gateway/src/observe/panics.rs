//! Panics of work that goes on: they are logged, and what comes after is not lost.

use std::any::Any;
use std::panic::AssertUnwindSafe;

/// Returns the message of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Logs a panic.
pub(crate) fn tell(what: &'static str, panic: &(dyn Any + Send)) {
    let panic = words(panic);
    tracing::error!(what, panic, "a bug of zgate: please report the lines above");
}

/// Runs work that blocks; `None` if it panicked, which is logged. A panic does not break this
/// program's locks: the state they guard is consistent at each step.
pub(crate) fn caught_blocking<T>(what: &'static str, work: impl FnOnce() -> T) -> Option<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(panic) => {
            tell(what, &*panic);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_panic_is_not_lost() {
        assert_eq!(caught_blocking("a test", || 1), Some(1));
        assert_eq!(caught_blocking::<u8>("a test", || panic!("told to")), None);
        assert_eq!(words(&"constant"), "constant");
        assert_eq!(words(&String::from("made")), "made");
        assert_eq!(words(&7), "no message");
    }
}
