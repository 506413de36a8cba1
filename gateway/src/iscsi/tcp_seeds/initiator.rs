//! An initiator that waits for each answer before it goes on, and at last may stop in the
//! middle of something.

use super::draw::{HostPlan, LastWords, Step};
use crate::net::seeds::client_end::{ClientEnd, SOCKET_BYTES};
use crate::net::seeds::peer::{Now, Peer, Site};
use crate::net::seeds::run::STEP;
use crate::net::seeds::script::AT_ONCE;
use crate::net::seeds::served::Stage;
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::initiator::{Initiator, LoginOutcome, LoginScript, Notice};
use zgate_iscsi::pdu::{Frame, Lun, Outgoing};
use zgate_store::Payload;
use zgate_test_initiator::{read16, write16};

pub(super) const TARGET: &str = "iqn.2026-11.test.zgate:seeds";
const LUN: Lun = Lun(0);
/// Longest data segment that it accepts, in bytes.
const MAX_DATA_BYTES: u32 = 1 << 24;
/// Blocks of a host's part of the disk, and of one command.
const PART_BLOCKS: u64 = 2048;
const BLOCKS: u32 = 128;
const BYTES: usize = BLOCKS as usize * 512;
/// Commands whose data nobody takes.
const UNREAD_COMMANDS: usize = 24;
const UNREAD_BLOCKS: u32 = 512;
/// Times that a command is repeated after a unit attention.
const MOST_ATTENTIONS: usize = 8;
/// Step of time while an answer is waited for.
const SHORT_STEP: Duration = Duration::from_millis(100);
const CHECK_CONDITION: u8 = 2;
const UNIT_ATTENTION: u8 = 6;

/// Something that the target has to answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// `None`: a login request.
    step: Option<Step>,
    /// Moment, as [`Now::served`].
    at: Duration,
    in_hold: bool,
    is_waited_for: bool,
}

/// Next thing to do in a login.
pub(super) enum LoginStep {
    Ask(Outgoing),
    Done(Box<LoginOutcome>),
    Malformed,
}

/// Returns the next step of a login after these answers. The script runs from its beginning each
/// time: it asks the same.
pub(super) fn login_step(script: &LoginScript, answers: &[Frame]) -> LoginStep {
    let (mut given, mut asks) = (answers.iter(), None);
    let outcome = script.run(|pdu| {
        let answer = given.next().cloned();
        if answer.is_none() {
            asks = Some(pdu);
        }
        answer
    });
    match (outcome, asks) {
        (Some(outcome), _) => LoginStep::Done(Box::new(outcome)),
        (None, Some(pdu)) => LoginStep::Ask(pdu),
        (None, None) => LoginStep::Malformed,
    }
}

/// Returns a PDU as it is sent.
pub(super) fn encoded(encoder: &mut Encoder, pdu: Outgoing) -> Vec<u8> {
    let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
    encoder.encode(pdu, &mut pieces).unwrap();
    for piece in pieces {
        let Payload::Bytes(piece) = piece else { panic!("an initiator sends memory") };
        bytes.extend_from_slice(&piece);
    }
    bytes
}

/// The initiator.
pub(super) struct Host {
    plan: HostPlan,
    name: String,
    script: LoginScript,
    /// First block of its part of the disk.
    lba: u64,
    /// Content of all bytes of its part.
    fill: u8,
    end: Option<ClientEnd>,
    address: Option<SocketAddr>,
    encoder: Encoder,
    decoder: Decoder,
    /// Answers to its login requests.
    answers: Vec<Frame>,
    /// In full feature phase.
    initiator: Option<Initiator>,
    asked: Option<Asked>,
    attentions: usize,
    taken: usize,
    due: Duration,
    done: usize,
    /// Moment at which it stopped, or closed, as [`Now::served`].
    stopped_at: Option<Duration>,
    outcome: Option<&'static str>,
}

impl Host {
    pub(super) fn new(number: usize, plan: &HostPlan) -> Self {
        let name = format!("iqn.2026-11.test.zgate:host{number}");
        Self {
            plan: plan.clone(),
            script: LoginScript::normal(&name, TARGET),
            name: format!("host {number} ({})", plan.host),
            lba: number as u64 * PART_BLOCKS,
            fill: 0,
            end: None,
            address: None,
            encoder: Encoder::new(),
            decoder: Decoder::new(MAX_DATA_BYTES),
            answers: Vec::new(),
            initiator: None,
            asked: None,
            attentions: 0,
            taken: 0,
            due: Duration::ZERO,
            done: 0,
            stopped_at: None,
            outcome: None,
        }
    }

