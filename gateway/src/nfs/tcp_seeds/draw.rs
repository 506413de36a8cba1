//! Draws a schedule from a seed.

use super::calls::{Call, FILE_BYTES, framed};
use super::plan::{AT_ONCE, Act, Bound, ClientPlan, MAX_CALLS, Plan, ScriptPlan, Span, Step};
use crate::net::seeds::client_end::SOCKET_BYTES;
use crate::net::seeds::split_mix::SplitMix;
use crate::nfs::limits::{
    CHECK_PERIOD, IDLE_CHECK_PERIOD, MAX_UNNAMED_RECORD_BYTES, RECORD_CHECKS, SCARCE_SILENT_CHECKS,
    SILENT_CHECKS, UNNAMED_CHECKS, UNREAD_CHECKS,
};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use zgate_rpc::limits::{MAX_FRAGMENTS, MAX_RECORD_BYTES};

/// Network of the hosts that the export names.
pub(super) const NAMED: &str = "127.1.0.0/16";

/// Time for a host that no export names to complete a call.
const NO_CALL: Duration = time(UNNAMED_CHECKS + 1);
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
const DRIPS: Duration = Duration::from_secs(400);
/// Room of the socket of a peer that reads nothing, in bytes.
const LITTLE_ROOM: usize = 16 << 10;
/// Connections of a crowd, some of them beyond the limit of a host.
const CROWD: RangeInclusive<u64> = 24..=44;
/// The same of hosts that no export names: they leave room for others of their kind.
const CROWD_OF_STRANGERS: RangeInclusive<u64> = 10..=30;

const fn time(checks: u32) -> Duration {
    Duration::from_secs(CHECK_PERIOD.as_secs() * checks as u64)
}

const fn late(checks: u32) -> Duration {
    Duration::from_secs(IDLE_CHECK_PERIOD.as_secs() + CHECK_PERIOD.as_secs() * (checks as u64 + 1))
}

/// Behaviour of a peer that is no correct client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Silent,
    HalfMarker,
    HalfRecord,
    HalfLargeRecord,
    Drip,
    LargeDrip,
    ReadsNothing,
    Flood,
    Garbage,
    NotACall,
    TooLong,
    TooManyFragments,
    HalfClose,
    ResetInRecord,
    Visit,
    Crowd,
    CrowdWithRecords,
    StrangerSilent,
    StrangerDrip,
    StrangerTooLong,
    StrangerRead,
    StrangerFlood,
    StrangerCrowd,
}

impl Kind {
    const ALL: [Self; 23] = [
        Self::Silent,
        Self::HalfMarker,
        Self::HalfRecord,
        Self::HalfLargeRecord,
        Self::Drip,
        Self::LargeDrip,
        Self::ReadsNothing,
        Self::Flood,
        Self::Garbage,
        Self::NotACall,
        Self::TooLong,
        Self::TooManyFragments,
        Self::HalfClose,
        Self::ResetInRecord,
        Self::Visit,
        Self::Crowd,
        Self::CrowdWithRecords,
        Self::StrangerSilent,
        Self::StrangerDrip,
        Self::StrangerTooLong,
        Self::StrangerRead,
        Self::StrangerFlood,
        Self::StrangerCrowd,
    ];

    fn is_stranger(self) -> bool {
        matches!(
            self,
            Self::StrangerSilent
                | Self::StrangerDrip
                | Self::StrangerTooLong
                | Self::StrangerRead
                | Self::StrangerFlood
                | Self::StrangerCrowd
        )
    }

    fn is_crowd(self) -> bool {
        matches!(self, Self::Crowd | Self::CrowdWithRecords | Self::StrangerCrowd)
    }

    fn takes_memory(self) -> bool {
        matches!(
            self,
            Self::HalfLargeRecord
                | Self::LargeDrip
                | Self::ReadsNothing
                | Self::Flood
                | Self::ResetInRecord
                | Self::CrowdWithRecords
        )
    }
}

