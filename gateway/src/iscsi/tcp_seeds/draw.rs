//! Draws a schedule from a seed.

use super::initiator::{LoginStep, TARGET, encoded, login_step};
use crate::iscsi::limits::{LAST_WORDS_TIMEOUT, LOGIN_TIMEOUT, PING_AFTER, PING_TIMEOUT};
use crate::net::seeds::run::{Phases, STEP};
use crate::net::seeds::script::{AT_ONCE, Act, ScriptPlan};
use crate::net::seeds::split_mix::SplitMix;
use bytes::Bytes;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use zgate_iscsi::framing::Encoder;
use zgate_iscsi::initiator::LoginScript;

/// Time over which a byte now and then is sent.
const DRIPS: Duration = Duration::from_secs(60);
/// Connections of a crowd, some of them beyond the limit of a host.
const CROWD: RangeInclusive<u64> = 24..=44;

/// The schedule.
#[derive(Debug)]
pub(super) struct Plan {
    /// Memory of all requests together, in bytes.
    pub budget_bytes: usize,
    pub phases: Phases,
    pub hosts: Vec<HostPlan>,
    pub scripts: Vec<ScriptPlan>,
}

/// A host that logs in.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub host: IpAddr,
    /// Moment of the connection.
    pub begins: Duration,
    /// Commands, each after a pause.
    pub steps: Vec<(Duration, Step)>,
    pub last: LastWords,
    /// Time within which the gateway ends its connection after that.
    pub ends_within: Duration,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Ready,
    Read,
    Write,
}

impl Step {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Ready => "TEST UNIT READY",
            Self::Read => "READ",
            Self::Write => "WRITE",
        }
    }
}

/// Last act of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastWords {
    Stays,
    Closes,
    /// Answers no ping.
    Deaf,
    /// Stops in the middle of a WRITE.
    HalfWrite,
    /// Takes nothing of what it reads.
    ReadsNothing,
}

/// Behaviour of a peer that does not log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Silent,
    HalfLogin,
    Drip,
    Garbage,
    HalfClose,
    Reset,
    Visit,
    Crowd,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Silent,
        Self::HalfLogin,
        Self::Drip,
        Self::Garbage,
        Self::HalfClose,
        Self::Reset,
        Self::Visit,
        Self::Crowd,
    ];
}

/// A schedule in the making.
struct Draft {
    seed: u64,
    random: SplitMix,
    addresses: u8,
    hosts: Vec<HostPlan>,
    scripts: Vec<ScriptPlan>,
}

/// Draws the schedule of a seed.
pub(super) fn draw(seed: u64) -> Plan {
    let (random, hosts, scripts) = (SplitMix::new(seed), Vec::new(), Vec::new());
    let mut draft = Draft { seed, random, addresses: 0, hosts, scripts };
    let budget_bytes = draft.random.count(8..=16) << 20;
    let is_held = draft.random.once_in(8);
    let hold = is_held.then(|| {
        let from = Duration::from_secs(draft.random.within(20..=90));
        from..from + Duration::from_secs(draft.random.within(5..=40))
    });
    let drains = !is_held && draft.random.once_in(4);
    let drain_at = drains.then(|| draft.random.millis(30_000..=200_000));
    let peers = draft.random.count(3..=12);
    let hosts = draft.random.count(1..=peers.min(6) as u64);
    (0..hosts).for_each(|_| draft.host(is_held));
    draft.allow_late_intake();
    (hosts..peers).for_each(|_| draft.script());
    let drain_bound = LAST_WORDS_TIMEOUT + AT_ONCE;
    let phases = Phases { short: None, hold, drain_at, drain_bound };
    let Draft { hosts, scripts, .. } = draft;
    Plan { budget_bytes, phases, hosts, scripts }
}

impl Draft {
    /// Returns another address; seeds have addresses of their own, as far as it goes.
    fn address(&mut self) -> IpAddr {
        self.addresses += 1;
        IpAddr::from([127, 3, (self.seed % 250) as u8 + 1, self.addresses])
    }

