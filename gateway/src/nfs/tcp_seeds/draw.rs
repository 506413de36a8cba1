//! Draws a schedule from a seed.

use super::calls::{Call, FILE_BYTES, framed};
use super::plan::{ClientPlan, MAX_CALLS, OtherPeer, Plan, Step};
use crate::net::seeds::run::{Phases, STEP};
use crate::net::seeds::script::{AT_ONCE, Act, ScriptPlan};
use crate::net::seeds::split_mix::SplitMix;
use crate::nfs::limits::{
    CHECK_PERIOD, IDLE_CHECK_PERIOD, MAX_UNNAMED_RECORD_BYTES, RECORD_CHECKS, SCARCE_SILENT_CHECKS,
    SILENT_CHECKS, UNNAMED_CHECKS, UNREAD_CHECKS,
};
use bytes::Bytes;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use zgate_rpc::limits::{MAX_FRAGMENTS, MAX_RECORD_BYTES};

/// Network of the hosts that the export names.
pub(super) const NAMED: &str = "127.1.0.0/16";

/// Longest time between two checks.
const CHECK: Duration = Duration::from_secs(CHECK_PERIOD.as_secs() + STEP.as_secs());
/// Time for a host that no export names to complete a call.
const NO_CALL: Duration = Duration::from_secs(CHECK.as_secs() * (UNNAMED_CHECKS as u64 + 1));
/// Time without a byte in the middle of a record. The first check may be an idle one's.
const SILENT: Duration = late(SILENT_CHECKS);
/// Time for a record.
const RECORD: Duration = late(RECORD_CHECKS);
/// Time in which no byte of replies is taken; twice: the kernel may move a rest into the
/// peer's socket once more.
const UNREAD: Duration = late(2 * UNREAD_CHECKS + 1);
/// Time that a peer has in the middle of a record, whoever waits for memory.
const LEAST: Duration = time(SCARCE_SILENT_CHECKS);
/// Time over which a byte now and then is sent.
const DRIPS: Duration = Duration::from_secs(600);
/// Room of the socket of a peer that reads nothing, in bytes.
const LITTLE_ROOM: usize = 16 << 10;
/// Connections of a crowd, some of them beyond the limit of a host.
const CROWD: RangeInclusive<u64> = 20..=32;
/// The same of hosts that no export names: they leave room for others of their kind.
const CROWD_OF_STRANGERS: RangeInclusive<u64> = 10..=24;

/// The shortest time in which there are so many checks.
const fn time(checks: u32) -> Duration {
    Duration::from_secs(CHECK_PERIOD.as_secs() * checks as u64)
}

/// The longest one on a connection that was idle before, and one more for the first one.
const fn late(checks: u32) -> Duration {
    let first_seconds = IDLE_CHECK_PERIOD.as_secs() + STEP.as_secs();
    Duration::from_secs(first_seconds + CHECK.as_secs() * (checks as u64 + 1))
}

/// Behaviour of a peer that is no correct client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Silent,
    HalfMarker,
    HalfRecord,
    Drip,
    Garbage,
    NotACall,
    TooLong,
    TooManyFragments,
    HalfClose,
    Visit,
    Crowd,
    // Of hosts that hold memory.
    HalfLargeRecord,
    LargeDrip,
    ReadsNothing,
    Flood,
    ResetInRecord,
    CrowdWithRecords,
    // Of hosts that no export names.
    StrangerSilent,
    StrangerDrip,
    StrangerTooLong,
    StrangerRead,
    StrangerFlood,
    StrangerCrowd,
}

impl Kind {
    const OF_NAMED: [Self; 11] = [
        Self::Silent,
        Self::HalfMarker,
        Self::HalfRecord,
        Self::Drip,
        Self::Garbage,
        Self::NotACall,
        Self::TooLong,
        Self::TooManyFragments,
        Self::HalfClose,
        Self::Visit,
        Self::Crowd,
    ];
    const WITH_MEMORY: [Self; 6] = [
        Self::HalfLargeRecord,
        Self::LargeDrip,
        Self::ReadsNothing,
        Self::Flood,
        Self::ResetInRecord,
        Self::CrowdWithRecords,
    ];
    const OF_STRANGERS: [Self; 6] = [
        Self::StrangerSilent,
        Self::StrangerDrip,
        Self::StrangerTooLong,
        Self::StrangerRead,
        Self::StrangerFlood,
        Self::StrangerCrowd,
    ];