/// A schedule in the making.
struct Draft {
    seed: u64,
    random: SplitMix,
    hosts: u8,
    clients: Vec<ClientPlan>,
    scripts: Vec<ScriptPlan>,
}

/// Draws the schedule of a seed.
pub(super) fn draw(seed: u64) -> Plan {
    let random = SplitMix::new(seed);
    let mut draft = Draft { seed, random, hosts: 0, clients: Vec::new(), scripts: Vec::new() };
    let budget_bytes = draft.random.count(6..=16) << 20;
    let hold = draft.random.once_in(8).then(|| draft.span(20..=90, 5..=40));
    // What a client has sent in a hold comes again when the kernel says so: nothing else may
    // keep it waiting then.
    let is_held = hold.is_some();
    let is_slow = !is_held && draft.random.once_in(4);
    let store_delay = if is_slow { draft.random.millis(200..=2_000) } else { Duration::ZERO };
    let short = (!is_held && draft.random.once_in(5)).then(|| draft.span(10..=100, 5..=60));
    let drain_at =
        (!is_held && draft.random.once_in(4)).then(|| draft.random.millis(30_000..=200_000));
    let peers = draft.random.count(3..=12);
    let clients = draft.random.count(1..=peers.min(4) as u64);
    for _ in 0..clients {
        match draft.random.once_in(6) {
            true => draft.stranger(),
            false => draft.client(),
        }
    }
    let mut has_crowd = false;
    for _ in clients..peers {
        let kind = draft.random.one_of(&Kind::ALL);
        let is_unfit = kind.is_crowd() && has_crowd || kind.takes_memory() && is_held;
        has_crowd |= kind.is_crowd();
        draft.script(if is_unfit { Kind::Silent } else { kind });
    }
    let Draft { clients, scripts, .. } = draft;
    Plan { budget_bytes, store_delay, short, hold, drain_at, clients, scripts }
}

impl Draft {
    fn span(&mut self, from: RangeInclusive<u64>, length: RangeInclusive<u64>) -> Span {
        let mut seconds = |range| Duration::from_secs(self.random.within(range));
        Span { from: seconds(from), length: seconds(length) }
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
        let steps = (0..self.random.within(4..=20)).map(|_| self.step()).collect();
        let plan = ClientPlan {
            host: self.host(true),
            begins: self.begins(),
            steps,
            closes: self.random.once_in(2),
        };
        self.clients.push(plan);
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
        let calls = (0..random.within(1..=MAX_CALLS)).map(|_| random.one_of(&small)).collect();
        Step { pause, calls, fragments: random.count(1..=4) }
    }

    /// A host that no export names, and whose calls are in time.
    fn stranger(&mut self) {
        let pause = CHECK_PERIOD.as_millis() as u64 - 500;
        let steps = (0..self.random.within(5..=30)).map(|_| {
            let pause = self.random.millis(500..=pause);
            Step { pause, calls: vec![Call::Null], fragments: 1 }
        });
        let steps = steps.collect();
        let (host, begins) = (self.host(false), self.begins());
        self.clients.push(ClientPlan { host, begins, steps, closes: true });
    }

    fn script(&mut self, kind: Kind) {
        let (host, begins) = (self.host(!kind.is_stranger()), self.begins());
        let plan = ScriptPlan {
            what: "",
            host,
            begins,
            room_bytes: SOCKET_BYTES,
            acts: Vec::new(),
            since: None,
            bound: Bound::Never,
            least: Duration::ZERO,
            holds_bytes: 0,
            unread_bytes: 0,
            may_be_refused: kind.is_crowd(),
        };
        let copies = match kind {
            Kind::Crowd | Kind::CrowdWithRecords => self.random.count(CROWD),
            Kind::StrangerCrowd => self.random.count(CROWD_OF_STRANGERS),
            _ => 1,
        };
        let plan = if kind.is_stranger() {
            self.of_stranger(kind, plan)
        } else if kind.takes_memory() {
            self.with_memory(kind, plan)
        } else {
            self.of_named(kind, plan)
        };
        self.scripts.extend(std::iter::repeat_n(plan, copies));
    }

