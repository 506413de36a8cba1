//! Opens of one file by their share bits and by owner.
//!
//! A file may be open a hundred thousand times. Each query of OPEN and CLOSE
//! (RFC 8881 §9.7, §18.16) takes a few searches in sorted sets: none iterates
//! over the opens.

use super::ids::StateKey;
use super::owner::{FileClient, OwnerName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Access and deny bits of an open: access 1 to 3, deny 0 to 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u8);

impl Share {
    /// The two lowest bits of `share_access` and `share_deny`; WANT bits are
    /// ignored.
    #[must_use]
    pub fn new(access: u32, deny: u32) -> Self {
        Self(((access & 3) << 2 | deny & 3) as u8)
    }

    /// True if two opens conflict.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        let (access, deny) = (self.0 >> 2, self.0 & 3);
        access & other.0 & 3 != 0 || deny & other.0 >> 2 != 0
    }

    fn writes(self) -> bool {
        self.0 >> 2 & 2 != 0
    }
}

/// The opens of a file. `C` is the client: a parameter, so that a test can
/// count comparisons.
#[derive(Clone, Debug)]
pub struct OpenIndex<C = FileClient> {
    by_owner: BTreeMap<(C, OwnerName), StateKey>,
    /// At most 16 sets, none of them empty.
    by_share: BTreeMap<Share, BTreeSet<(C, StateKey)>>,
}

impl<C> Default for OpenIndex<C> {
    fn default() -> Self {
        Self { by_owner: BTreeMap::new(), by_share: BTreeMap::new() }
    }
}

impl<C: Ord + Copy> OpenIndex<C> {
    /// Adds an open; an owner has at most one of each file.
    pub fn insert(&mut self, client: C, owner: &OwnerName, key: StateKey, share: Share) {
        self.by_owner.insert((client, Arc::clone(owner)), key);
        self.by_share.entry(share).or_default().insert((client, key));
    }

    /// Changes the share bits of an open after an upgrade or downgrade.
    pub fn reshare(&mut self, client: C, key: StateKey, from: Share, to: Share) {
        if from != to && self.leave_share(client, key, from) {
            self.by_share.entry(to).or_default().insert((client, key));
        }
    }

    /// Removes an open.
    pub fn remove(&mut self, client: C, owner: &OwnerName, key: StateKey, share: Share) {
        self.by_owner.remove(&(client, Arc::clone(owner)));
        self.leave_share(client, key, share);
    }

    fn leave_share(&mut self, client: C, key: StateKey, share: Share) -> bool {
        let Some(opens) = self.by_share.get_mut(&share) else { return false };
        let was_there = opens.remove(&(client, key));
        if opens.is_empty() {
            self.by_share.remove(&share);
        }
        was_there
    }

    /// The owner's open.
    #[must_use]
    pub fn of_owner(&self, client: C, owner: &OwnerName) -> Option<StateKey> {
        self.by_owner.get(&(client, Arc::clone(owner))).copied()
    }

    /// A client with an open that conflicts with this share.
    #[must_use]
    pub fn conflict(&self, wanted: Share) -> Option<C> {
        self.by_share
            .iter()
            .filter(|(share, _)| share.excludes(wanted))
            .find_map(|(_, opens)| opens.first().map(|(client, _)| *client))
    }

    /// True if no client except `client` has the file open.
    #[must_use]
    pub fn only_by(&self, client: C) -> bool {
        let ends = [self.by_owner.first_key_value(), self.by_owner.last_key_value()];
        ends.into_iter().flatten().all(|((found, _), _)| *found == client)
    }

    /// True if no client except `client` has the file open for writing.
    #[must_use]
    pub fn written_only_by(&self, client: C) -> bool {
        self.by_share
            .iter()
            .filter(|(share, _)| share.writes())
            .flat_map(|(_, opens)| [opens.first(), opens.last()])
            .flatten()
            .all(|(found, _)| *found == client)
    }

    /// True if the client has the file open.
    #[must_use]
    pub fn has(&self, client: C) -> bool {
        // Mostly the last open has just been closed.
        if self.by_owner.is_empty() {
            return false;
        }
        let least: OwnerName = Arc::from([]);
        self.by_owner.range((client, least)..).next().is_some_and(|((c, _), _)| *c == client)
    }

    /// Number of opens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_owner.len()
    }

    /// True if the file is not open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::cmp::Ordering;

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// A client type that counts comparisons.
    #[derive(Clone, Copy, Debug)]
    struct Counted(u64);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }
    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }
    impl Eq for Counted {}

    fn key(number: u64) -> StateKey {
        let mut other = [0; 12];
        other[4..].copy_from_slice(&number.to_be_bytes());
        StateKey(other)
    }

    fn owner(number: u64) -> OwnerName {
        Arc::from(number.to_be_bytes().as_slice())
    }

    fn steps(work: impl FnOnce()) -> usize {
        COMPARISONS.set(0);
        work();
        COMPARISONS.get()
    }

    /// All queries of one OPEN and one CLOSE for a file that is open 10,000
    /// times, by one client or by as many.
    #[test]
    fn opens_cost_the_logarithm_of_how_many_there_are() {
        for clients in [1, 10_000] {
            let mut index = OpenIndex::default();
            for number in 0..10_000 {
                let share = Share::new(number as u32 % 3 + 1, 0);
                index.insert(Counted(number % clients), &owner(number), key(number), share);
            }
            let (client, name) = (Counted(5_000 % clients), owner(77_777));
            let share = Share::new(3, 0);
            let taken = steps(|| {
                assert_eq!(index.conflict(share), None);
                assert_eq!(index.conflict(Share::new(1, 2)).map(|_| ()), Some(()));
                assert_eq!(index.of_owner(client, &name), None);
                assert_eq!(index.only_by(client), clients == 1);
                assert_eq!(index.written_only_by(client), clients == 1);
                index.insert(client, &name, key(77_777), share);
                index.reshare(client, key(77_777), share, Share::new(1, 0));
                index.remove(client, &name, key(77_777), Share::new(1, 0));
                assert!(index.has(client));
            });
            // Nine queries of a few nodes with at most eleven keys each.
            assert!(taken < 600, "{taken} comparisons among {} opens", index.len());
        }
    }
}
