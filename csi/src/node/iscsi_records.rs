//! Records of open-iscsi. An `iscsiadm` that updates or removes some goes through those of all
//! targets, and takes their lock for each portal. It tries to every 10 ms, 3,000 times at most,
//! in no order with others (`idbm_lock`, usr/idbm.c of open-iscsi). The lock is a link that does
//! not say whose it is: a command that is killed while it has it leaves it behind, and all others
//! wait for it. So this driver runs one such command at a time. The others wait for their turn
//! before they are started, outside of their limits.
//!
//! Commands that wait for a gateway have no turn. `--logout` and `-R` take sessions from sysfs,
//! not from records (`iscsi_logout_portals`, usr/session_mgmt.c). `--login` reads records first,
//! and has no lock while it waits (`login_portals`, usr/iscsiadm.c). A command that goes through
//! the same records has its turn before each login, so that few logins read at a time.

use super::host::{Host, HostError};
use crate::limits::{
    FIND_SECONDS, FORGET_SECONDS, LOGIN_SECONDS, MIN_RECORDS_SECONDS, RECORDS_ATTEMPTS,
    RECORDS_PAUSE,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout_at};

/// Exit status of `iscsiadm`: a record could not be read.
pub(super) const DATABASE_FAILURE: i32 = 6;

/// Lock of open-iscsi on its records: a second link to a file, which a killed `iscsiadm` leaves
/// behind. The file changes (ctime) when the lock is taken and given up, not when somebody waits
/// for it. Nobody holds it for longer than `LEFT_BEHIND`: no network is waited for with it. Two who
/// remove an old one at once might remove a new one; the driver does so in its turn alone.
const RECORDS_LOCK: &str = "/run/lock/iscsi/lock.write";
const LEFT_BEHIND: &str = "30 seconds ago";
/// A lock that is as old when a login is given up was there within seconds of its start, when it
/// reads its record. If the login was a little faster, the stage is repeated for nothing.
const BEFORE_LOGIN: &str = "15 seconds ago";
const _: () = assert!(LOGIN_SECONDS.as_secs() > 15 + 2, "a login reads its record at its start");

/// Turns of the driver's commands for records: first come, first served.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordTurns(Arc<Mutex<()>>);

/// A turn, until it is dropped. It does not wait for a killed command that is left behind: that one
/// changes nothing any more.
pub(super) struct Turn<'a> {
    host: &'a dyn Host,
    _held: MutexGuard<'a, ()>,
}

impl RecordTurns {
    /// Waits for a turn until `last`; one that is free is taken also later.
    ///
    /// # Errors
    /// [`HostError::NoTurn`]. Nothing was started.
    pub(super) async fn take<'a>(
        &'a self,
        host: &'a dyn Host,
        last: Instant,
    ) -> Result<Turn<'a>, HostError> {
        let begun = Instant::now();
        match timeout_at(last, self.0.lock()).await {
            Ok(held) => Ok(Turn { host, _held: held }),
            Err(_) => Err(HostError::NoTurn { waited: begun.elapsed() }),
        }
    }

    /// Removes the records that arguments of `iscsiadm` name, in a turn that comes until `last`.
    ///
    /// # Errors
    /// Those of [`Self::take`] and [`Turn::run`].
    pub(super) async fn delete(
        &self,
        host: &dyn Host,
        records: &[&str],
        last: Instant,
    ) -> Result<(), HostError> {
        let turn = self.take(host, last).await?;
        let arguments = [records, &["-o", "delete"]].concat();
        turn.run(&arguments, FORGET_SECONDS).await.map(drop)
    }
}

/// Returns whether a lock has kept a login, which has just been given up, from its record: it has
/// asked no portal then.
pub(super) async fn has_kept_login(host: &dyn Host) -> bool {
    find_lock(host, BEFORE_LOGIN, &["-print"]).await
}

/// Returns whether there is a lock that has not changed since then. `find` does these actions to
/// it; the first one prints it.
async fn find_lock(host: &dyn Host, since: &str, actions: &[&str]) -> bool {
    let arguments = [&[RECORDS_LOCK, "!", "-newerct", since][..], actions].concat();
    let found = host.run("find", &arguments, FIND_SECONDS).await;
    found.is_ok_and(|found| !found.trim().is_empty())
}

impl Turn<'_> {
    /// Runs an `iscsiadm` that changes records. It fails when somebody else's removes the record of
    /// another target meanwhile, and is repeated if enough of its time is left.
    ///
    /// # Errors
    /// The end of the last attempt.
    pub(super) async fn run(
        &self,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<String, HostError> {
        self.attempt(arguments, limit).await.0
    }

    /// Does what [`Self::run`] does, and once more if the lock of a killed `iscsiadm` was in its
    /// way: it takes twice the time at most.
    ///
    /// # Errors
    /// The end of the last attempt.
    pub(super) async fn run_past_old_lock(
        &self,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<String, HostError> {
        match self.attempt(arguments, limit).await {
            (Err(error), true) => {
                tracing::info!(%error, "again, without the lock");
                self.run(arguments, limit).await
            }
            (ended, _) => ended,
        }
    }

    /// Returns the end of the command, and whether an old lock was in its way, which is removed.
    async fn attempt(
        &self,
        arguments: &[&str],
        limit: Duration,
    ) -> (Result<String, HostError>, bool) {
        let end = Instant::now() + limit;
        let mut ended = self.host.run("iscsiadm", arguments, limit).await;
        for _ in 1..RECORDS_ATTEMPTS {
            let rest = end.saturating_duration_since(Instant::now() + RECORDS_PAUSE);
            let is_raced = ended.as_ref().is_err_and(|one| one.status() == Some(DATABASE_FAILURE));
            // With less it may be killed at any moment, also with the lock.
            if !is_raced || rest < MIN_RECORDS_SECONDS {
                break;
            }
            sleep(RECORDS_PAUSE).await;
            ended = self.host.run("iscsiadm", arguments, rest).await;
        }
        // One that is killed after a wait for its place counts as stuck.
        let is_killed = matches!(&ended, Err(HostError::TimedOut { .. } | HostError::Stuck));
        let is_unlocked = is_killed && self.remove_old_lock().await;
        (ended, is_unlocked)
    }

    /// Removes the lock that a killed `iscsiadm` has left behind, and returns whether there was
    /// one. Nobody can tell a younger one from that of an administrator's command.
    async fn remove_old_lock(&self) -> bool {
        let is_removed = find_lock(self.host, LEFT_BEHIND, &["-print", "-delete"]).await;
        if is_removed {
            tracing::warn!("the lock of a killed iscsiadm was removed");
        }
        is_removed
    }
}
