//! The peers of a seed in a run.

use super::calls::{Call, framed, take_records};
use super::plan::{AT_ONCE, Act, Bound, ClientPlan, Plan, ScriptPlan};
use super::room::Room;
use crate::net::seeds::client_end::{ClientEnd, SOCKET_BYTES};
use crate::net::seeds::served::Stage;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The present moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Time since the beginning.
    pub at: Duration,
    /// The same without the time of a hold, in which nobody is slow.
    pub served: Duration,
    pub is_held: bool,
    pub is_draining: bool,
}

/// A call without a reply.
#[derive(Clone, Copy, Debug)]
struct Sent {
    call: Call,
    /// Time of [`Now::served`].
    at: Duration,
    /// It was sent while the gateway was held.
    in_hold: bool,
    /// Its connection was waited for in real time.
    is_waited_for: bool,
    /// The gateway runs it although it stops.
    must_be_answered: bool,
}

/// A correct client.
pub(super) struct Client {
    plan: ClientPlan,
    name: String,
    end: Option<ClientEnd>,
    address: Option<SocketAddr>,
    /// Steps taken.
    taken: usize,
    /// Moment of the next step.
    due: Duration,
    sent: BTreeMap<u32, Sent>,
    xid: u32,
    replies: usize,
    /// Moment at which it has closed, as [`Now::served`].
    closed_at: Option<Duration>,
    /// End of its part in the run.
    outcome: Option<&'static str>,
}

impl Client {
    pub(super) fn new(number: usize, plan: &ClientPlan) -> Self {
        Self {
            plan: plan.clone(),
            name: format!("client {number} ({})", plan.host),
            end: None,
            address: None,
            taken: 0,
            due: Duration::ZERO,
            sent: BTreeMap::new(),
            xid: 0,
            replies: 0,
            closed_at: None,
            outcome: None,
        }
    }

    /// Does what is possible and due; returns whether it did anything.
    ///
    /// # Errors
    /// The gateway's violation.
    pub(super) fn act(&mut self, now: Now, room: &Room) -> Result<bool, String> {
        if self.outcome.is_some() {
            return Ok(false);
        }
        let Some(end) = &mut self.end else { return Ok(self.connect(now, room)) };
        let moved = end.flush() | end.receive();
        let (records, is_over) = (take_records(&mut end.received)?, end.is_over);
        for record in records {
            self.take(&record, now)?;
        }
        if is_over {
            return self.is_ended(now).map(|()| true);
        }
        Ok(self.step(now, room) || moved)
    }

    fn connect(&mut self, now: Now, room: &Room) -> bool {
        if now.is_draining {
            self.outcome = Some("never came");
        }
        // While a gateway is held, the kernel repeats the connection after a second.
        if now.is_draining || now.is_held || now.at < self.plan.begins {
            return false;
        }
        let end = ClientEnd::connect(self.plan.host, room.address, SOCKET_BYTES);
        self.address = Some(end.address);
        self.end = Some(end);
        self.due = now.at + self.pause();
        true
    }

    /// Pause before the next step, or before the end.
    fn pause(&self) -> Duration {
        self.plan.steps.get(self.taken).map_or(Duration::ZERO, |step| step.pause)
    }

    fn take(&mut self, record: &[u8], now: Now) -> Result<(), String> {
        let xid = record.first_chunk::<4>().map_or(0, |xid| u32::from_be_bytes(*xid));
        let Some(sent) = self.sent.remove(&xid) else {
            return Err(format!("{}: a reply to no call", self.name));
        };
        if sent.in_hold && now.is_held {
            return Err(format!("{}: a held gateway has answered {:?}", self.name, sent.call));
        }
        sent.call.check(record).map_err(|why| format!("{}: {why}", self.name))?;
        self.replies += 1;
        Ok(())
    }

    fn is_ended(&mut self, now: Now) -> Result<(), String> {
        if !now.is_draining {
            return Err(format!("{}: its connection was ended", self.name));
        }
        if let Some(sent) = self.sent.values().find(|sent| sent.must_be_answered) {
            let call = sent.call;
            return Err(format!("{}: a drain has lost {call:?}, which was running", self.name));
        }
        self.end = None;
        self.outcome = Some("drained");
        Ok(())
    }

