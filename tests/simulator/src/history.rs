//! History of a run: versions of blocks, locks that clients believe to hold,
//! and what follows from both.

mod held;
mod rollback;

use crate::executor::{Executor, lock};
use crate::invariant::{Invariant, Violation};
use crate::trace::Trace;
use rollback::Rollbacks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64;

/// A block of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register {
    /// The client that writes it.
    pub client: usize,
    /// Number in the client's file.
    pub block: u32,
}

impl Register {
    /// Offset in the file.
    #[must_use]
    pub fn offset(self) -> u64 {
        u64::from(self.block) * BLOCK_BYTES as u64
    }

    /// Content of a version: itself, again and again.
    #[must_use]
    pub fn content(self, version: u32) -> Vec<u8> {
        let tag = (self.client as u32) << 16 | self.block;
        let word = [tag.to_be_bytes(), version.to_be_bytes()].concat();
        word.repeat(BLOCK_BYTES / word.len())
    }

    /// The version of a content; `None` if it is of none.
    #[must_use]
    pub fn version(self, content: &[u8]) -> Option<u32> {
        if content.len() == BLOCK_BYTES && content.iter().all(|byte| *byte == 0) {
            return Some(0);
        }
        let version = u32::from_be_bytes(*content.get(4..)?.first_chunk::<4>()?);
        (self.content(version) == content).then_some(version)
    }
}

/// Versions of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    sent: u32,
    /// Latest version that was seen or acknowledged, unless it may be lost.
    visible: u32,
    /// Latest version acknowledged as stable.
    stable: u32,
    /// The stable version was promised by COMMIT, not by WRITE.
    committed: bool,
    /// A loss may have kept a part of a version that was not stable.
    torn: bool,
}

impl Versions {
    /// Sectors of versions that were never acknowledged as stable.
    fn explains(&self, register: Register, content: &[u8]) -> bool {
        let half = BLOCK_BYTES / 2;
        self.torn
            && content.len() == BLOCK_BYTES
            && content.chunks(half).all(|sector| {
                (self.stable..=self.sent).any(|version| {
                    let whole =
                        if version == 0 { vec![0; half] } else { register.content(version) };
                    sector == &whole[..half]
                })
            })
    }
}

/// A host without a registration, under a reservation.
#[derive(Clone, Debug)]
struct Fence {
    number: u64,
    /// Versions of its blocks that were read after the fence.
    versions: BTreeMap<Register, u32>,
}

/// Expectation of a reader, taken before the read.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    visible: u32,
    stable: u32,
    losses: u64,
    rollbacks: u64,
    /// A loss may have kept a part of a version that was not stable.
    torn: bool,
    /// The fence of the block's writer, and the version that was read since.
    fenced: Option<(u64, u32)>,
    /// The version in the writer's cache under a write delegation.
    cached: Option<u32>,
}

/// A version in its writer's cache.
#[derive(Clone, Debug)]
struct Cached {
    version: u32,
    /// A read by another client, begun after the write, that did not see it.
    /// It is wrong if the delegation turns out to have been good.
    stale: Option<String>,
}

/// A lock that a client believes to hold.
#[derive(Clone, Copy, Debug)]
struct Held {
    write: bool,
}

#[derive(Default)]
struct Inside {
    blocks: BTreeMap<Register, Versions>,
    losses: u64,
    rollbacks: Rollbacks,
    names: BTreeMap<String, bool>,
    /// Versions of a block that are UNMAPs.
    unmapped: BTreeMap<Register, BTreeSet<u32>>,
    /// Hosts that another one has fenced.
    fences: BTreeMap<usize, Fence>,
    /// Number of fences so far.
    fence_count: u64,
    /// Hosts with REGISTER requests that may still be carried out.
    registering: BTreeMap<usize, u32>,
    unknown_registrations: BTreeSet<usize>,
    /// Number of REGISTER requests of each host.
    registrations: BTreeMap<usize, u64>,
    /// Values of the compared block that were replaced.
    swapped: BTreeMap<u64, u64>,
    /// The latest reset of the unit that was complete: when it was sent, and
    /// when its host knew of its end.
    reset: Option<(u64, u64)>,
    /// Resets of the unit under way, and the time of the latest one.
    resets: (u32, u64),
    /// A persistent reservation was granted.
    reserved: bool,
    locks: BTreeMap<(u32, usize, u32), Held>,
    /// Access and deny by client and worker.
    shares: BTreeMap<(usize, u32), (u32, u32)>,
    cached: BTreeMap<Register, Cached>,
    leases: BTreeMap<usize, u64>,
    violation: Option<Violation>,
}

