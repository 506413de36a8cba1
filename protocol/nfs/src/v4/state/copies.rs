//! Copies that continue after the reply to COPY (RFC 7862 §4.2).

use super::State;
use crate::limits::{FIRST_PAUSE_MILLISECONDS, SETTLE_WAIT_MILLISECONDS};
use crate::runtime::Runtime;
use crate::v4::callback::CallbackTarget;
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::quota::HostAccount;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{ClientId, Stateid, Status};

/// Most copies of one client, finished ones included, and those that its host's clients of
/// before have left running.
const MAX_JOBS_PER_CLIENT: usize = 64;
/// Time after which the end of a copy is told again, in seconds: longer than the timeout
/// of a callback.
const TELL_AGAIN_SECONDS: u64 = 6;
/// Most times that it is told; times without a way to the client do not count.
const MAX_TELLS: u32 = 5;

/// The end of a copy, which its client does not know for certain.
#[derive(Debug)]
struct Notice {
    op: CallbackOp,
    tells_left: u32,
    due_seconds: u64,
}

/// Progress of a copy.
#[derive(Debug, Default)]
pub struct Progress {
    copied: AtomicU64,
    cancelled: AtomicBool,
    ended: Mutex<Option<Status>>,
    notice: Mutex<Option<Notice>>,
}

impl Progress {
    /// True if the copy must stop.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Bytes copied so far.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Sets the bytes copied so far.
    pub fn set_copied(&self, bytes: u64) {
        self.copied.store(bytes, Ordering::Relaxed);
    }

    /// Ends the copy. Its client is about to be told by `op`, and again until it knows.
    pub fn end(&self, status: Status, op: CallbackOp, now_seconds: u64) {
        let due_seconds = now_seconds + TELL_AGAIN_SECONDS;
        *self.notice() = Some(Notice { op, tells_left: MAX_TELLS - 1, due_seconds });
        *self.ended() = Some(status);
    }

    /// Returns what ends the copy, with an error that the client learns by OFFLOAD_STATUS, if
    /// its work ends without an end: after a panic.
    pub(crate) fn ended_at_last(self: &Arc<Self>) -> EndedAtLast {
        EndedAtLast(Arc::clone(self))
    }

    /// Tells the client the end of the copy. If the client does not acknowledge it, it
    /// is told again after a while.
    pub(crate) async fn tell(&self, target: &CallbackTarget, op: CallbackOp) {
        let outcome = target.send(&[op]).await;
        if outcome.is_ok_and(|reply| reply.status == Status::Ok) {
            self.told();
        }
    }

    fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// Its client has cancelled it, and it has ended.
    fn has_ended_cancelled(&self) -> bool {
        self.cancelled() && self.has_ended()
    }

    /// It has ended, and the client need not be told any more.
    fn is_settled(&self) -> bool {
        // The notice is set first.
        self.has_ended() && (self.cancelled() || self.notice().is_none())
    }

    /// Waits for its end, for at most [`SETTLE_WAIT_MILLISECONDS`]; false: it goes on.
    async fn ends_soon(&self, runtime: &dyn Runtime) -> bool {
        let (mut pause, mut waited) = (FIRST_PAUSE_MILLISECONDS, 0);
        while !self.has_ended() && waited < SETTLE_WAIT_MILLISECONDS {
            runtime.sleep(pause).await;
            waited += pause;
            pause *= 2;
        }
        self.has_ended()
    }

    /// The client knows the end.
    fn told(&self) {
        *self.notice() = None;
    }

    fn is_due(&self, now_seconds: u64) -> bool {
        !self.cancelled()
            && self.notice().as_ref().is_some_and(|notice| now_seconds >= notice.due_seconds)
    }

    /// Takes the notice that is due now, if any; it counts as sent once more.
    fn take_due(&self, now_seconds: u64) -> Option<CallbackOp> {
        let mut kept = self.notice();
        let notice = kept.as_mut().filter(|notice| now_seconds >= notice.due_seconds)?;
        notice.due_seconds = now_seconds + TELL_AGAIN_SECONDS;
        notice.tells_left -= 1;
        let (op, is_last) = (notice.op.clone(), notice.tells_left == 0);
        if is_last {
            *kept = None;
        }
        Some(op)
    }