    /// Returns the size of a crowd.
    fn crowd(self) -> Option<RangeInclusive<u64>> {
        match self {
            Self::Crowd | Self::CrowdWithRecords => Some(CROWD),
            Self::StrangerCrowd => Some(CROWD_OF_STRANGERS),
            _ => None,
        }
    }
}

/// A schedule in the making.
struct Draft<'a> {
    seed: u64,
    random: SplitMix,
    /// Handle of the file.
    file: &'a [u8],
    hosts: u8,
    has_crowd: bool,
    clients: Vec<ClientPlan>,
    others: Vec<OtherPeer>,
}

/// Draws the schedule of a seed, with calls of the file with this handle.
pub(super) fn draw(seed: u64, file: &[u8]) -> Plan {
    let (random, clients, others) = (SplitMix::new(seed), Vec::new(), Vec::new());
    let mut draft = Draft { seed, random, file, hosts: 0, has_crowd: false, clients, others };
    let budget_bytes = draft.random.count(6..=16) << 20;
    // What a client has sent in a hold comes again when the kernel says so: nothing else may
    // keep it waiting then.
    let is_held = draft.random.once_in(8);
    let hold = is_held.then(|| draft.span(20..=90, 5..=40));
    let is_slow = !is_held && draft.random.once_in(4);
    let store_delay = if is_slow { draft.random.millis(200..=2_000) } else { Duration::ZERO };
    let short = (!is_held && draft.random.once_in(5)).then(|| draft.span(10..=100, 5..=60));
    let drains = !is_held && draft.random.once_in(4);
    let drain_at = drains.then(|| draft.random.millis(30_000..=200_000));
    let peers = draft.random.count(3..=12);
    let clients = draft.random.count(1..=peers.min(4) as u64);
    for _ in 0..clients {
        match draft.random.once_in(6) {
            true => draft.stranger(),
            false => draft.client(),
        }
    }
    (clients..peers).for_each(|_| draft.other(!is_held));
    let phases = Phases { short, hold, drain_at, drain_bound: Duration::ZERO };
    let Draft { clients, others, .. } = draft;
    Plan { budget_bytes, store_delay, phases, clients, others }.completed()
}

