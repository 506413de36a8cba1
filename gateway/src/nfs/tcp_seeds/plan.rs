//! The schedule of a seed: peers, what they do and when; and the bounds within which the
//! gateway answers them, or ends them. All bounds come from the product's own limits.

use super::calls::{Call, FILE_BYTES};
use crate::nfs::limits::{CHECK_PERIOD, IDLE_CHECK_PERIOD, SCARCE_RECORD_CHECKS};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Longest step of virtual time: what is overdue is noticed so much later.
pub(super) const STEP: Duration = CHECK_PERIOD;
/// Time limit of what waits for nothing.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);
/// Most calls of a client at the same time.
pub(super) const MAX_CALLS: u64 = 4;

/// The schedule.
#[derive(Debug)]
pub(super) struct Plan {
    /// Memory of all requests together, in bytes.
    pub budget_bytes: usize,
    /// Time that each READ and WRITE takes in storage.
    pub store_delay: Duration,
    /// Time in which the whole process is short of memory.
    pub short: Option<Span>,
    /// Time in which the gateway is held.
    pub hold: Option<Span>,
    /// Moment at which the gateway stops; otherwise it does when all is done.
    pub drain_at: Option<Duration>,
    pub clients: Vec<ClientPlan>,
    pub scripts: Vec<ScriptPlan>,
}

/// A time, counted from the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: Duration,
    pub length: Duration,
}

/// A correct client: it waits for the replies to its calls before it goes on.
#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    pub host: IpAddr,
    pub begins: Duration,
    pub steps: Vec<Step>,
    /// It closes its connection after the last step.
    pub closes: bool,
}

/// Calls that a client makes at the same time, after a pause.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub pause: Duration,
    pub calls: Vec<Call>,
    /// Fragments of each record.
    pub fragments: usize,
}

/// A peer that follows a script and reads nothing.
#[derive(Clone, Debug)]
pub(super) struct ScriptPlan {
    pub what: &'static str,
    pub host: IpAddr,
    pub begins: Duration,
    /// Room of its socket for what it does not read.
    pub room_bytes: usize,
    pub acts: Vec<(Duration, Act)>,
    /// Act from which its bound counts; `None`: its connection.
    pub since: Option<usize>,
    pub bound: Bound,
    /// Time that it has in any case.
    pub least: Duration,
    /// Most memory that it may hold, in bytes.
    pub holds_bytes: usize,
    /// Bytes of replies that it causes and does not read.
    pub unread_bytes: usize,
    /// There may be too many connections of its host.
    pub may_be_refused: bool,
}

/// Time after which the gateway ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// It is not ended.
    Never,
    Within(Duration),
    /// The same, once the peer has got memory for its record.
    WithMemory(Duration),
}

/// An act of a script.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Send(Vec<u8>),
    /// So many copies of a call.
    Calls(Call, usize),
    /// The first bytes of a call.
    Part(Call, usize),
    /// Sends nothing any more.
    Finish,
    Close,
    Reset,
}

impl Span {
    pub(super) fn contains(self, moment: Duration) -> bool {
        (self.from..self.from + self.length).contains(&moment)
    }
}

impl Plan {
    /// Time limit of a call that waits for nobody's memory: a client without any holds may
    /// always have one request, so that at worst its calls run one after the other.
    pub(super) fn small_bound(&self) -> Duration {
        AT_ONCE + self.store_delay * (MAX_CALLS as u32 + 1)
    }

    /// Time limit of the wait for memory. While anybody waits, others hold at least a third of
    /// all memory, and each of them is ended soon; what it held is never taken by it again.
    pub(super) fn memory_bound(&self) -> Duration {
        let soon = IDLE_CHECK_PERIOD + CHECK_PERIOD * (SCARCE_RECORD_CHECKS + 1) + 2 * STEP;
        let held: usize = self.scripts.iter().map(|script| script.holds_bytes).sum();
        let rounds = held.div_ceil(self.budget_bytes / 3) as u32 + 1;
        soon * rounds + self.short.map_or(Duration::ZERO, |short| short.length)
    }

    /// Time limit of a call.
    pub(super) fn bound_of(&self, call: Call) -> Duration {
        let waits = if call.is_large() { self.memory_bound() } else { Duration::ZERO };
        self.small_bound() + waits
    }

    /// Time limit of the end of a connection that the gateway must end; `None`: it need not.
    pub(super) fn end_bound(&self, bound: Bound) -> Option<Duration> {
        match bound {
            Bound::Never => None,
            Bound::Within(time) => Some(time + STEP),
            Bound::WithMemory(time) => Some(time + STEP + self.memory_bound()),
        }
    }

    /// Time limit of a drain: running requests end, and connections with them.
    pub(super) fn drain_bound(&self) -> Duration {
        self.small_bound()
    }

    /// Most memory in use, in bytes. The reply to a READ is not known when the call is taken
    /// in: each host that holds nothing may have one beyond the budget, and one call may cross
    /// it. With slow storage, calls are taken in before others have taken memory.
    pub(super) fn most_bytes(&self) -> usize {
        let scripts = self.scripts.iter().map(|script| script.host);
        let hosts: BTreeSet<_> =
            self.clients.iter().map(|client| client.host).chain(scripts).collect();
        let under_way = if self.store_delay.is_zero() {
            0
        } else {
            let unread: usize = self.scripts.iter().map(|script| script.unread_bytes).sum();
            unread + self.clients.len() * MAX_CALLS as usize * FILE_BYTES
        };
        self.budget_bytes + (hosts.len() + 2) * FILE_BYTES + under_way
    }
}
