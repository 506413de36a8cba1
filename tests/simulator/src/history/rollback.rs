//! Rollback to a snapshot: what was there at the snapshot is there again, and what was written
//! between the two does not come back by itself. A client may write it again.

use super::{History, Inside, Register, Versions};
use crate::executor::{SECOND, lock};
use crate::invariant::RECALL_SECONDS;
use std::collections::{BTreeMap, BTreeSet};

/// Knowledge of the clients at a snapshot.
struct Then {
    blocks: BTreeMap<Register, Versions>,
    names: BTreeMap<String, bool>,
}

/// The snapshot, the rollbacks so far, and what is under way while they happen.
#[derive(Default)]
pub(super) struct Rollbacks {
    pub(super) count: u64,
    snapshot: Option<Then>,
    /// Versions on their way: they may land behind a rollback.
    writing: BTreeSet<(Register, u32)>,
    /// Names that are being changed, or whose last change may still be carried out.
    changing: BTreeSet<String>,
    /// Versions that are gone, unless their writer writes them again.
    gone: BTreeSet<(Register, u32)>,
    /// Time of the latest rollback, as long as the server of that time runs.
    recalled_at: Option<u64>,
}

impl Rollbacks {
    /// Returns whether a rollback took a version away, and nobody has written it again.
    pub(super) fn has_taken(&self, register: Register, version: u32) -> bool {
        self.gone.contains(&(register, version))
    }

    /// Returns whether what was delegated before the latest rollback must be back.
    pub(super) fn must_be_returned(&self, now: u64) -> bool {
        self.recalled_at.is_some_and(|since| now > since + RECALL_SECONDS * SECOND)
    }
}

impl History {
    /// Number of rollbacks so far.
    #[must_use]
    pub fn rollbacks(&self) -> u64 {
        lock(&self.inside).rollbacks.count
    }

    /// A version is about to be written to the server, for the first time or again. Returns the
    /// number of rollbacks so far.
    pub fn write_begins(&self, register: Register, version: u32) -> u64 {
        let rollbacks = &mut lock(&self.inside).rollbacks;
        rollbacks.gone.remove(&(register, version));
        rollbacks.writing.insert((register, version));
        rollbacks.count
    }

    /// The write has ended. Returns the number of rollbacks so far: if there was one meanwhile,
    /// the version may have landed before it, and be gone, or behind it.
    pub fn write_ends(&self, register: Register, version: u32) -> u64 {
        let rollbacks = &mut lock(&self.inside).rollbacks;
        rollbacks.writing.remove(&(register, version));
        rollbacks.count
    }

    /// Names are about to be changed. Returns the number of rollbacks so far.
    pub fn names_change(&self, names: &[&str]) -> u64 {
        let rollbacks = &mut lock(&self.inside).rollbacks;
        rollbacks.changing.extend(names.iter().map(|name| (*name).to_owned()));
        rollbacks.count
    }

    /// The change has ended; `told`: its client knows how. Returns the number of rollbacks so
    /// far, as [`Self::write_ends`] does.
    pub fn names_changed(&self, names: &[&str], told: bool) -> u64 {
        let rollbacks = &mut lock(&self.inside).rollbacks;
        rollbacks.changing.retain(|name| !told || !names.contains(&name.as_str()));
        rollbacks.count
    }

    /// A snapshot is taken. It has what readers see, whether it was synced or not.
    pub fn snapshot_taken(&self) {
        let mut inside = lock(&self.inside);
        let Inside { blocks, names, rollbacks, .. } = &mut *inside;
        let mut names = names.clone();
        // Of the others it has one of two states.
        names.retain(|name, _| !rollbacks.changing.contains(name));
        rollbacks.snapshot = Some(Then { blocks: blocks.clone(), names });
    }

    /// The files of so many clients, and all names, are those of the snapshot again; `is_served`:
    /// a server runs, which takes its delegations back.
    pub fn rolled_back(&self, clients: usize, is_served: bool) {
        let now = self.executor.nanos();
        let mut inside = lock(&self.inside);
        let Inside { blocks, names, cached, rollbacks, .. } = &mut *inside;
        let Some(then) = rollbacks.snapshot.take() else { return };
        rollbacks.count += 1;
        rollbacks.recalled_at = is_served.then_some(now);
        for (register, versions) in blocks.iter_mut().filter(|(of, _)| of.client < clients) {
            let old = then.blocks.get(register).copied().unwrap_or_default();
            for version in old.sent + 1..=versions.sent {
                let is_cached = cached.get(register).is_some_and(|one| one.version == version);
                if !is_cached && !rollbacks.writing.contains(&(*register, version)) {
                    rollbacks.gone.insert((*register, version));
                }
            }
            // A snapshot is on stable storage.
            let (visible, stable) = (old.visible, old.visible);
            let (sent, torn) = (versions.sent, old.torn);
            *versions = Versions { sent, visible, stable, committed: false, torn };
        }
        *names = then.names;
        names.retain(|name, _| !rollbacks.changing.contains(name));
    }

