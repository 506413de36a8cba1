//! Places for commands. Few run at a time, with those that wait for dead servers and cannot be
//! ended; a further one waits for a place.

use crate::limits::{MAX_ENDINGS, MAX_STUCK_CHILDREN, MIN_RECORDS_SECONDS};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Places for commands.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) free: Arc<Semaphore>,
    /// Those of commands that end what others wait for.
    endings: Arc<Semaphore>,
}

/// Returns whether a command changes records of open-iscsi. One that is killed may leave the lock
/// of them behind.
fn changes_records(program: &str, arguments: &[&str]) -> bool {
    program == "iscsiadm" && arguments.contains(&"-o")
}

/// Returns whether a command ends what others wait for: a session, the queue of a multipath
/// device, a mount. Those that wait may have all other places, and keep them until it has run.
fn is_ending(program: &str, arguments: &[&str]) -> bool {
    match program {
        // Those of records run one at a time: while one of them waited for a place, the end of a
        // session could not be completed.
        "iscsiadm" => arguments.contains(&"--logout") || changes_records(program, arguments),
        "multipath" => arguments.contains(&"-f"),
        "multipathd" => arguments.contains(&"disablequeueing"),
        "umount" => arguments.iter().any(|argument| ["-f", "-l"].contains(argument)),
        _ => false,
    }
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(MAX_STUCK_CHILDREN)),
            endings: Arc::new(Semaphore::new(MAX_ENDINGS)),
        }
    }

    /// Takes a place for a command that ends at `end`, and waits for one until there is no time
    /// left for the command. Returns also whether it has waited; none if no place came in time.
    pub(super) async fn take(
        &self,
        (program, arguments): (&str, &[&str]),
        end: Instant,
    ) -> Option<(OwnedSemaphorePermit, bool)> {
        let places = if is_ending(program, arguments) { &self.endings } else { &self.free };
        if let Ok(permit) = Arc::clone(places).try_acquire_owned() {
            return Some((permit, false));
        }
        let changes_records = changes_records(program, arguments);
        let needed = if changes_records { MIN_RECORDS_SECONDS } else { Duration::ZERO };
        let last = end.checked_sub(needed).unwrap_or(end);
        match timeout_at(last, Arc::clone(places).acquire_owned()).await {
            Ok(Ok(permit)) => Some((permit, true)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FORGET_SECONDS;

    /// Nobody else ends those that hold all others.
    #[tokio::test]
    async fn commands_that_end_the_waits_of_others_have_places_of_their_own() {
        let places = Places::new();
        let all = u32::try_from(MAX_STUCK_CHILDREN).unwrap();
        let _others = Arc::clone(&places.free).acquire_many_owned(all).await.unwrap();
        let commands: [(&str, &[&str], bool); 9] = [
            ("iscsiadm", &["-m", "node", "-T", "t", "--logout"], true),
            ("iscsiadm", &["-m", "node", "-T", "t", "-o", "new"], true),
            ("multipathd", &["disablequeueing", "map", "/dev/dm-0"], true),
            ("multipath", &["-f", "/dev/dm-0"], true),
            ("umount", &["-i", "-c", "-l", "/a"], true),
            ("iscsiadm", &["-m", "node", "-T", "t", "--login"], false),
            ("multipath", &["-v1", "/dev/sda"], false),
            ("umount", &["-i", "-c", "/a"], false),
            ("sync", &["-f", "/a"], false),
        ];
        for (program, arguments, has_place) in commands {
            let place = places.take((program, arguments), Instant::now()).await;
            assert_eq!(place.is_some(), has_place, "{program} {arguments:?}");
        }
    }

    /// Killed soon after its start, it could leave the lock of the records behind.
    #[tokio::test(start_paused = true)]
    async fn a_command_for_records_gets_no_place_that_comes_too_late_for_it() {
        let places = Places::new();
        let all = u32::try_from(MAX_ENDINGS).unwrap();
        let _others = Arc::clone(&places.endings).acquire_many_owned(all).await.unwrap();
        let delete: &[&str] = &["-m", "node", "-T", "t", "-o", "delete"];
        let end = Instant::now() + FORGET_SECONDS;
        assert!(places.take(("iscsiadm", delete), end).await.is_none());
        let rest = end.saturating_duration_since(Instant::now());
        assert!(rest + Duration::from_millis(10) > MIN_RECORDS_SECONDS, "{rest:?}");
        assert!(rest <= MIN_RECORDS_SECONDS, "it waits as long as it can: {rest:?}");
        // Others may use all of their time.
        let log_out: &[&str] = &["-m", "node", "-T", "t", "--logout"];
        assert!(places.take(("iscsiadm", log_out), end).await.is_none());
        assert!(Instant::now() >= end);
    }
}