    /// Takes the next step if it is due, or ends; returns whether it did.
    fn step(&mut self, now: Now, room: &Room) -> bool {
        if !self.sent.is_empty() || now.at < self.due || now.is_draining {
            return false;
        }
        let Some(step) = self.plan.steps.get(self.taken) else {
            if self.plan.closes && !now.is_held {
                self.end = None;
                self.outcome = Some("closed");
                self.closed_at = Some(now.served);
            }
            return self.plan.closes && !now.is_held;
        };
        let has_large = step.calls.iter().any(|call| call.is_large());
        let Some(end) = self.end.as_mut().filter(|_| !(now.is_held && has_large)) else {
            return false;
        };
        for call in &step.calls {
            self.xid += 1;
            end.send(&framed(&call.record(self.xid, &room.file), step.fragments));
            let sent = Sent {
                call: *call,
                at: now.served,
                in_hold: now.is_held,
                is_waited_for: false,
                must_be_answered: false,
            };
            self.sent.insert(self.xid, sent);
        }
        end.flush();
        self.taken += 1;
        self.due = now.at + self.pause();
        true
    }

    /// Learns that the gateway stops. One call alone is running; others may still be in
    /// the socket.
    pub(super) fn drain_begins(&mut self) {
        if self.sent.len() == 1 {
            self.sent.values_mut().for_each(|sent| sent.must_be_answered = !sent.call.is_large());
        }
    }

    /// Returns the moment of its next act.
    pub(super) fn next(&self) -> Option<Duration> {
        match (&self.end, self.outcome) {
            (_, Some(_)) => None,
            (None, None) => Some(self.plan.begins),
            (Some(_), None) => self.sent.is_empty().then_some(self.due),
        }
    }

    /// Returns whether it has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        let is_through = self.end.is_some() && self.taken == self.plan.steps.len();
        self.outcome.is_some() || is_through && self.sent.is_empty() && !self.plan.closes
    }

    /// Returns whether a call waits for its reply: a large one, or another one.
    pub(super) fn waits(&self, for_large: bool) -> bool {
        self.sent.values().any(|sent| sent.call.is_large() == for_large)
    }

    /// Returns whether a call that was sent in a hold has no reply yet.
    pub(super) fn waits_since_hold(&self) -> bool {
        self.sent.values().any(|sent| sent.in_hold)
    }

    /// Returns whether a call that waits for nothing has no reply, for the first time.
    pub(super) fn is_surprised(&mut self) -> bool {
        let mut small = self.sent.values_mut().filter(|sent| !sent.call.is_large());
        small.any(|sent| !std::mem::replace(&mut sent.is_waited_for, true))
    }

    /// Returns its end of a connection on which it waits for a reply.
    pub(super) fn waiting(&self) -> Option<&ClientEnd> {
        self.end.as_ref().filter(|_| !self.sent.is_empty())
    }

    /// Returns what the gateway owes it for too long, if anything.
    pub(super) fn overdue(&self, now: Now, room: &Room, plan: &Plan) -> Option<String> {
        if now.is_draining {
            return None;
        }
        let late = |sent: &&Sent| now.served > sent.at + plan.bound_of(sent.call);
        if let Some(Sent { call, at, .. }) = self.sent.values().find(late) {
            let waited = now.served - *at;
            return Some(format!("{}: no reply to {call:?} for {waited:?}", self.name));
        }
        let is_served = self.stage(room) == Some(Stage::Served);
        let is_late = self.closed_at.is_some_and(|at| now.served > at + AT_ONCE);
        (is_served && is_late).then(|| format!("{}: has closed and is still served", self.name))
    }

    /// Returns the stage of its connection, if it has one.
    pub(super) fn stage(&self, room: &Room) -> Option<Stage> {
        self.address.map(|address| room.served.stage(address))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Says how it fared.
    pub(super) fn outcome(&self) -> String {
        let end = self.outcome.unwrap_or("stayed");
        format!("{}: {} replies, {end}", self.name, self.replies)
    }

    /// Resets its connection.
    pub(super) fn leave(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
    }
}

/// A peer that follows a script.
pub(super) struct Script {
    plan: ScriptPlan,
    name: String,
    end: Option<ClientEnd>,
    address: Option<SocketAddr>,
    /// Acts done.
    done: usize,
    /// Moment from which its bound counts, as [`Now::served`].
    since: Option<Duration>,
    has_left: bool,
    /// The gateway was seen to have ended it, before it stopped.
    is_ended: bool,
}

impl Script {
    pub(super) fn new(number: usize, plan: &ScriptPlan) -> Self {
        Self {
            plan: plan.clone(),
            name: format!("peer {number} ({}: {})", plan.host, plan.what),
            end: None,
            address: None,
            done: 0,
            since: None,
            has_left: false,
            is_ended: false,
        }
    }