    /// A moment soon after the connection.
    fn soon(&mut self, begins: Duration) -> Duration {
        begins + self.random.millis(0..=5_000)
    }

    /// A byte now and then.
    fn drips(&mut self, from: Duration) -> Vec<(Duration, Act)> {
        let pause = self.random.millis(1_500..=9_000);
        let count = (DRIPS.as_millis() / pause.as_millis()) as u32;
        (1..=count).map(|number| (from + pause * number, Act::Send(vec![0]))).collect()
    }

    /// Hosts that an export names, and which hold no memory.
    fn of_named(&mut self, kind: Kind, plan: ScriptPlan) -> ScriptPlan {
        let (begins, soon) = (plan.begins, self.soon(plan.begins));
        let random = &mut self.random;
        let one = |what, act, bound| ScriptPlan {
            what,
            acts: vec![(soon, act)],
            since: Some(0),
            bound,
            ..plan.clone()
        };
        let ends_at_once = Bound::Within(AT_ONCE);
        match kind {
            Kind::HalfMarker => {
                let bytes = [0x80, 0, 0][..random.count(1..=3)].to_vec();
                let half = one("half a marker", Act::Send(bytes), Bound::Within(SILENT));
                ScriptPlan { least: time(SILENT_CHECKS), ..half }
            }
            Kind::HalfRecord => {
                let part = Act::Part(Call::Write(4 << 10), random.count(5..=2_000));
                let half = one("half a record", part, Bound::Within(SILENT));
                ScriptPlan { least: time(SILENT_CHECKS), ..half }
            }
            Kind::Drip => {
                let part = Act::Part(Call::Write(4 << 10), 10);
                let mut plan = one("a record in drips", part, Bound::Within(RECORD));
                plan.acts.extend(self.drips(soon));
                plan
            }
            Kind::Garbage => {
                let bytes = [vec![0xff], random.bytes(63)].concat();
                one("garbage", Act::Send(bytes), ends_at_once)
            }
            Kind::NotACall => {
                let record = [[0_u8, 0, 0, 1], [0, 0, 0, 5], [0; 4]].concat();
                one("a record that is no call", Act::Send(framed(&record, 1)), ends_at_once)
            }
            Kind::TooLong => {
                let len = MAX_RECORD_BYTES as u64 + random.within(1..=1 << 20);
                let marker = (len as u32 | 1 << 31).to_be_bytes();
                one("a record that is too long", Act::Send(marker.to_vec()), ends_at_once)
            }
            Kind::TooManyFragments => {
                let fragments = Act::Send(vec![0; 4 * (MAX_FRAGMENTS + 1)]);
                one("too many fragments", fragments, ends_at_once)
            }
            Kind::HalfClose => {
                let calls = Act::Calls(Call::Null, random.count(1..=20));
                let mut plan = one("half a close", calls, ends_at_once);
                plan.acts.push((soon, Act::Finish));
                ScriptPlan { since: Some(1), ..plan }
            }
            Kind::Visit => {
                let act = if random.once_in(2) { Act::Close } else { Act::Reset };
                ScriptPlan {
                    what: "a visit",
                    acts: vec![(begins, act)],
                    since: Some(0),
                    bound: ends_at_once,
                    // It has gone before it is accepted.
                    may_be_refused: true,
                    ..plan
                }
            }
            _ => ScriptPlan { what: "silence", ..plan },
        }
    }

