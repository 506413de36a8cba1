//! Peers that follow a script and read nothing.

use super::client_end::{ClientEnd, SOCKET_BYTES};
use super::peer::{Now, Peer, Site};
use super::served::Stage;
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time limit of what waits for nothing.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

/// A script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptPlan {
    pub what: &'static str,
    pub host: IpAddr,
    /// Moment of the connection.
    pub begins: Duration,
    /// Room of the socket for what is not read, in bytes.
    pub room_bytes: usize,
    pub acts: Vec<(Duration, Act)>,
    /// Act from which the times below count; `None`: the connection.
    pub since: Option<usize>,
    /// Time within which the gateway ends the connection; `None`: it does not.
    pub ends_within: Option<Duration>,
    /// Time for which the gateway does not end it.
    pub least: Duration,
    /// There may be too many connections of its host.
    pub may_be_refused: bool,
    /// Answers wait for it that it does not take.
    pub may_outlast_drain: bool,
}

/// An act of a script.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Send(Bytes),
    /// Sends nothing any more.
    Finish,
    Close,
    Reset,
}

impl ScriptPlan {
    /// Connects, and does nothing else; the connection stays.
    pub(crate) fn silence(host: IpAddr, begins: Duration) -> Self {
        Self {
            what: "silence",
            host,
            begins,
            room_bytes: SOCKET_BYTES,
            acts: Vec::new(),
            since: None,
            ends_within: None,
            least: Duration::ZERO,
            may_be_refused: false,
            may_outlast_drain: false,
        }
    }

    /// The same, with one act; the connection is ended within a time from it.
    pub(crate) fn with(self, at: Duration, act: Act, ends_within: Duration) -> Self {
        let acts = vec![(at, act)];
        Self { acts, since: Some(0), ends_within: Some(ends_within), ..self }
    }

    /// The same, with a byte now and then from a moment on, for some time.
    pub(crate) fn with_drips(mut self, from: Duration, pause: Duration, time: Duration) -> Self {
        let count = (time.as_millis() / pause.as_millis()) as u32;
        let drips = (1..=count).map(|number| from + pause * number);
        self.acts.extend(drips.map(|at| (at, Act::Send(Bytes::from_static(&[0])))));
        self
    }
}

/// A peer that follows a script.
pub(crate) struct Script {
    plan: ScriptPlan,
    /// Time by which an end may be noticed late.
    step: Duration,
    name: String,
    end: Option<ClientEnd>,
    address: Option<SocketAddr>,
    /// Acts done.
    done: usize,
    /// Moment from which its times count, as [`Now::served`].
    since: Option<Duration>,
    has_left: bool,
    /// The gateway was seen to have ended it, before it stopped.
    is_ended: bool,
}

impl Script {
    /// A peer with a number; `step`: the longest step of time of its run.
    pub(crate) fn new(number: usize, plan: &ScriptPlan, step: Duration) -> Self {
        Self {
            plan: plan.clone(),
            step,
            name: format!("peer {number} ({}: {})", plan.host, plan.what),
            end: None,
            address: None,
            done: 0,
            since: None,
            has_left: false,
            is_ended: false,
        }
    }

    fn carry_out(&mut self, act: &Act) {
        let Some(end) = &mut self.end else { return };
        match act {
            Act::Send(bytes) => end.send(bytes),
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
}

impl Peer for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn act(&mut self, now: Now, site: &Site) -> Result<bool, String> {
        // What is sent to a held gateway would arrive when the kernel sends it again.
        if now.is_held || now.is_draining || self.has_left || now.at < self.plan.begins {
            return Ok(false);
        }
        let mut moved = false;
        if self.address.is_none() {
            let end = ClientEnd::connect(self.plan.host, site.address, self.plan.room_bytes);
            self.address = Some(end.address);
            self.end = Some(end);
            self.since = self.plan.since.is_none().then_some(now.served);
            moved = true;
        }
        while let Some((at, act)) = self.plan.acts.get(self.done) {
            if now.at < *at {
                break;
            }
            let act = act.clone();
            self.carry_out(&act);
            if self.plan.since == Some(self.done) {
                self.since = Some(now.served);
            }
            self.done += 1;
            moved = true;
        }
        Ok(self.end.as_mut().is_some_and(ClientEnd::flush) || moved)
    }

    fn look(&mut self, now: Now, site: &Site) -> Result<(), String> {
        if self.is_ended {
            return Ok(());
        }
        match self.stage(site) {
            Some(Stage::Ended) => {
                self.is_ended = true;
                if self.plan.ends_within.is_none() {
                    return Err(format!("{}: was ended, and may stay", self.name));
                }
                match self.since {
                    Some(since) if now.served < since + self.plan.least => {
                        Err(format!("{}: was ended too early", self.name))
                    }
                    _ => Ok(()),
                }
            }
            Some(Stage::Absent) if !self.plan.may_be_refused => {
                Err(format!("{}: was not accepted", self.name))
            }
            _ => Ok(()),
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn next(&self, site: &Site) -> Option<Duration> {
        if self.address.is_none() {
            return Some(self.plan.begins);
        }
        let is_served = self.stage(site) == Some(Stage::Served) && !self.has_left;
        self.plan.acts.get(self.done).filter(|_| is_served).map(|(at, _)| *at)
    }

    fn is_done(&self, site: &Site) -> bool {
        match self.stage(site) {
            None => false,
            Some(Stage::Served) => {
                self.plan.ends_within.is_none() && self.done == self.plan.acts.len()
            }
            Some(Stage::Absent | Stage::Ended) => true,
        }
    }

    fn overdue(&self, now: Now, site: &Site) -> Option<String> {
        let (since, ends_within) = (self.since?, self.plan.ends_within?);
        let time = now.served.saturating_sub(since);
        let is_overdue = time > ends_within + self.step && self.stage(site) == Some(Stage::Served);
        is_overdue.then(|| format!("{}: is still served after {time:?}", self.name))
    }

    fn may_outlast_drain(&self) -> bool {
        self.plan.may_outlast_drain
    }

    fn outcome(&self, site: &Site) -> String {
        let end = match self.stage(site) {
            None => "never came",
            Some(Stage::Absent) => "refused",
            _ if self.has_left => "left",
            _ if self.is_ended => "ended",
            _ => "stayed",
        };
        format!("{}: {end}", self.name)
    }

    fn leave(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
    }
}