    fn notice(&self) -> MutexGuard<'_, Option<Notice>> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, Option<Status>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a copy that has no end yet when this is dropped.
pub(crate) struct EndedAtLast(Arc<Progress>);

impl Drop for EndedAtLast {
    fn drop(&mut self) {
        self.0.ended().get_or_insert(Status::Serverfault);
    }
}

type Jobs = HashMap<(ClientId, StateKey), Arc<Progress>>;

/// All copies by client and stateid.
#[derive(Debug, Default)]
pub struct CopyJobs {
    jobs: Mutex<Jobs>,
    left: Mutex<LeftCopies>,
}

/// Copies whose clients are gone, by the hosts of these. They have been told to stop, and
/// still write until storage has done what they asked of it. The token of the open that a
/// copy writes under keeps others waiting for that (state/settled.rs).
#[derive(Debug, Default)]
struct LeftCopies(Vec<(Arc<HostAccount>, Arc<Progress>)>);

impl LeftCopies {
    /// Number of those of a host that still write.
    fn of(&mut self, host: &Arc<HostAccount>) -> usize {
        self.forget_ended();
        self.0.iter().filter(|(of, _)| Arc::ptr_eq(of, host)).count()
    }

    fn forget_ended(&mut self) {
        self.0.retain(|(_, progress)| !progress.has_ended());
    }
}

impl CopyJobs {
    /// Adds a copy. If the client has too many, those go that have ended: first those
    /// that it has cancelled; only if that does not help, those whose end it knows, and
    /// at last those whose end it has yet to be told. What clients of its host that are
    /// gone still write takes places, too: otherwise a client that registers again and
    /// again could start any number while storage does not answer.
    ///
    /// # Errors
    /// [`Status::Delay`] if the client has too many.
    pub(crate) fn add(
        &self,
        client: ClientId,
        host: &Arc<HostAccount>,
        key: StateKey,
    ) -> Result<Arc<Progress>, Status> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.left().of(host);
        let has_too_many = |jobs: &Jobs| {
            let own = jobs.keys().filter(|(owner, _)| *owner == client).count();
            own + left >= MAX_JOBS_PER_CLIENT
        };
        let dispensable: [fn(&Progress) -> bool; 3] =
            [Progress::has_ended_cancelled, Progress::is_settled, Progress::has_ended];
        for may_go in dispensable {
            if has_too_many(&jobs) {
                jobs.retain(|(owner, _), progress| *owner != client || !may_go(progress));
            }
        }
        if has_too_many(&jobs) {
            return Err(Status::Delay);
        }
        let progress = Arc::new(Progress::default());
        jobs.insert((client, key), Arc::clone(&progress));
        Ok(progress)
    }

    fn left(&self) -> MutexGuard<'_, LeftCopies> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, client: ClientId, stateid: Stateid) -> Result<Arc<Progress>, Status> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(&(client, stateid.into())).cloned().ok_or(Status::BadStateid)
    }

    /// Bytes copied and, if it ended, the status: the client knows of the end then.
    ///
    /// # Errors
    /// [`Status::BadStateid`].
    pub fn status(&self, client: ClientId, copy: Stateid) -> Result<(u64, Option<Status>), Status> {
        let progress = self.get(client, copy)?;
        let ended = *progress.ended();
        if ended.is_some() {
            progress.told();
        }
        Ok((progress.copied(), ended))
    }

    /// Stops a copy, and removes it once it has ended: what its client writes after this
    /// must stay, and until then the copy takes a place of the client.
    ///
    /// # Errors
    /// [`Status::BadStateid`]; [`Status::Delay`] while the copy still writes: it has been
    /// told to stop.
    pub async fn cancel(
        &self,
        runtime: &dyn Runtime,
        client: ClientId,
        copy: Stateid,
    ) -> Result<(), Status> {
        let progress = self.get(client, copy)?;
        progress.cancelled.store(true, Ordering::Release);
        if !progress.ends_soon(runtime).await {
            return Err(Status::Delay);
        }
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.remove(&(client, copy.into()));
        Ok(())
    }

    /// The ends of copies that have to be told again, of clients to whom there is a way,
    /// in order.
    fn take_due(
        &self,
        now_seconds: u64,
        is_reachable: impl Fn(ClientId) -> bool,
    ) -> Vec<(ClientId, Arc<Progress>, CallbackOp)> {
        self.left().forget_ended();
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due: Vec<_> = jobs
            .iter()
            .filter(|((client, _), progress)| progress.is_due(now_seconds) && is_reachable(*client))
            .collect();
        due.sort_unstable_by_key(|(key, _)| **key);
        due.into_iter()
            .filter_map(|((client, _), progress)| {
                let op = progress.take_due(now_seconds)?;
                Some((*client, Arc::clone(progress), op))
            })
            .collect()
    }

    /// Stops and removes all copies of a client that is gone. Those that still write count
    /// for its host until they have ended.
    pub(crate) fn forget_client(&self, client: ClientId, host: &Arc<HostAccount>) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self.left();
        left.forget_ended();
        jobs.retain(|(owner, _), progress| {
            if *owner != client {
                return true;
            }
            progress.cancelled.store(true, Ordering::Release);
            if !progress.has_ended() {
                left.0.push((Arc::clone(host), Arc::clone(progress)));
            }
            false
        });
    }
}