    /// Hosts that an export names, and which hold memory.
    fn with_memory(&mut self, kind: Kind, plan: ScriptPlan) -> ScriptPlan {
        let soon = self.soon(plan.begins);
        let random = &mut self.random;
        let bytes = match kind {
            Kind::HalfLargeRecord | Kind::LargeDrip => {
                random.one_of(&[64 << 10, 256 << 10, FILE_BYTES])
            }
            _ => FILE_BYTES,
        };
        let part = Act::Part(Call::Write(bytes), random.count(200..=60_000));
        let begun = ScriptPlan {
            acts: vec![(soon, part)],
            since: Some(0),
            least: LEAST,
            holds_bytes: bytes,
            ..plan.clone()
        };
        match kind {
            Kind::LargeDrip => {
                let mut acts = begun.acts.clone();
                acts.extend(self.drips(soon));
                let bound = Bound::WithMemory(RECORD);
                ScriptPlan { what: "a large record in drips", acts, bound, ..begun }
            }
            Kind::ResetInRecord => {
                let mut acts = begun.acts.clone();
                acts.push((soon + random.millis(0..=3_000), Act::Reset));
                let (since, least, bound) = (Some(1), Duration::ZERO, Bound::Within(AT_ONCE));
                ScriptPlan { what: "a reset in a record", acts, since, least, bound, ..begun }
            }
            Kind::ReadsNothing | Kind::Flood => {
                let (what, count, bytes) = match kind {
                    Kind::ReadsNothing => ("unread replies", random.count(4..=8), FILE_BYTES),
                    _ => ("a flood of calls", 48, 64 << 10),
                };
                let mut acts = vec![(soon, Act::Calls(Call::Read(bytes), count))];
                if kind == Kind::Flood {
                    acts.insert(0, (soon, Act::Calls(Call::Null, random.count(200..=1_500))));
                }
                ScriptPlan {
                    what,
                    room_bytes: LITTLE_ROOM,
                    since: Some(acts.len() - 1),
                    acts,
                    bound: Bound::WithMemory(UNREAD),
                    holds_bytes: count * bytes,
                    unread_bytes: count * bytes,
                    ..plan
                }
            }
            _ => {
                let bound = Bound::WithMemory(SILENT);
                ScriptPlan { what: "half a large record", bound, ..begun }
            }
        }
    }

    /// Hosts that no export names.
    fn of_stranger(&mut self, kind: Kind, plan: ScriptPlan) -> ScriptPlan {
        let soon = self.soon(plan.begins);
        let random = &mut self.random;
        let plan = ScriptPlan { bound: Bound::Within(NO_CALL), ..plan };
        match kind {
            Kind::StrangerDrip => {
                let mut acts = vec![(soon, Act::Part(Call::Null, 6))];
                acts.extend(self.drips(soon));
                ScriptPlan { what: "a stranger's drips", acts, ..plan }
            }
            Kind::StrangerTooLong => {
                let len = MAX_UNNAMED_RECORD_BYTES as u64 + random.within(1..=1 << 20);
                let marker = (len as u32 | 1 << 31).to_be_bytes();
                let acts = vec![(soon, Act::Send(marker.to_vec()))];
                let bound = Bound::Within(AT_ONCE);
                ScriptPlan { what: "a stranger's long record", acts, bound, since: Some(0), ..plan }
            }
            Kind::StrangerRead | Kind::StrangerFlood => {
                let act = match kind {
                    Kind::StrangerRead => Act::Calls(Call::Read(4 << 10), 1),
                    _ => Act::Calls(Call::Null, random.count(300..=1_500)),
                };
                // From the check on that has seen its last call.
                let bound = Bound::Within(NO_CALL + CHECK_PERIOD);
                let (acts, since, least) = (vec![(soon, act)], Some(0), time(UNNAMED_CHECKS));
                ScriptPlan { what: "a stranger's calls", acts, bound, since, least, ..plan }
            }
            _ => ScriptPlan { what: "a stranger's silence", least: time(UNNAMED_CHECKS), ..plan },
        }
    }
}