impl Inside {
    /// Oldest version that a read may return.
    fn least(&self, expected: Expected) -> u32 {
        if self.rollbacks.count != expected.rollbacks {
            // It may be of before the rollback, or of behind it.
            return 0;
        }
        if self.losses == expected.losses { expected.visible } else { expected.stable }
    }
}

/// The history.
pub struct History {
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    is_violated: AtomicBool,
    inside: Mutex<Inside>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new(executor: Arc<Executor>, trace: Arc<Trace>) -> Self {
        Self { executor, trace, is_violated: AtomicBool::new(false), inside: Mutex::default() }
    }

    /// Notes a violation; the first one counts.
    pub fn fail(&self, invariant: Invariant, text: String) {
        self.trace.note("VIOLATED", format_args!("{}: {text}", invariant.name()));
        lock(&self.inside).violation.get_or_insert(Violation { invariant, text });
        self.is_violated.store(true, Ordering::Release);
    }

    /// Returns whether there is a violation; called after every step of a task.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        self.is_violated.load(Ordering::Acquire)
    }

    /// The first violation.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        lock(&self.inside).violation.clone()
    }

    /// Begins the write of the next version of a block.
    pub fn next_version(&self, register: Register) -> u32 {
        let mut inside = lock(&self.inside);
        let versions = inside.blocks.entry(register).or_default();
        versions.sent += 1;
        versions.sent
    }

    /// Latest version whose write has begun.
    #[must_use]
    pub fn sent(&self, register: Register) -> u32 {
        lock(&self.inside).blocks.get(&register).map_or(0, |versions| versions.sent)
    }

    /// Notes that readers see a version from now on, unless it is lost.
    pub fn written(&self, register: Register, version: u32) {
        let mut inside = lock(&self.inside);
        let versions = inside.blocks.entry(register).or_default();
        versions.visible = versions.visible.max(version);
        versions.torn &= version < versions.sent;
    }

    /// Notes that a version is on stable storage, as the server says.
    pub fn stable(&self, register: Register, version: u32, committed: bool) {
        let mut inside = lock(&self.inside);
        let versions = inside.blocks.entry(register).or_default();
        versions.visible = versions.visible.max(version);
        versions.torn &= version < versions.sent;
        if version >= versions.stable {
            (versions.stable, versions.committed) = (version, committed);
        }
    }

    /// Notes that unstable data may be gone: nothing but what is stable is
    /// expected any more.
    pub fn unstable_lost(&self) {
        let mut inside = lock(&self.inside);
        inside.losses += 1;
        // What was read behind a fence may have been in a cache.
        inside.fences.values_mut().for_each(|fence| fence.versions.clear());
        for versions in inside.blocks.values_mut() {
            versions.visible = versions.stable;
            versions.torn |= versions.sent > versions.stable;
        }
    }

    /// Number of losses so far.
    #[must_use]
    pub fn losses(&self) -> u64 {
        lock(&self.inside).losses
    }

    /// The expectation of a read that begins now.
    #[must_use]
    pub fn expected(&self, register: Register) -> Expected {
        let inside = lock(&self.inside);
        let versions = inside.blocks.get(&register).copied().unwrap_or_default();
        let fence = inside.fences.get(&register.client);
        let fenced = fence.and_then(|f| Some((f.number, *f.versions.get(&register)?)));
        let (visible, stable) = (versions.visible, versions.stable);
        let cached = inside.cached.get(&register).map(|cached| cached.version);
        let (losses, rollbacks) = (inside.losses, inside.rollbacks.count);
        Expected { visible, stable, losses, rollbacks, torn: versions.torn, fenced, cached }
    }

    /// Returns whether a loss explains the content. A version that makes a torn
    /// block whole may be acknowledged while it is read.
    fn explains(&self, register: Register, expected: Expected, content: &[u8]) -> bool {
        let Expected { torn, stable, rollbacks, .. } = expected;
        let (now, count) = {
            let inside = lock(&self.inside);
            (inside.blocks.get(&register).copied().unwrap_or_default(), inside.rollbacks.count)
        };
        // A snapshot may have a torn block, too.
        let (torn, stable) = if rollbacks == count { (torn, stable) } else { (true, 0) };
        let before = Versions { torn, stable, ..now };
        now.explains(register, content) || before.explains(register, content)
    }

    /// Notes what a client knows of a name: it must survive. `None`: it knows
    /// nothing any more.
    pub fn named(&self, name: &str, exists: Option<bool>) {
        let names = &mut lock(&self.inside).names;
        match exists {
            Some(exists) => names.insert(name.to_owned(), exists),
            None => names.remove(name),
        };
    }

    /// The names that clients know.
    #[must_use]
    pub fn names(&self) -> Vec<(String, bool)> {
        lock(&self.inside).names.clone().into_iter().collect()
    }

    /// Checks what a read returned.
    pub fn read(&self, register: Register, expected: Expected, content: &[u8]) {
        let Some(version) = self.version(register, expected, content) else {
            if self.explains(register, expected, content) {
                return;
            }
            return self.fail(
                Invariant::NoOlderData,
                format!("{register:?} has a content that was never written: {content:?}"),
            );
        };
        // Zeros are zeros here, whatever they come from.
        self.check_fence(register, expected, register.version(content).unwrap_or(version));
        let mut inside = lock(&self.inside);
        let rolled_back = inside.rollbacks.count != expected.rollbacks;
        let lost = inside.losses != expected.losses || rolled_back;
        let losses = inside.losses + inside.rollbacks.count;
        let least = inside.least(expected);
        let is_gone = !rolled_back && inside.rollbacks.has_taken(register, version);
        let versions = inside.blocks.entry(register).or_default();
        let (sent, committed) = (versions.sent, versions.committed);
        if version >= least && version <= sent && !is_gone {
            if !lost {
                versions.visible = versions.visible.max(version);
            }
            return;
        }
        drop(inside);
        let invariant = if version < expected.stable && losses > 0 {
            if committed { Invariant::VerifierChanges } else { Invariant::DurableWrite }
        } else {
            Invariant::NoOlderData
        };
        let gone = if is_gone { ", which a rollback took away" } else { "" };
        self.fail(
            invariant,
            format!(
                "{register:?} has version {version}{gone}; expected {least} to {sent} (stable: {})",
                expected.stable
            ),
        );
    }
}

