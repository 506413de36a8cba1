//! The schedule of a seed: peers, what they do and when; and the bounds within which the
//! gateway answers them, or ends them. All bounds come from the product's own limits.

use super::calls::{Call, FILE_BYTES};
use crate::net::seeds::run::{Phases, STEP};
use crate::net::seeds::script::{AT_ONCE, ScriptPlan};
use crate::nfs::limits::{CHECK_PERIOD, IDLE_CHECK_PERIOD, SCARCE_RECORD_CHECKS};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Most calls of a client at the same time.
pub(super) const MAX_CALLS: u64 = 4;

/// The schedule.
#[derive(Debug)]
pub(super) struct Plan {
    /// Memory of all requests together, in bytes.
    pub budget_bytes: usize,
    /// Time that each READ and WRITE takes in storage.
    pub store_delay: Duration,
    pub phases: Phases,
    pub clients: Vec<ClientPlan>,
    pub others: Vec<OtherPeer>,
}

/// A correct client.
#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    pub host: IpAddr,
    /// Moment of the connection.
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

/// A peer that is no correct client.
#[derive(Clone, Debug)]
pub(super) struct OtherPeer {
    pub script: ScriptPlan,
    /// It may have to wait for memory before its time begins.
    pub waits_for_memory: bool,
    /// Most memory that it may hold, in bytes.
    pub holds_bytes: usize,
}

impl From<ScriptPlan> for OtherPeer {
    /// A peer that holds no memory.
    fn from(script: ScriptPlan) -> Self {
        Self { script, waits_for_memory: false, holds_bytes: 0 }
    }
}

/// Time limits of calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    small: Duration,
    large: Duration,
    /// Storage takes no time.
    pub is_prompt: bool,
}

impl Bounds {
    /// Returns the time limit of a call.
    pub(super) fn of(self, call: Call) -> Duration {
        if call.is_large() { self.large } else { self.small }
    }
}

impl Plan {
    /// Gives each peer that may wait for memory the time for that, all of them the time that a
    /// hold costs, and the drain its bound.
    pub(super) fn completed(mut self) -> Self {
        let (memory_bound, is_held) = (self.memory_bound(), self.phases.hold.is_some());
        for other in &mut self.others {
            let (waits, script) = (other.waits_for_memory, &mut other.script);
            let waits = if waits { memory_bound } else { Duration::ZERO };
            script.ends_within = script.ends_within.map(|time| time + waits);
            // A check that falls into the hold is left out, and the first one after it may come
            // at once.
            if is_held && script.ends_within > Some(AT_ONCE) {
                script.ends_within = script.ends_within.map(|time| time + IDLE_CHECK_PERIOD);
                script.least = script.least.saturating_sub(CHECK_PERIOD);
            }
        }
        self.phases.drain_bound = self.small_bound();
        self
    }

    /// Returns the time limits of calls.
    pub(super) fn bounds(&self) -> Bounds {
        let (small, is_prompt) = (self.small_bound(), self.store_delay.is_zero());
        Bounds { small, large: small + self.memory_bound(), is_prompt }
    }

    /// Time limit of a call that waits for nobody's memory: a client that holds none may
    /// always have one request, so that at worst its calls run one after the other. Running
    /// ones end in this time, and a drain with them.
    fn small_bound(&self) -> Duration {
        AT_ONCE + self.store_delay * (MAX_CALLS as u32 + 1)
    }

    /// Time limit of the wait for memory. While anybody waits, others hold at least a third of
    /// all memory, and each of them is ended soon; what it held is never taken by it again.
    fn memory_bound(&self) -> Duration {
        let checks = (CHECK_PERIOD + STEP) * (SCARCE_RECORD_CHECKS + 1);
        let soon = IDLE_CHECK_PERIOD + checks + 2 * STEP;
        let held: usize = self.others.iter().map(|other| other.holds_bytes).sum();
        let rounds = held.div_ceil(self.budget_bytes / 3) as u32 + 1;
        let short = self.phases.short.as_ref().map(|short| short.end - short.start);
        soon * rounds + short.unwrap_or_default()
    }

    /// Most memory in use, in bytes. The reply to a READ is not known when the call is taken
    /// in: each host that holds nothing may have one beyond the budget, and one call may cross
    /// it.
    pub(super) fn most_bytes(&self) -> usize {
        let others = self.others.iter().map(|other| other.script.host);
        let clients = self.clients.iter().map(|client| client.host);
        let hosts: BTreeSet<_> = clients.chain(others).collect();
        self.budget_bytes + (hosts.len() + 2) * FILE_BYTES
    }
}
