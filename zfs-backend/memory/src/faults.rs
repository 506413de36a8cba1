//! Faults: calls of a store that fail or wait at a chosen moment.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use zgate_store::{StoreError, StoreResult};

/// Operations of [`zgate_store::FileStore`] that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is named after the method it stands for")]
pub enum FileOp {
    GetAttr,
    Lookup,
    LookupParent,
    Access,
    SetAttr,
    ReadLink,
    CreateFile,
    CreateNode,
    Open,
    Remove,
    Rename,
    Link,
    ReadDir,
    Read,
    Write,
    Commit,
    SyncObjects,
    Allocate,
    Deallocate,
    Seek,
    CopyRange,
    CloneRange,
    Advise,
    StatFs,
    GetXattr,
    SetXattr,
    ListXattrs,
    RemoveXattr,
    GetAcl,
    SetAcl,
}

/// Point at which a call is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the effect.
    BeforeEffect,
    /// After the effect, before the reply.
    AfterEffect,
}

/// Faults of a store; clones share the state with the store. Calls are counted
/// from the moment a rule is set.
#[derive(Debug)]
pub struct Faults<Op> {
    state: Arc<Mutex<State<Op>>>,
}

impl<Op> Clone for Faults<Op> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

#[derive(Debug)]
struct State<Op> {
    calls: BTreeMap<Op, u64>,
    rules: Vec<Rule<Op>>,
    gates: Vec<Arc<Gate<Op>>>,
    yields: bool,
}

#[derive(Debug)]
struct Rule<Op> {
    /// Operation the rule applies to; `None`: every operation.
    op: Option<Op>,
    /// Number of calls until the rule fires; `None`: it always does.
    left: Option<u64>,
    error: StoreError,
}