impl History {
    /// The version of a content. Zeros may be those of a block that was never written,
    /// or of any of its UNMAPs: they count as the oldest one that is expected.
    fn version(&self, register: Register, expected: Expected, content: &[u8]) -> Option<u32> {
        let version = register.version(content)?;
        let inside = lock(&self.inside);
        let Some(unmapped) = inside.unmapped.get(&register).filter(|_| version == 0) else {
            return Some(version);
        };
        match inside.least(expected) {
            0 => Some(0),
            least => unmapped.range(least..).next().or(unmapped.last()).copied(),
        }
    }

    /// Notes that a version of a block is an UNMAP: it reads as zeros.
    pub fn unmapping(&self, register: Register, version: u32) {
        lock(&self.inside).unmapped.entry(register).or_default().insert(version);
    }

    /// A host sends a registration: from now on it may write.
    pub fn registering(&self, host: usize) {
        let mut inside = lock(&self.inside);
        inside.fences.remove(&host);
        *inside.registering.entry(host).or_default() += 1;
        *inside.registrations.entry(host).or_default() += 1;
    }

    /// A registration has ended; `unknown`: it may still be carried out, until
    /// the next login.
    pub fn registered(&self, host: usize, unknown: bool) {
        let mut inside = lock(&self.inside);
        if unknown {
            inside.unknown_registrations.insert(host);
        }
        if let Some(pending) = inside.registering.get_mut(&host) {
            *pending = pending.saturating_sub(1);
        }
    }

    /// No request of the host's earlier sessions can be carried out any more.
    pub fn logged_in(&self, host: usize) {
        lock(&self.inside).unknown_registrations.remove(&host);
    }

