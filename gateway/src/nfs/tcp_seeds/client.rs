//! A correct client: it waits for the replies to its calls before it goes on.

use super::calls::{Call, framed, take_records};
use super::plan::{Bounds, ClientPlan};
use crate::net::seeds::client_end::{ClientEnd, SOCKET_BYTES};
use crate::net::seeds::peer::{Now, Peer, Site};
use crate::net::seeds::script::AT_ONCE;
use crate::net::seeds::served::Stage;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Step of time while a call waits that should not have to, and while one waits for memory.
const SHORT_STEP: Duration = Duration::from_millis(100);
const MEMORY_STEP: Duration = Duration::from_secs(1);

/// A call without a reply.
#[derive(Clone, Copy, Debug)]
struct Sent {
    call: Call,
    /// Moment, as [`Now::served`].
    at: Duration,
    /// It was sent while the gateway was held.
    in_hold: bool,
    /// Its reply was waited for in real time.
    is_waited_for: bool,
    /// The gateway runs it although it stops.
    must_be_answered: bool,
}

/// A correct client.
pub(super) struct Client {
    plan: ClientPlan,
    bounds: Bounds,
    name: String,
    /// Handle of the file.
    file: Vec<u8>,
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
    /// A client with a number that uses the file with this handle.
    pub(super) fn new(number: usize, plan: &ClientPlan, bounds: Bounds, file: &[u8]) -> Self {
        Self {
            plan: plan.clone(),
            bounds,
            name: format!("client {number} ({})", plan.host),
            file: file.to_vec(),
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

    fn connect(&mut self, now: Now, site: &Site) -> bool {
        if now.is_draining {
            self.outcome = Some("never came");
        }
        // While a gateway is held, the kernel repeats the connection after a second.
        if now.is_draining || now.is_held || now.at < self.plan.begins {
            return false;
        }
        let end = ClientEnd::connect(self.plan.host, site.address, SOCKET_BYTES);
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
    fn step(&mut self, now: Now) -> bool {
        if !self.sent.is_empty() || now.at < self.due || now.is_draining {
            return false;
        }
        let Some(step) = self.plan.steps.get(self.taken) else {
            let closes = self.plan.closes && !now.is_held;
            if closes {
                self.end = None;
                self.outcome = Some("closed");
                self.closed_at = Some(now.served);
            }
            return closes;
        };
        // After a hold nothing but the kernel may keep a call waiting.
        let is_unfit = now.is_held && step.calls.iter().any(|call| call.is_large());
        let Some(end) = self.end.as_mut().filter(|_| !is_unfit) else { return false };
        for call in &step.calls {
            self.xid += 1;
            end.send(&framed(&call.record(self.xid, &self.file), step.fragments));
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
}

impl Peer for Client {
    fn name(&self) -> &str {
        &self.name
    }

    fn act(&mut self, now: Now, site: &Site) -> Result<bool, String> {
        if self.outcome.is_some() {
            return Ok(false);
        }
        let Some(end) = &mut self.end else { return Ok(self.connect(now, site)) };
        let moved = end.flush() | end.receive();
        let (records, is_over) = (take_records(&mut end.received)?, end.is_over);
        for record in records {
            self.take(&record, now)?;
        }
        if is_over {
            return self.is_ended(now).map(|()| true);
        }
        Ok(self.step(now) || moved)
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn next(&self, _site: &Site) -> Option<Duration> {
        match (&self.end, self.outcome) {
            (_, Some(_)) => None,
            (None, None) => Some(self.plan.begins),
            (Some(_), None) => self.sent.is_empty().then_some(self.due),
        }
    }

    fn is_done(&self, _site: &Site) -> bool {
        let is_through = self.end.is_some() && self.taken == self.plan.steps.len();
        self.outcome.is_some() || is_through && self.sent.is_empty() && !self.plan.closes
    }

    fn overdue(&self, now: Now, site: &Site) -> Option<String> {
        let late = |sent: &&Sent| now.served > sent.at + self.bounds.of(sent.call);
        if let Some(Sent { call, at, .. }) = self.sent.values().find(late) {
            let waited = now.served - *at;
            return Some(format!("{}: no reply to {call:?} for {waited:?}", self.name));
        }
        let is_served = self.stage(site) == Some(Stage::Served);
        let is_late = self.closed_at.is_some_and(|at| now.served > at + AT_ONCE);
        (is_served && is_late).then(|| format!("{}: has closed and is still served", self.name))
    }

    fn waiting(&self) -> Option<(&ClientEnd, Duration)> {
        let end = self.end.as_ref().filter(|_| !self.sent.is_empty())?;
        let waits_for_memory = self.sent.values().all(|sent| sent.call.is_large());
        Some((end, if waits_for_memory { MEMORY_STEP } else { SHORT_STEP }))
    }

    fn is_surprised(&mut self) -> bool {
        let is_prompt = self.bounds.is_prompt;
        let mut small = self.sent.values_mut().filter(|sent| is_prompt && !sent.call.is_large());
        small.any(|sent| !std::mem::replace(&mut sent.is_waited_for, true))
    }

    fn waits_since_hold(&self) -> bool {
        self.sent.values().any(|sent| sent.in_hold)
    }

    /// One call alone is running; others may still be in the socket.
    fn drain_begins(&mut self) {
        if self.sent.len() == 1 {
            self.sent.values_mut().for_each(|sent| sent.must_be_answered = !sent.call.is_large());
        }
    }

    fn outcome(&self, _site: &Site) -> String {
        let end = self.outcome.unwrap_or("stayed");
        format!("{}: {} replies, {end}", self.name, self.replies)
    }

    fn leave(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
    }
}