    fn host(&mut self, is_held: bool) {
        let count = self.random.count(4..=20);
        let steps = (0..count).map(|_| {
            let step = self.random.one_of(&[Step::Ready, Step::Read, Step::Write]);
            (self.random.millis(200..=15_000), step)
        });
        let steps = steps.collect();
        let last = match is_held {
            // Its answers would wait for the socket while the gateway is held.
            true => self.random.one_of(&[LastWords::Stays, LastWords::Closes, LastWords::Deaf]),
            false => self.random.one_of(&[
                LastWords::Stays,
                LastWords::Closes,
                LastWords::Deaf,
                LastWords::HalfWrite,
                LastWords::ReadsNothing,
            ]),
        };
        // Each of the two is noticed at a step, and a hold begins the wait anew.
        let silence = (PING_AFTER + PING_TIMEOUT) * (1 + u32::from(is_held)) + 2 * STEP;
        let ends_within = if last == LastWords::Closes { AT_ONCE } else { silence };
        let (host, begins) = (self.address(), self.random.millis(0..=60_000));
        self.hosts.push(HostPlan { host, begins, steps, last, ends_within });
    }

    /// Gives hosts that take nothing the time that the memory of others costs. Commands of such
    /// a host stay in the socket while there is no memory for their data. When a host ends that
    /// held some, the target may take in more of them: only then it has heard them, and its
    /// patience begins anew. Each of the other hosts that stop with data held ends once; one more
    /// time is for what a command of a correct host, or the kernel, has held at the beginning.
    fn allow_late_intake(&mut self) {
        let holds =
            |host: &&HostPlan| matches!(host.last, LastWords::HalfWrite | LastWords::ReadsNothing);
        let times = 1 + self.hosts.iter().filter(holds).count() as u32;
        for host in self.hosts.iter_mut().filter(|host| host.last == LastWords::ReadsNothing) {
            host.ends_within *= times;
        }
    }

    fn script(&mut self) {
        let has_crowd = self.scripts.iter().any(|script| script.what == "a crowd");
        let kind = self.random.one_of(&Kind::ALL);
        let kind = if kind == Kind::Crowd && has_crowd { Kind::Silent } else { kind };
        let (host, begins) = (self.address(), self.random.millis(0..=60_000));
        let soon = begins + self.random.millis(0..=5_000);
        let silence =
            ScriptPlan { ends_within: Some(LOGIN_TIMEOUT), ..ScriptPlan::silence(host, begins) };
        let login = login_request();
        let half = login.slice(..self.random.count(1..=login.len() as u64 - 1));
        let named = |what: &'static str| ScriptPlan { what, ..silence.clone() };
        // A login is timed from the connection on.
        let from_connection = |script: ScriptPlan| ScriptPlan { since: None, ..script };
        let script = match kind {
            Kind::Silent => silence,
            Kind::Crowd => ScriptPlan { may_be_refused: true, ..named("a crowd") },
            Kind::HalfLogin => {
                from_connection(named("half a login").with(soon, Act::Send(half), LOGIN_TIMEOUT))
            }
            Kind::Drip => {
                let pause = self.random.millis(500..=4_000);
                from_connection(named("a login in drips").with_drips(begins, pause, DRIPS))
            }
            Kind::Garbage => {
                let garbage = Act::Send(Bytes::from_static(&[0xff; 64]));
                named("garbage").with(soon, garbage, AT_ONCE)
            }
            Kind::HalfClose | Kind::Reset => {
                let (what, act) = match kind {
                    Kind::HalfClose => ("half a close", Act::Finish),
                    _ => ("a reset in a login", Act::Reset),
                };
                let mut script = named(what).with(soon, Act::Send(half), AT_ONCE);
                script.acts.push((soon, act));
                ScriptPlan { since: Some(1), ..script }
            }
            Kind::Visit => {
                let act = if self.random.once_in(2) { Act::Close } else { Act::Reset };
                // It has gone before it is accepted.
                ScriptPlan { may_be_refused: true, ..named("a visit").with(begins, act, AT_ONCE) }
            }
        };
        let copies = if kind == Kind::Crowd { self.random.count(CROWD) } else { 1 };
        self.scripts.extend(std::iter::repeat_n(script, copies));
    }
}

/// The first request of a login.
fn login_request() -> Bytes {
    let script = LoginScript::normal("iqn.2026-11.test.zgate:nobody", TARGET);
    let LoginStep::Ask(pdu) = login_step(&script, &[]) else { panic!("a login asks first") };
    encoded(&mut Encoder::new(), pdu).into()
}
