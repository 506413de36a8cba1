//! Hosts at error recovery levels 1 and 2: the session of the tests' recovering
//! initiator on virtual time. What is lost on the way is asked for again;
//! tasks of a lost connection move to another one.

use super::host::{Ended, HostSession, Lost, Sent};
use super::wires::Arrived;
use crate::executor::{Domain, MILLISECOND, SECOND, lock};
use crate::invariant::Invariant;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};
use zgate_iscsi::initiator::LoginScript;
use zgate_test_initiator::recovering::{RecoveringSession, Rejoin};

/// Silence after which recovery starts.
const PATIENCE_NANOS: u64 = 300 * MILLISECOND;
/// The same without a command under way.
const IDLE_NANOS: u64 = 5 * SECOND;
/// Timeout of a command, including recovery.
const LONGEST_SECONDS: u64 = 60;
/// Pause after a failed login.
const RETRY_NANOS: u64 = 300 * MILLISECOND;

struct Inside {
    session: RecoveringSession,
    /// Connections of the simulator by those of the session.
    links: BTreeMap<usize, u64>,
    waiting: BTreeMap<u64, oneshot::Sender<Ended>>,
}

/// The recovery of a host.
pub(super) struct Recovery {
    inside: Mutex<Inside>,
    wake: Notify,
}

impl Recovery {
    pub(super) fn new(script: LoginScript, same_cid: bool) -> Self {
        let rejoin = if same_cid { Rejoin::SameCid } else { Rejoin::Logout };
        let session = RecoveringSession::new(script, rejoin);
        let (links, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { inside: Mutex::new(Inside { session, links, waiting }), wake: Notify::new() }
    }

    /// Number of sessions so far.
    pub(super) fn generation(&self) -> u64 {
        lock(&self.inside).session.repairs.sessions as u64
    }

    /// Ends everything; returns the connections.
    pub(super) fn end(&self) -> Vec<u64> {
        let mut inside = lock(&self.inside);
        inside.waiting.clear();
        std::mem::take(&mut inside.links).into_values().collect()
    }
}

impl HostSession {
    /// Sends what the session has, and closes what it does not need.
    fn carry(&self, recovery: &Recovery) {
        let (closed, ended) = {
            let mut inside = lock(&recovery.inside);
            let Inside { session, links, waiting } = &mut *inside;
            let closed: Vec<u64> =
                session.take_closed().iter().filter_map(|number| links.remove(number)).collect();
            while let Some((number, pdu)) = session.poll_transmit() {
                if let Some(link) = links.get(&number) {
                    self.wires.send_up(*link, pdu);
                }
            }
            let mut ended = Vec::new();
            while let Some((ticket, done)) = session.poll_done() {
                ended.extend(waiting.remove(&ticket).map(|tell| (tell, done)));
            }
            (closed, ended)
        };
        closed.into_iter().for_each(|link| self.wires.cut(link));
        for (tell, done) in ended {
            let end = Ended::Done { status: done.status, sense: done.sense, data: done.data };
            // The command may have been given up.
            let _ = tell.send(end);
        }
    }

    /// Logs in, and recovers, until the host goes away.
    pub(super) async fn recover(self: Arc<Self>) {
        let Some(recovery) = self.recovery.as_ref() else { return };
        while !self.ended.load(Ordering::Acquire) {
            self.carry(recovery);
            let login = lock(&recovery.inside).session.next_login();
            if let Some((number, script)) = login {
                self.log_in_again(recovery, number, &script).await;
                continue;
            }
            let busy = lock(&recovery.inside).session.is_busy();
            let patience = if busy { PATIENCE_NANOS } else { IDLE_NANOS };
            if self.executor.within(patience, recovery.wake.notified()).await.is_none() {
                lock(&recovery.inside).session.silence();
            }
        }
    }

    async fn log_in_again(
        self: &Arc<Self>,
        recovery: &Recovery,
        number: usize,
        script: &LoginScript,
    ) {
        let Some((link, frames, outcome)) = self.log_in(script).await else {
            lock(&recovery.inside).session.login_failed(number);
            return self.executor.sleep(RETRY_NANOS).await;
        };
        let leads = script.tsih.0 == 0;
        {
            let mut inside = lock(&recovery.inside);
            inside.links.insert(number, link);
            inside.session.logged_in(number, outcome);
            if leads {
                inside.session.join(1);
            }
        }
        if leads {
            self.history.logged_in(self.number);
            self.trace.note(&self.name, format_args!("session {}", recovery.generation()));
        }
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, me.receive_and_recover(number, frames));
    }

    async fn receive_and_recover(
        self: Arc<Self>,
        number: usize,
        mut frames: UnboundedReceiver<Arrived>,
    ) {
        let Some(recovery) = self.recovery.as_ref() else { return };
        while let Some(Arrived { frame, .. }) = frames.recv().await {
            {
                let session = &mut lock(&recovery.inside).session;
                if session.receive(number, &frame).is_err() {
                    session.begin_again();
                }
            }
            self.carry(recovery);
            recovery.wake.notify_one();
        }
        lock(&recovery.inside).session.lost(number);
        recovery.wake.notify_one();
    }

    /// Starts a command as soon as there is a session with room for it.
    pub(super) async fn start(
        &self,
        recovery: &Recovery,
        (way, cdb): (usize, &[u8]),
        read_bytes: u32,
        write: Bytes,
    ) -> Sent {
        loop {
            let (tell, told) = oneshot::channel();
            let ticket = {
                let mut inside = lock(&recovery.inside);
                let Inside { session, waiting, .. } = &mut *inside;
                let ticket = session.start(way, super::LUN, cdb, read_bytes, write.clone());
                ticket.inspect(|ticket| drop(waiting.insert(*ticket, tell)))
            };
            if let Some(ticket) = ticket {
                self.carry(recovery);
                recovery.wake.notify_one();
                return Sent::recovering(ticket, told);
            }
            self.executor.sleep(RETRY_NANOS).await;
        }
    }

    /// Waits for the end of a command, over all recoveries.
    pub(super) async fn recovered(&self, sent: &mut Sent) -> Result<Ended, Lost> {
        let began = self.executor.nanos();
        let mut limit = LONGEST_SECONDS * SECOND;
        loop {
            if let Some(ended) = self.executor.within(limit, sent.told()).await {
                return ended.map_err(|_| Lost);
            }
            limit = IDLE_NANOS;
            let (healed, now) = (self.healed.load(Ordering::Acquire), self.executor.nanos());
            if self.history.was_reset_since(began) {
                // Commands that another host's reset ends get no answer.
                break;
            }
            if healed > 0 && now - began.max(healed) >= LONGEST_SECONDS * SECOND {
                let text = format!("{}: no answer after {LONGEST_SECONDS} s", self.name);
                self.history.fail(Invariant::BoundedAnswer, text);
                break;
            }
        }
        if let Some(recovery) = &self.recovery {
            let session = &mut lock(&recovery.inside).session;
            // Nobody expects it to run later.
            session.give_up(sent.ticket);
            session.begin_again();
            recovery.wake.notify_one();
        }
        Err(Lost)
    }
}