    /// A reset of the unit, or a PREEMPT AND ABORT, is sent or has ended:
    /// commands of other hosts that run then get no answer.
    pub fn unit_reset(&self, begins: bool) {
        let now = self.executor.nanos();
        let (pending, last) = &mut lock(&self.inside).resets;
        *pending = if begins { *pending + 1 } else { pending.saturating_sub(1) };
        *last = now;
    }

    /// Returns whether a reset of the unit was under way since then.
    #[must_use]
    pub fn was_reset_since(&self, nanos: u64) -> bool {
        let (pending, last) = lock(&self.inside).resets;
        pending > 0 || last >= nanos
    }

    /// A reset of the unit that was sent at this time is complete.
    pub fn reset_is_complete(&self, sent_at: u64) {
        lock(&self.inside).reset = Some((sent_at, self.executor.nanos()));
    }

    /// Returns whether a command was received before the latest reset was sent,
    /// and began after its end.
    #[must_use]
    pub fn is_behind_reset(&self, received: u64, begins: u64) -> bool {
        let reset = lock(&self.inside).reset;
        reset.is_some_and(|(sent, ended)| received < sent && begins > ended)
    }

    /// A reservation was granted.
    pub fn reserved(&self) {
        lock(&self.inside).reserved = true;
    }

    /// Returns whether a reservation must be there.
    #[must_use]
    pub fn must_be_reserved(&self) -> bool {
        lock(&self.inside).reserved
    }

    /// Number of a host's registrations; `None` while one may be carried out.
    #[must_use]
    pub fn registrations(&self, host: usize) -> Option<u64> {
        let inside = lock(&self.inside);
        let pending = inside.registering.get(&host).copied().unwrap_or_default();
        let unknown = inside.unknown_registrations.contains(&host);
        (pending == 0 && !unknown)
            .then(|| inside.registrations.get(&host).copied().unwrap_or_default())
    }

    /// Notes that a host has lost its registration under a reservation; returns
    /// the number of the fence. `before`: its registrations when the preempt
    /// was sent. `None`: it may have registered meanwhile.
    pub fn fence(&self, host: usize, before: Option<u64>) -> Option<u64> {
        if before.is_none() || self.registrations(host) != before {
            return None;
        }
        let mut inside = lock(&self.inside);
        inside.fence_count += 1;
        let number = inside.fence_count;
        inside.fences.insert(host, Fence { number, versions: BTreeMap::new() });
        Some(number)
    }

    /// Number of the fence of a host.
    #[must_use]
    pub fn fenced(&self, host: usize) -> Option<u64> {
        lock(&self.inside).fences.get(&host).map(|fence| fence.number)
    }

    /// Notes that a fenced host's write, begun after the fence, was accepted.
    pub fn wrote_fenced(&self, host: usize, fence: Option<u64>) {
        if fence.is_some() && self.fenced(host) == fence {
            let text = format!("a write of host {host}, which was fenced before, is accepted");
            self.fail(Invariant::Fence, text);
        }
    }

    fn check_fence(&self, register: Register, expected: Expected, version: u32) {
        let inside = lock(&self.inside);
        let Some(fence) = inside.fences.get(&register.client) else { return };
        let (number, lost) = (fence.number, inside.losses != expected.losses);
        let Some((_, before)) = expected.fenced.filter(|(of, _)| *of == number && !lost) else {
            return;
        };
        drop(inside);
        if before != version {
            let text = format!("{register:?} was {before} after the fence, and is {version}");
            self.fail(Invariant::Fence, text);
        }
    }

    /// Notes a version that was read after a fence, by a read begun after it.
    pub fn read_behind_fence(&self, register: Register, number: u64, content: &[u8]) {
        let version = register.version(content);
        let mut inside = lock(&self.inside);
        let fence = inside.fences.get_mut(&register.client);
        if let (Some(fence), Some(version)) = (fence.filter(|f| f.number == number), version) {
            fence.versions.entry(register).or_insert(version);
        }
    }

    /// Notes that COMPARE AND WRITE replaced a value, which has never been
    /// written twice.
    pub fn swapped(&self, from: u64, to: u64) {
        let before = lock(&self.inside).swapped.insert(from, to);
        if let Some(other) = before {
            let text = format!("value {from:x} was replaced by {other:x} and by {to:x}");
            self.fail(Invariant::AtomicCompare, text);
        }
    }
}

#[cfg(test)]
mod tests;