impl Draft<'_> {
    fn span(&mut self, from: RangeInclusive<u64>, length: RangeInclusive<u64>) -> Range<Duration> {
        let from = Duration::from_secs(self.random.within(from));
        from..from + Duration::from_secs(self.random.within(length))
    }

    /// Returns another host. Seeds have hosts of their own, as far as it goes: ports of
    /// connections that have just ended are not free.
    fn host(&mut self, is_named: bool) -> IpAddr {
        self.hosts += 1;
        let network = if is_named { 1 } else { 2 };
        IpAddr::from([127, network, (self.seed % 250) as u8 + 1, self.hosts])
    }

    fn begins(&mut self) -> Duration {
        self.random.millis(0..=60_000)
    }

    fn client(&mut self) {
        let steps = self.random.count(4..=20);
        let steps = (0..steps).map(|_| self.step()).collect();
        let (host, begins) = (self.host(true), self.begins());
        let closes = self.random.once_in(2);
        self.clients.push(ClientPlan { host, begins, steps, closes });
    }

    fn step(&mut self) -> Step {
        let random = &mut self.random;
        let pause = random.millis(200..=15_000);
        if random.once_in(3) {
            let bytes = random.one_of(&[64 << 10, 256 << 10, FILE_BYTES]);
            return Step { pause, calls: vec![Call::Write(bytes)], fragments: 1 };
        }
        let small = [
            Call::Null,
            Call::Read(4 << 10),
            Call::Read(64 << 10),
            Call::Read(FILE_BYTES),
            Call::Write(1 << 10),
            Call::Write(16 << 10),
        ];
        let count = random.within(1..=MAX_CALLS);
        let calls = (0..count).map(|_| random.one_of(&small)).collect();
        Step { pause, calls, fragments: random.count(1..=4) }
    }

    /// A host that no export names, and whose calls are in time.
    fn stranger(&mut self) {
        let longest = CHECK_PERIOD.as_millis() as u64 - 500;
        let steps = self.random.count(5..=30);
        let step = |pause| Step { pause, calls: vec![Call::Null], fragments: 1 };
        let steps = (0..steps).map(|_| step(self.random.millis(500..=longest))).collect();
        let (host, begins) = (self.host(false), self.begins());
        self.clients.push(ClientPlan { host, begins, steps, closes: true });
    }

    /// Another peer, or a crowd of them; there is one crowd.
    fn other(&mut self, may_hold_memory: bool) {
        let kinds: &[Kind] = match self.random.within(0..=3) {
            0 => &Kind::OF_STRANGERS,
            1 if may_hold_memory => &Kind::WITH_MEMORY,
            _ => &Kind::OF_NAMED,
        };
        let kind = self.random.one_of(kinds);
        let kind = if kind.crowd().is_some() && self.has_crowd { Kind::Silent } else { kind };
        let mut other: OtherPeer = if Kind::OF_STRANGERS.contains(&kind) {
            self.other_stranger(kind).into()
        } else if Kind::WITH_MEMORY.contains(&kind) {
            self.with_memory(kind)
        } else {
            self.named(kind).into()
        };
        let crowd = kind.crowd();
        self.has_crowd |= crowd.is_some();
        other.script.may_be_refused |= crowd.is_some();
        let copies = crowd.map_or(1, |crowd| self.random.count(crowd));
        self.others.extend(std::iter::repeat_n(other, copies));
    }

    /// A script with nothing in it yet, and a moment soon after its connection.
    fn script(&mut self, is_named: bool, what: &'static str) -> (ScriptPlan, Duration) {
        let (host, begins) = (self.host(is_named), self.begins());
        let script = ScriptPlan { what, ..ScriptPlan::silence(host, begins) };
        (script, begins + self.random.millis(0..=5_000))
    }

    fn drips(&mut self, script: ScriptPlan, from: Duration) -> ScriptPlan {
        let pause = self.random.millis(1_500..=9_000);
        script.with_drips(from, pause, DRIPS)
    }

    /// The first bytes of a call.
    fn part(&self, call: Call, len: usize) -> Act {
        Act::Send(Bytes::from(framed(&call.record(1, self.file), 1)).slice(..len))
    }

    /// So many copies of a call.
    fn calls(&self, call: Call, copies: usize) -> Act {
        Act::Send(framed(&call.record(1, self.file), 1).repeat(copies).into())
    }

    /// A peer whose host an export names, and which holds no memory.
    fn named(&mut self, kind: Kind) -> ScriptPlan {
        let bytes = |bytes: &[u8]| Act::Send(Bytes::copy_from_slice(bytes));
        match kind {
            Kind::HalfMarker => {
                let (script, soon) = self.script(true, "half a marker");
                let half = bytes(&[0x80, 0, 0][..self.random.count(1..=3)]);
                ScriptPlan { least: time(SILENT_CHECKS), ..script.with(soon, half, SILENT) }
            }
            Kind::HalfRecord => {
                let (script, soon) = self.script(true, "half a record");
                let len = self.random.count(5..=2_000);
                let half = self.part(Call::Write(4 << 10), len);
                ScriptPlan { least: time(SILENT_CHECKS), ..script.with(soon, half, SILENT) }
            }
            Kind::Drip => {
                let (script, soon) = self.script(true, "a record in drips");
                let begun = script.with(soon, self.part(Call::Write(4 << 10), 10), RECORD);
                self.drips(begun, soon)
            }
            Kind::Garbage => {
                let (script, soon) = self.script(true, "garbage");
                let garbage = [vec![0xff], self.random.bytes(63)].concat();
                script.with(soon, bytes(&garbage), AT_ONCE)
            }
            Kind::NotACall => {
                let (script, soon) = self.script(true, "a record that is no call");
                let record = [[0_u8, 0, 0, 1], [0, 0, 0, 5], [0; 4]].concat();
                script.with(soon, bytes(&framed(&record, 1)), AT_ONCE)
            }
            Kind::TooLong => {
                let (script, soon) = self.script(true, "a record that is too long");
                script.with(soon, self.marker_beyond(MAX_RECORD_BYTES), AT_ONCE)
            }
            Kind::TooManyFragments => {
                let (script, soon) = self.script(true, "too many fragments");
                script.with(soon, bytes(&[0; 4 * (MAX_FRAGMENTS + 1)]), AT_ONCE)
            }
            Kind::HalfClose => {
                let (script, soon) = self.script(true, "half a close");
                let count = self.random.count(1..=20);
                let mut script = script.with(soon, self.calls(Call::Null, count), AT_ONCE);
                script.acts.push((soon, Act::Finish));
                ScriptPlan { since: Some(1), ..script }
            }
            Kind::Visit => {
                let (script, _) = self.script(true, "a visit");
                let act = if self.random.once_in(2) { Act::Close } else { Act::Reset };
                let begins = script.begins;
                // It has gone before it is accepted.
                ScriptPlan { may_be_refused: true, ..script.with(begins, act, AT_ONCE) }
            }
            _ => self.script(true, "silence").0,
        }
    }

    /// The marker of a record that is longer than this.
    fn marker_beyond(&mut self, most: usize) -> Act {
        let len = (most + self.random.count(1..=1 << 20)) as u32;
        Act::Send(Bytes::copy_from_slice(&(len | 1 << 31).to_be_bytes()))
    }

    /// A peer whose host an export names, and which holds memory.
    fn with_memory(&mut self, kind: Kind) -> OtherPeer {
        if matches!(kind, Kind::ReadsNothing | Kind::Flood) {
            return self.reader_of_nothing(kind == Kind::Flood);
        }
        let bytes = match kind {
            Kind::HalfLargeRecord | Kind::LargeDrip => {
                self.random.one_of(&[64 << 10, 256 << 10, FILE_BYTES])
            }
            _ => FILE_BYTES,
        };
        let (script, soon) = self.script(true, "half a large record");
        let len = self.random.count(200..=60_000);
        let begun = script.with(soon, self.part(Call::Write(bytes), len), SILENT);
        let begun = ScriptPlan { least: LEAST, ..begun };
        let script = match kind {
            Kind::LargeDrip => {
                let ends_within = Some(RECORD);
                let script = ScriptPlan { what: "a large record in drips", ends_within, ..begun };
                self.drips(script, soon)
            }
            Kind::ResetInRecord => {
                let mut script = ScriptPlan { what: "a reset in a record", ..begun };
                script.acts.push((soon + self.random.millis(0..=3_000), Act::Reset));
                let (since, least, ends_within) = (Some(1), Duration::ZERO, Some(AT_ONCE));
                ScriptPlan { since, least, ends_within, ..script }
            }
            _ => begun,
        };
        OtherPeer { script, waits_for_memory: true, holds_bytes: bytes }
    }

    /// A peer that has data read and does not take it.
    fn reader_of_nothing(&mut self, floods: bool) -> OtherPeer {
        let (script, soon) = self.script(true, "unread replies");
        let (count, bytes) =
            if floods { (48, 64 << 10) } else { (self.random.count(4..=8), FILE_BYTES) };
        let mut script = script.with(soon, self.calls(Call::Read(bytes), count), UNREAD);
        if floods {
            let nulls = self.random.count(200..=1_500);
            script.acts.push((soon, self.calls(Call::Null, nulls)));
            (script.what, script.since) = ("a flood of calls", Some(1));
        }
        (script.room_bytes, script.may_outlast_drain) = (LITTLE_ROOM, true);
        OtherPeer { script, waits_for_memory: true, holds_bytes: count * bytes }
    }

    /// A peer whose host no export names.
    fn other_stranger(&mut self, kind: Kind) -> ScriptPlan {
        let (script, soon) = self.script(false, "a stranger's silence");
        let least = time(UNNAMED_CHECKS);
        // From the check on that has seen its last call.
        let after_calls = NO_CALL + CHECK;
        match kind {
            Kind::StrangerDrip => {
                let begun = script.with(soon, self.part(Call::Null, 6), NO_CALL);
                let script = ScriptPlan { what: "a stranger's drips", since: None, ..begun };
                self.drips(script, soon)
            }
            Kind::StrangerTooLong => {
                let script = ScriptPlan { what: "a stranger's long record", ..script };
                script.with(soon, self.marker_beyond(MAX_UNNAMED_RECORD_BYTES), AT_ONCE)
            }
            Kind::StrangerRead => {
                let script = ScriptPlan { what: "a stranger's READ", least, ..script };
                script.with(soon, self.calls(Call::Read(4 << 10), 1), after_calls)
            }
            Kind::StrangerFlood => {
                let script = ScriptPlan { what: "a stranger's calls", least, ..script };
                let count = self.random.count(300..=1_500);
                script.with(soon, self.calls(Call::Null, count), after_calls)
            }
            _ => ScriptPlan { least, ends_within: Some(NO_CALL), ..script },
        }
    }
}
