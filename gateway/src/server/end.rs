//! The end of the gateway.

use super::run::Gateway;
use super::systemd::notify;
use std::time::Duration;

/// Time that a stop may take beside that of the gateway itself: for the port mapper, and for open
/// files.
const REST_OF_STOP: Duration = Duration::from_secs(10);

/// Returns the words that tell a service manager of a stop, and how long it may take: otherwise
/// drains that are longer than its own limit would be cut off.
fn stopping(longest: Duration) -> String {
    format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", (longest + REST_OF_STOP).as_micros())
}

/// Stops the service. Before all else no more requests are taken, however long `end_others`
/// takes: a manager of services gives the whole stop one limit.
pub(super) fn wind_down(gateway: &Gateway, end_others: impl FnOnce()) {
    notify(&stopping(gateway.longest_stop()));
    gateway.shared.network.drain.begin();
    tracing::info!("draining: running requests are finished, new ones are not accepted");
    end_others();
    gateway.stop();
    tracing::info!("stopped");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_asks_for_the_time_of_its_drain() {
        let said = stopping(Duration::from_secs(605));
        assert_eq!(said, "STOPPING=1\nEXTEND_TIMEOUT_USEC=615000000");
    }
}