    fn connect(&mut self, now: Now, site: &Site) -> bool {
        if now.is_draining {
            self.outcome = Some("never came");
        }
        if now.is_draining || now.is_held || now.at < self.plan.begins {
            return false;
        }
        let room_bytes =
            if self.plan.last == LastWords::ReadsNothing { 64 << 10 } else { SOCKET_BYTES };
        let end = ClientEnd::connect(self.plan.host, site.address, room_bytes);
        self.address = Some(end.address);
        self.end = Some(end);
        true
    }

    fn send(&mut self, pdu: Outgoing) {
        let bytes = encoded(&mut self.encoder, pdu);
        if let Some(end) = &mut self.end {
            end.send(&bytes);
            end.flush();
        }
    }

    /// Sends what the initiator has to send.
    fn transmit(&mut self) {
        while let Some(pdu) = self.initiator.as_mut().and_then(Initiator::poll_transmit) {
            self.send(pdu);
        }
    }

    fn asked(step: Option<Step>, now: Now) -> Option<Asked> {
        Some(Asked { step, at: now.served, in_hold: now.is_held, is_waited_for: false })
    }

    /// Takes the PDUs that have come.
    fn take(&mut self, now: Now) -> Result<(), String> {
        let Some(end) = &mut self.end else { return Ok(()) };
        self.decoder.feed(Bytes::from(std::mem::take(&mut end.received)));
        loop {
            let polled = self.decoder.poll().map_err(|error| format!("{}: {error}", self.name))?;
            let Some(frame) = polled else { return Ok(()) };
            match &mut self.initiator {
                Some(initiator) => initiator.handle_pdu(frame),
                None => {
                    self.answers.push(frame);
                    self.asked = None;
                }
            }
            self.transmit();
            while let Some(notice) = self.initiator.as_mut().and_then(Initiator::poll_notice) {
                if let Notice::Done { status, sense, data, .. } = notice {
                    self.ended(status, &sense, &data, now)?;
                }
            }
        }
    }

    /// Looks at the end of its command.
    fn ended(&mut self, status: u8, sense: &[u8], data: &[u8], now: Now) -> Result<(), String> {
        let Some(Asked { step: Some(step), in_hold, .. }) = self.asked.take() else {
            return Err(format!("{}: an end of no command", self.name));
        };
        if in_hold && now.is_held {
            return Err(format!("{}: a held gateway has answered {step:?}", self.name));
        }
        let has_attention =
            status == CHECK_CONDITION && sense.get(2).is_some_and(|key| key & 15 == UNIT_ATTENTION);
        if has_attention && self.attentions < MOST_ATTENTIONS {
            self.attentions += 1;
            self.begin(step, now);
            return Ok(());
        }
        if status != 0 {
            return Err(format!("{}: {step:?} failed: {status:#x} {sense:x?}", self.name));
        }
        if step == Step::Read && *data != vec![self.fill; BYTES][..] {
            return Err(format!("{}: has read what nobody wrote", self.name));
        }
        self.attentions = 0;
        self.done += 1;
        Ok(())
    }

    /// Begins a command.
    fn begin(&mut self, step: Step, now: Now) {
        let Some(initiator) = &mut self.initiator else { return };
        let none = Bytes::new();
        match step {
            Step::Ready => initiator.command(LUN, &[0; 6], 0, none),
            Step::Read => initiator.command(LUN, &read16(self.lba, BLOCKS), BYTES as u32, none),
            Step::Write => {
                if self.attentions == 0 {
                    self.fill = self.fill.wrapping_add(1);
                }
                let data = Bytes::from(vec![self.fill; BYTES]);
                initiator.command(LUN, &write16(self.lba, BLOCKS, false), 0, data)
            }
        };
        self.asked = Self::asked(Some(step), now);
        self.transmit();
    }

    /// Asks for the next thing if it is due; returns whether it did.
    fn go_on(&mut self, now: Now) -> Result<bool, String> {
        if self.asked.is_some() || now.is_draining {
            return Ok(false);
        }
        if self.initiator.is_none() {
            return self.log_in(now).map(|()| true);
        }
        if now.at < self.due {
            return Ok(false);
        }
        if let Some((_, step)) = self.plan.steps.get(self.taken).copied() {
            self.begin(step, now);
            self.taken += 1;
            self.due = now.at + self.pause();
            return Ok(true);
        }
        if now.is_held || self.plan.last == LastWords::Stays {
            return Ok(false);
        }
        self.stop();
        self.stopped_at = Some(now.served);
        Ok(true)
    }