impl State {
    /// Tells clients again that their copies have ended, if they did not acknowledge it
    /// and have a back channel: some wait for nothing but CB_OFFLOAD.
    pub(super) fn repeat_copy_notices(&self, tables: &Tables, now_seconds: u64) {
        let is_reachable = |client: ClientId| {
            let sessions = tables.clients.get(&client).map(|record| &record.sessions);
            let mut paths = sessions.into_iter().flatten().flat_map(|one| one.back_paths());
            paths.any(|path| self.runtime.connected(path))
        };
        for (client, progress, op) in self.copies.take_due(now_seconds, is_reachable) {
            let Some(target) = self.back.target(tables, client) else { continue };
            self.runtime.spawn(Box::pin(async move { progress.tell(&target, op).await }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::tables::quota::Hosts;
    use std::net::IpAddr;
    use zgate_nfs_wire::v4::Fh;

    const CLIENT: ClientId = ClientId(1);
    const ENDED_SECONDS: u64 = 100;

    fn host(hosts: &Hosts, last: u8) -> Arc<HostAccount> {
        hosts.account(IpAddr::from([192, 0, 2, last]))
    }

    /// Adds a copy of a client of any host.
    fn add(jobs: &CopyJobs, client: ClientId, number: usize) -> Result<Arc<Progress>, Status> {
        jobs.add(client, &host(&Hosts::default(), 1), key(number))
    }

    fn key(number: usize) -> StateKey {
        StateKey([number as u8; 12])
    }

    /// Adds a copy that has ended, and has been told once.
    fn ended(jobs: &CopyJobs, number: usize) -> Stateid {
        let stateid = key(number).stateid(1);
        let op = CallbackOp::Offload {
            fh: Fh(Vec::new()),
            stateid,
            status: Status::Ok,
            bytes: 0,
            committed: 0,
            verifier: [0; 8],
        };
        add(jobs, CLIENT, number).unwrap().end(Status::Ok, op, ENDED_SECONDS);
        stateid
    }

    /// The copies whose end is told again.
    fn told_again(jobs: &CopyJobs) -> Vec<Stateid> {
        let due = jobs.take_due(ENDED_SECONDS + TELL_AGAIN_SECONDS, |_| true);
        let copy = |op| match op {
            CallbackOp::Offload { stateid, .. } => stateid,
            other => panic!("{other:?}"),
        };
        due.into_iter().map(|(_, _, op)| copy(op)).collect()
    }

    #[test]
    fn a_copy_whose_end_is_known_makes_room_before_one_whose_end_is_not() {
        let jobs = CopyJobs::default();
        let untold = ended(&jobs, 0);
        for number in 1..MAX_JOBS_PER_CLIENT {
            let known = ended(&jobs, number);
            assert_eq!(jobs.status(CLIENT, known), Ok((0, Some(Status::Ok))));
        }
        assert!(add(&jobs, CLIENT, MAX_JOBS_PER_CLIENT).is_ok());
        assert_eq!(told_again(&jobs), [untold]);
    }

    #[test]
    fn a_cancelled_copy_that_has_ended_makes_room_first_and_is_not_told() {
        let jobs = CopyJobs::default();
        let cancel = |copy| {
            let progress = jobs.get(CLIENT, copy).unwrap();
            progress.cancelled.store(true, Ordering::Release);
        };
        let running = key(0).stateid(1);
        assert!(add(&jobs, CLIENT, 0).is_ok());
        let cancelled = ended(&jobs, 1);
        [running, cancelled].into_iter().for_each(cancel);
        let known = ended(&jobs, 2);
        assert_eq!(jobs.status(CLIENT, known), Ok((0, Some(Status::Ok))));
        for number in 3..MAX_JOBS_PER_CLIENT {
            ended(&jobs, number);
        }
        let told = told_again(&jobs);
        assert_eq!(told.len(), MAX_JOBS_PER_CLIENT - 3);
        assert!(!told.contains(&cancelled));
        assert!(add(&jobs, CLIENT, MAX_JOBS_PER_CLIENT).is_ok());
        assert_eq!(jobs.status(CLIENT, cancelled), Err(Status::BadStateid));
        assert_eq!(jobs.status(CLIENT, known), Ok((0, Some(Status::Ok))));
        assert_eq!(jobs.status(CLIENT, running), Ok((0, None)), "it still writes");
    }

    #[test]
    fn ends_that_nobody_acknowledges_make_room_at_last() {
        let jobs = CopyJobs::default();
        let running = key(0).stateid(1);
        assert!(add(&jobs, CLIENT, 0).is_ok());
        for number in 1..MAX_JOBS_PER_CLIENT {
            ended(&jobs, number);
        }
        let last = ended(&jobs, MAX_JOBS_PER_CLIENT);
        assert_eq!(told_again(&jobs), [last]);
        assert_eq!(jobs.status(CLIENT, running), Ok((0, None)), "it goes on");
    }

    #[test]
    fn a_copy_whose_work_is_gone_has_ended() {
        let jobs = CopyJobs::default();
        let stateid = ended(&jobs, 0);
        drop(jobs.get(CLIENT, stateid).unwrap().ended_at_last());
        assert_eq!(jobs.status(CLIENT, stateid), Ok((0, Some(Status::Ok))), "as it ended");
        let progress = add(&jobs, CLIENT, 1).unwrap();
        let at_last = progress.ended_at_last();
        assert_eq!(jobs.status(CLIENT, key(1).stateid(1)), Ok((0, None)));
        drop(at_last);
        let end = Some(Status::Serverfault);
        assert_eq!(jobs.status(CLIENT, key(1).stateid(1)), Ok((0, end)));
    }

    #[test]
    fn copies_under_way_make_no_room() {
        let jobs = CopyJobs::default();
        for number in 0..MAX_JOBS_PER_CLIENT {
            assert!(add(&jobs, CLIENT, number).is_ok());
        }
        assert_eq!(add(&jobs, CLIENT, MAX_JOBS_PER_CLIENT).err(), Some(Status::Delay));
        assert!(add(&jobs, ClientId(2), MAX_JOBS_PER_CLIENT).is_ok(), "another client's");
    }

    #[test]
    fn copies_of_clients_that_are_gone_count_for_their_host_until_they_have_ended() {
        let (jobs, hosts) = (CopyJobs::default(), Hosts::default());
        let (here, elsewhere) = (host(&hosts, 1), host(&hosts, 2));
        let running: Vec<_> = (0..MAX_JOBS_PER_CLIENT)
            .map(|number| jobs.add(CLIENT, &here, key(number)).unwrap())
            .collect();
        jobs.forget_client(CLIENT, &here);
        assert!(running.iter().all(|copy| copy.cancelled()), "they have been told to stop");
        let add = |client, host| jobs.add(ClientId(client), host, key(client as usize)).err();
        assert_eq!(add(2, &here), Some(Status::Delay), "they still write");
        assert_eq!(add(3, &elsewhere), None);
        *running[0].ended() = Some(Status::Ok);
        assert_eq!(add(4, &here), None);
        assert_eq!(add(4, &here), Some(Status::Delay), "one place had become free");
    }
}