    /// Does what is possible and due; returns whether it did anything.
    pub(super) fn act(&mut self, now: Now, room: &Room) -> bool {
        // What is sent to a held gateway would arrive when the kernel sends it again.
        if now.is_held || now.is_draining || self.has_left || now.at < self.plan.begins {
            return false;
        }
        let mut moved = false;
        if self.address.is_none() {
            let end = ClientEnd::connect(self.plan.host, room.address, self.plan.room_bytes);
            self.address = Some(end.address);
            self.end = Some(end);
            self.since = self.plan.since.is_none().then_some(now.served);
            moved = true;
        }
        while let Some((_, act)) = self.plan.acts.get(self.done).filter(|(at, _)| now.at >= *at) {
            let act = act.clone();
            self.carry_out(&act, room);
            if self.plan.since == Some(self.done) {
                self.since = Some(now.served);
            }
            self.done += 1;
            moved = true;
        }
        self.end.as_mut().is_some_and(ClientEnd::flush) || moved
    }

    fn carry_out(&mut self, act: &Act, room: &Room) {
        let Some(end) = &mut self.end else { return };
        let bytes = |call: Call| framed(&call.record(self.done as u32 + 1, &room.file), 1);
        match act {
            Act::Send(bytes) => end.send(bytes),
            Act::Calls(call, copies) => {
                let call = bytes(*call);
                (0..*copies).for_each(|_| end.send(&call));
            }
            Act::Part(call, len) => end.send(&bytes(*call)[..*len]),
            Act::Finish => end.finish(),
            Act::Close | Act::Reset => {
                end.flush();
                self.has_left = true;
            }
        }
        if matches!(act, Act::Reset) {
            self.leave();
        } else if self.has_left {
            self.end = None;
        }
    }

    /// Looks at its connection.
    ///
    /// # Errors
    /// If it was not taken, or ended too early.
    pub(super) fn look(&mut self, now: Now, room: &Room) -> Result<(), String> {
        if self.is_ended || now.is_draining {
            return Ok(());
        }
        match self.stage(room) {
            Some(Stage::Ended) => {
                self.is_ended = true;
                if self.plan.bound == Bound::Never {
                    return Err(format!("{}: was ended, and may stay", self.name));
                }
                let since = self.since.filter(|since| now.served < *since + self.plan.least);
                since.map_or(Ok(()), |_| Err(format!("{}: was ended too early", self.name)))
            }
            Some(Stage::Absent) if !self.plan.may_be_refused => {
                Err(format!("{}: was not accepted", self.name))
            }
            _ => Ok(()),
        }
    }

    /// Returns the complaint that the gateway still serves it, if it should not.
    pub(super) fn overdue(&self, now: Now, room: &Room, plan: &Plan) -> Option<String> {
        let (since, bound) = (self.since?, plan.end_bound(self.plan.bound)?);
        let time = now.served.saturating_sub(since);
        let is_overdue =
            time > bound && !now.is_draining && self.stage(room) == Some(Stage::Served);
        is_overdue.then(|| format!("{}: is still served after {time:?}", self.name))
    }

    /// Returns the moment of its next act.
    pub(super) fn next(&self, room: &Room) -> Option<Duration> {
        if self.address.is_none() {
            return Some(self.plan.begins);
        }
        let is_served = self.stage(room) == Some(Stage::Served) && !self.has_left;
        self.plan.acts.get(self.done).filter(|_| is_served).map(|(at, _)| *at)
    }

    /// Returns whether nothing is left to happen to it.
    pub(super) fn is_done(&self, room: &Room) -> bool {
        match self.stage(room) {
            None => false,
            Some(Stage::Served) => {
                self.plan.bound == Bound::Never && self.done == self.plan.acts.len()
            }
            Some(Stage::Absent | Stage::Ended) => true,
        }
    }

    /// Returns the stage of its connection, if it has one.
    pub(super) fn stage(&self, room: &Room) -> Option<Stage> {
        self.address.map(|address| room.served.stage(address))
    }

    /// Returns whether replies wait for it that it will not read.
    pub(super) fn reads_nothing(&self) -> bool {
        self.plan.unread_bytes > 0
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Says how it fared.
    pub(super) fn outcome(&self, room: &Room) -> String {
        let end = match self.stage(room) {
            None => "never came",
            Some(Stage::Absent) => "refused",
            _ if self.has_left => "left",
            _ if self.is_ended => "ended",
            _ => "stayed",
        };
        format!("{}: {end}", self.name)
    }

    /// Resets its connection.
    pub(super) fn leave(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
    }
}