    fn log_in(&mut self, now: Now) -> Result<(), String> {
        match login_step(&self.script, &self.answers) {
            LoginStep::Ask(pdu) => {
                self.send(pdu);
                self.asked = Self::asked(None, now);
                Ok(())
            }
            LoginStep::Done(outcome) if outcome.status == (0, 0) => {
                self.initiator = Some(Initiator::new(&outcome));
                self.due = now.at + self.pause();
                Ok(())
            }
            LoginStep::Done(outcome) => {
                Err(format!("{}: login refused: {:?}", self.name, outcome.status))
            }
            LoginStep::Malformed => Err(format!("{}: a malformed login response", self.name)),
        }
    }

    fn pause(&self) -> Duration {
        self.plan.steps.get(self.taken).map_or(Duration::ZERO, |(pause, _)| *pause)
    }

    /// Stops as planned: nothing is sent or read any more.
    fn stop(&mut self) {
        let Some(initiator) = &mut self.initiator else { return };
        match self.plan.last {
            LastWords::Stays | LastWords::Deaf => {}
            LastWords::Closes => {
                self.end = None;
                self.outcome = Some("closed");
            }
            LastWords::HalfWrite => {
                let data = Bytes::from(vec![self.fill; BYTES]);
                initiator.command(LUN, &write16(self.lba, BLOCKS, false), 0, data);
                let Some(pdu) = initiator.poll_transmit() else { return };
                let bytes = encoded(&mut self.encoder, pdu);
                if let Some(end) = &mut self.end {
                    end.send(&bytes[..bytes.len() / 2]);
                    end.flush();
                }
            }
            LastWords::ReadsNothing => {
                let cdb = read16(self.lba, UNREAD_BLOCKS);
                for _ in 0..UNREAD_COMMANDS {
                    initiator.command(LUN, &cdb, UNREAD_BLOCKS * 512, Bytes::new());
                }
                self.transmit();
            }
        }
    }
}

impl Peer for Host {
    fn name(&self) -> &str {
        &self.name
    }

    fn act(&mut self, now: Now, site: &Site) -> Result<bool, String> {
        if self.outcome.is_some() {
            return Ok(false);
        }
        let Some(end) = &mut self.end else { return Ok(self.connect(now, site)) };
        let mut moved = end.flush();
        if self.stopped_at.is_some() {
            return Ok(moved);
        }
        moved |= end.receive();
        let is_over = end.is_over;
        self.take(now)?;
        if !is_over {
            return Ok(self.go_on(now)? || moved);
        }
        if !now.is_draining {
            return Err(format!("{}: its connection was ended", self.name));
        }
        self.end = None;
        self.outcome = Some("drained");
        Ok(true)
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn next(&self, _site: &Site) -> Option<Duration> {
        match (&self.end, self.outcome.is_some() || self.stopped_at.is_some()) {
            (_, true) => None,
            (None, false) => Some(self.plan.begins),
            (Some(_), false) => self.asked.is_none().then_some(self.due),
        }
    }

    fn is_done(&self, site: &Site) -> bool {
        if self.stopped_at.is_some() && self.outcome.is_none() {
            return self.stage(site) == Some(Stage::Ended);
        }
        let is_through = self.initiator.is_some() && self.taken == self.plan.steps.len();
        let stays = self.plan.last == LastWords::Stays;
        self.outcome.is_some() || is_through && self.asked.is_none() && stays
    }

    fn overdue(&self, now: Now, site: &Site) -> Option<String> {
        let late = self.asked.filter(|asked| now.served > asked.at + AT_ONCE);
        if let Some(Asked { step, at, .. }) = late {
            let (what, waited) = (step.map_or("login", Step::text), now.served - at);
            return Some(format!("{}: no answer to {what} for {waited:?}", self.name));
        }
        let time = now.served.saturating_sub(self.stopped_at?);
        let is_overdue =
            time > self.plan.ends_within + STEP && self.stage(site) == Some(Stage::Served);
        is_overdue.then(|| {
            let last = self.plan.last;
            format!("{}: {last:?}, and is still served after {time:?}", self.name)
        })
    }

    fn waiting(&self) -> Option<(&ClientEnd, Duration)> {
        let end = self.end.as_ref().filter(|_| self.asked.is_some())?;
        Some((end, SHORT_STEP))
    }

    fn is_surprised(&mut self) -> bool {
        let asked = self.asked.as_mut();
        asked.is_some_and(|asked| !std::mem::replace(&mut asked.is_waited_for, true))
    }

    fn waits_since_hold(&self) -> bool {
        self.asked.is_some_and(|asked| asked.in_hold)
    }

    fn may_outlast_drain(&self) -> bool {
        self.stopped_at.is_some() && self.plan.last == LastWords::ReadsNothing
    }

    fn outcome(&self, _site: &Site) -> String {
        let open = if self.stopped_at.is_some() { "ended" } else { "stayed" };
        let end = self.outcome.unwrap_or(open);
        format!("{}: {} commands, {end}", self.name, self.done)
    }

    fn leave(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
    }
}