    /// A server has ended: clients may reclaim delegations from the next one.
    pub fn server_ended(&self) {
        lock(&self.inside).rollbacks.recalled_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Domain, Executor};
    use crate::invariant::Invariant;
    use crate::trace::Trace;
    use std::sync::Arc;

    const BLOCK: Register = Register { client: 1, block: 2 };
    const CLIENTS: usize = 2;

    fn history() -> History {
        let executor = Executor::new(1);
        let trace = Arc::new(Trace::new(Arc::clone(&executor)));
        History::new(executor, trace)
    }

    fn violated(history: &History) -> Option<Invariant> {
        history.violation().map(|violation| violation.invariant)
    }

    fn read(history: &History, version: u32) -> Option<Invariant> {
        history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(version));
        violated(history)
    }

    #[test]
    fn what_was_there_at_the_snapshot_is_there_again() {
        let history = history();
        history.next_version(BLOCK);
        history.next_version(BLOCK);
        history.stable(BLOCK, 1, false);
        // Not committed; a snapshot has it all the same.
        history.written(BLOCK, 2);
        history.snapshot_taken();
        history.next_version(BLOCK);
        history.stable(BLOCK, 3, false);
        history.rolled_back(CLIENTS, true);
        assert_eq!(read(&history, 2), None);
        assert_eq!(read(&history, 1), Some(Invariant::DurableWrite));
    }

    #[test]
    fn what_was_taken_away_comes_back_only_from_its_writer() {
        // Written again, still under way, and in a cache at the rollback.
        for (again, under_way, cached) in [
            (false, false, false),
            (true, false, false),
            (false, true, false),
            (false, false, true),
        ] {
            let history = history();
            history.snapshot_taken();
            let version = history.next_version(BLOCK);
            let begun = history.write_begins(BLOCK, version);
            if cached {
                history.cached(BLOCK, version);
            }
            if !under_way {
                assert_eq!(history.write_ends(BLOCK, version), begun);
                history.stable(BLOCK, version, false);
            }
            history.rolled_back(CLIENTS, true);
            if again {
                history.write_begins(BLOCK, version);
            }
            assert_eq!(read(&history, 0), None, "it has not landed yet");
            let wrong = !again && !under_way && !cached;
            assert_eq!(read(&history, version).is_some(), wrong, "{again} {under_way} {cached}");
            assert_ne!(history.write_ends(BLOCK, version), begun, "its end says nothing");
        }
    }

    #[test]
    fn a_commit_without_another_verifier_is_a_promise() {
        let history = history();
        history.snapshot_taken();
        let version = history.next_version(BLOCK);
        history.written(BLOCK, version);
        history.rolled_back(CLIENTS, true);
        history.stable(BLOCK, version, true);
        assert_eq!(read(&history, 0), Some(Invariant::VerifierChanges));
    }

    #[test]
    fn a_read_across_a_rollback_may_see_either_side() {
        let history = history();
        let then = history.next_version(BLOCK);
        history.stable(BLOCK, then, false);
        history.snapshot_taken();
        let later = history.next_version(BLOCK);
        history.stable(BLOCK, later, false);
        let expected = history.expected(BLOCK);
        history.rolled_back(CLIENTS, true);
        for version in [then, later] {
            history.read(BLOCK, expected, &BLOCK.content(version));
        }
        assert_eq!(violated(&history), None);
    }

    #[test]
    fn names_are_those_of_the_snapshot_but_for_those_under_way() {
        let history = history();
        for name in ["kept", "removed", "under way", "later", "unknown"] {
            history.named(name, Some(true));
        }
        history.names_change(&["under way"]);
        history.snapshot_taken();
        history.names_changed(&["under way"], true);
        history.names_change(&["unknown"]);
        history.names_changed(&["unknown"], false);
        history.named("unknown", None);
        history.named("removed", Some(false));
        history.named("new", Some(true));
        let begun = history.names_change(&["later"]);
        history.rolled_back(CLIENTS, true);
        assert_ne!(history.names_changed(&["later"], true), begun);
        let names = ["kept", "removed"].map(|name| (name.to_owned(), true));
        assert_eq!(history.names(), names);
    }

    #[test]
    fn caches_forget_in_time_if_the_server_goes_on() {
        for (is_served, ends, seconds, wrong) in [
            (true, false, RECALL_SECONDS - 1, false),
            (true, false, RECALL_SECONDS + 1, true),
            (true, true, RECALL_SECONDS + 1, false),
            (false, false, RECALL_SECONDS + 1, false),
        ] {
            let history = history();
            history.leased(0, u64::MAX);
            history.snapshot_taken();
            let version = history.next_version(BLOCK);
            history.stable(BLOCK, version, false);
            history.rolled_back(CLIENTS, is_served);
            if ends {
                history.server_ended();
            }
            history.executor.spawn(Domain::Outside, history.executor.sleep(seconds * SECOND));
            history.executor.run(|| false);
            history.read_cached(0, BLOCK, &BLOCK.content(version));
            assert_eq!(violated(&history) == Some(Invariant::FreshDelegation), wrong, "{seconds}");
        }
    }
}