impl<Op: Copy + Ord> Default for Faults<Op> {
    fn default() -> Self {
        let state =
            State { calls: BTreeMap::new(), rules: Vec::new(), gates: Vec::new(), yields: false };
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

impl<Op: Copy + Ord> Faults<Op> {
    /// Makes the next call of `op` fail without effect.
    pub fn fail_next(&self, op: Op, error: StoreError) {
        self.fail_nth(op, 1, error);
    }

    /// Makes the `nth` call of `op` from now on fail (1 is the next). Two rules
    /// due at the same call fire one after the other.
    pub fn fail_nth(&self, op: Op, nth: u64, error: StoreError) {
        self.rule(Rule { op: Some(op), left: Some(nth.max(1)), error });
    }

    /// Makes every call of `op` fail until [`Faults::heal`].
    pub fn fail_every(&self, op: Op, error: StoreError) {
        self.rule(Rule { op: Some(op), left: None, error });
    }

    /// Makes every call fail until [`Faults::clear`].
    pub fn fail_everything(&self, error: StoreError) {
        self.rule(Rule { op: None, left: None, error });
    }

    /// Removes the failures set for `op`.
    pub fn heal(&self, op: Op) {
        self.state().rules.retain(|rule| rule.op != Some(op));
    }

    /// Removes all failures and releases all held calls.
    pub fn clear(&self) {
        let gates = {
            let mut state = self.state();
            state.rules.clear();
            state.yields = false;
            std::mem::take(&mut state.gates)
        };
        gates.iter().for_each(|gate| gate.open(Ok(())));
    }

    /// Makes calls of `op` wait until the [`Hold`] releases them.
    pub fn hold(&self, op: Op, when: When) -> Hold<Op> {
        self.gate(op, when, false)
    }

    /// Makes the next call of `op` wait; later ones pass.
    pub fn hold_next(&self, op: Op, when: When) -> Hold<Op> {
        self.gate(op, when, true)
    }

    /// Sets whether every call yields to other tasks once before its effect,
    /// for a deterministic executor.
    pub fn set_yield_points(&self, on: bool) {
        self.state().yields = on;
    }

    /// Returns the number of calls of `op` so far, failed ones included.
    #[must_use]
    pub fn calls(&self, op: Op) -> u64 {
        self.state().calls.get(&op).copied().unwrap_or(0)
    }

    fn rule(&self, rule: Rule<Op>) {
        self.state().rules.push(rule);
    }

    fn gate(&self, op: Op, when: When, once: bool) -> Hold<Op> {
        let gate = Arc::new(Gate { op, when, once, inner: Mutex::default() });
        self.state().gates.push(Arc::clone(&gate));
        Hold { gate, faults: self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State<Op>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the faults due before the effect of a call.
    pub(crate) async fn before(&self, op: Op) -> StoreResult<()> {
        let (verdict, gate, yields) = {
            let mut state = self.state();
            *state.calls.entry(op).or_default() += 1;
            (state.verdict(op), state.gate_for(op, When::BeforeEffect), state.yields)
        };
        if yields {
            give_way().await;
        }
        if let Some(gate) = gate {
            gate.pass().await?;
        }
        verdict
    }

    /// Applies the faults due after the effect of a call.
    pub(crate) async fn after(&self, op: Op) -> StoreResult<()> {
        let gate = self.state().gate_for(op, When::AfterEffect);
        match gate {
            Some(gate) => gate.pass().await,
            None => Ok(()),
        }
    }
}

impl<Op: Copy + Ord> State<Op> {
    fn verdict(&mut self, op: Op) -> StoreResult<()> {
        let mut fired = None;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            if rule.op.is_some_and(|wanted| wanted != op) {
                continue;
            }
            rule.left = rule.left.map(|left| left.saturating_sub(1));
            if rule.left.is_none_or(|left| left == 0) && fired.is_none() {
                fired = Some(index);
            }
        }
        let Some(index) = fired else { return Ok(()) };
        let error = self.rules[index].error;
        if self.rules[index].left.is_some() {
            self.rules.remove(index);
        }
        Err(error)
    }

    fn gate_for(&mut self, op: Op, when: When) -> Option<Arc<Gate<Op>>> {
        let index = self.gates.iter().position(|gate| gate.op == op && gate.when == when)?;
        let gate = Arc::clone(&self.gates[index]);
        if gate.once {
            self.gates.remove(index);
        }
        Some(gate)
    }
}

/// Yields once: pending, with the waker called.
async fn give_way() {
    let mut gave = false;
    poll_fn(|context| {
        if gave {
            return Poll::Ready(());
        }
        gave = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[derive(Debug)]
struct Gate<Op> {
    op: Op,
    when: When,
    once: bool,
    inner: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    opened: Option<StoreResult<()>>,
    waiting: usize,
    wakers: Vec<Waker>,
}

impl<Op> Gate<Op> {
    fn inner(&self) -> MutexGuard<'_, GateState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, outcome: StoreResult<()>) {
        let wakers = {
            let mut inner = self.inner();
            inner.opened.get_or_insert(outcome);
            std::mem::take(&mut inner.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn pass(&self) -> StoreResult<()> {
        let _waiting = Waiting::at(self);
        poll_fn(|context| {
            let mut inner = self.inner();
            match inner.opened {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    inner.wakers.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Counts a call as waiting until it is dropped.
struct Waiting<'a, Op>(&'a Gate<Op>);

impl<'a, Op> Waiting<'a, Op> {
    fn at(gate: &'a Gate<Op>) -> Self {
        gate.inner().waiting += 1;
        Self(gate)
    }
}

impl<Op> Drop for Waiting<'_, Op> {
    fn drop(&mut self) {
        self.0.inner().waiting -= 1;
    }
}

/// Holds calls; dropping it releases them.
#[derive(Debug)]
#[must_use = "dropping it releases the calls"]
pub struct Hold<Op: Copy + Ord> {
    gate: Arc<Gate<Op>>,
    faults: Faults<Op>,
}

impl<Op: Copy + Ord> Hold<Op> {
    /// Returns the number of calls held now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gate.inner().waiting
    }

    /// Releases the held calls.
    pub fn release(self) {
        self.end(Ok(()));
    }

    /// Fails the held calls, and all later ones under this hold.
    pub fn release_with(self, error: StoreError) {
        self.end(Err(error));
    }

    fn end(&self, outcome: StoreResult<()>) {
        self.faults.state().gates.retain(|gate| !Arc::ptr_eq(gate, &self.gate));
        self.gate.open(outcome);
    }
}

impl<Op: Copy + Ord> Drop for Hold<Op> {
    fn drop(&mut self) {
        self.end(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{block_on, poll_once};
    use std::pin::pin;

    fn before(faults: &Faults<FileOp>, op: FileOp) -> StoreResult<()> {
        block_on(faults.before(op))
    }

    #[test]
    fn rules_fire_when_they_are_due() {
        let faults = Faults::default();
        faults.fail_nth(FileOp::Read, 2, StoreError::Io);
        faults.fail_next(FileOp::Write, StoreError::NoSpace);
        faults.fail_next(FileOp::Write, StoreError::QuotaExceeded);
        assert_eq!(before(&faults, FileOp::Read), Ok(()));
        assert_eq!(before(&faults, FileOp::Read), Err(StoreError::Io));
        assert_eq!(before(&faults, FileOp::Read), Ok(()));
        assert_eq!(before(&faults, FileOp::Write), Err(StoreError::NoSpace));
        assert_eq!(before(&faults, FileOp::Write), Err(StoreError::QuotaExceeded));
        assert_eq!(before(&faults, FileOp::Write), Ok(()));
        assert_eq!(faults.calls(FileOp::Read), 3);
    }

    #[test]
    fn lasting_rules_last_until_healed() {
        let faults = Faults::default();
        faults.fail_every(FileOp::Commit, StoreError::Io);
        assert_eq!(before(&faults, FileOp::Commit), Err(StoreError::Io));
        assert_eq!(before(&faults, FileOp::Commit), Err(StoreError::Io));
        faults.heal(FileOp::Commit);
        assert_eq!(before(&faults, FileOp::Commit), Ok(()));
        faults.fail_everything(StoreError::Stale);
        assert_eq!(before(&faults, FileOp::Lookup), Err(StoreError::Stale));
        faults.clear();
        assert_eq!(before(&faults, FileOp::Lookup), Ok(()));
    }

    #[test]
    fn held_calls_wait_until_released() {
        let faults = Faults::default();
        let hold = faults.hold(FileOp::Read, When::BeforeEffect);
        let (mut one, mut two) =
            (pin!(faults.before(FileOp::Read)), pin!(faults.before(FileOp::Read)));
        assert!(poll_once(one.as_mut()).is_pending());
        assert!(poll_once(two.as_mut()).is_pending());
        assert_eq!(hold.waiting(), 2);
        assert_eq!(before(&faults, FileOp::Write), Ok(()));
        hold.release_with(StoreError::Io);
        assert_eq!(poll_once(one.as_mut()), Poll::Ready(Err(StoreError::Io)));
        assert_eq!(poll_once(two.as_mut()), Poll::Ready(Err(StoreError::Io)));
        assert_eq!(before(&faults, FileOp::Read), Ok(()));
    }

    #[test]
    fn holding_the_next_lets_later_ones_pass() {
        let faults = Faults::default();
        let hold = faults.hold_next(FileOp::Read, When::AfterEffect);
        let mut held = pin!(faults.after(FileOp::Read));
        assert!(poll_once(held.as_mut()).is_pending());
        assert_eq!(block_on(faults.after(FileOp::Read)), Ok(()));
        drop(hold);
        assert_eq!(poll_once(held.as_mut()), Poll::Ready(Ok(())));
    }

    #[test]
    fn yield_points_give_way_once() {
        let faults = Faults::default();
        faults.set_yield_points(true);
        let mut call = pin!(faults.before(FileOp::Read));
        assert!(poll_once(call.as_mut()).is_pending());
        assert!(poll_once(call.as_mut()).is_ready());
    }
}
