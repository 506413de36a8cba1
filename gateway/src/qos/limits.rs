//! Bounds of rates.

use std::time::Duration;

/// Longest time for which a request waits for its rate; one that waited as long goes
/// on, whatever its rate. Hosts give a command 30 s, and count it as lost then; a task
/// management function waits for the commands that it ends.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(10);
/// Idle time that counts as saved: requests worth so much time pass at once.
pub(crate) const BURST: Duration = Duration::from_millis(250);
const _: () = assert!(BURST.as_millis() < MAX_WAIT.as_millis());

/// Least and largest limits; the same for volumes of the API and for entries of the
/// configuration.
const _: () = assert!(
    zgate_config::rates::MIN_IOPS == zgate_control::volume::MIN_IOPS
        && zgate_config::rates::MAX_IOPS == zgate_control::volume::MAX_IOPS
        && zgate_config::rates::MIN_BYTES_PER_SECOND == zgate_control::volume::MIN_BYTES_PER_SECOND
        && zgate_config::rates::MAX_BYTES_PER_SECOND == zgate_control::volume::MAX_BYTES_PER_SECOND
);
