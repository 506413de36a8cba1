//! Byte-range locks of one file: owners, conflicts, and the POSIX rules for
//! joining and splitting (RFC 8881 §9.1, §18.10).

use super::interval_tree::IntervalTree;
use ahash::HashMap;
use std::collections::BTreeMap;
use std::hash::Hash;

/// A range of at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte; [`u64::MAX`] means to the end.
    pub last: u64,
}

impl Range {
    /// The range of a LOCK; `None` if it is illegal: length 0, or beyond 2^64
    /// (RFC 8881 §18.10.3).
    #[must_use]
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        let last = match length {
            0 => return None,
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length)? - 1,
        };
        Some(Self { start: offset, last })
    }

    /// Its length as used in LOCK4denied.
    #[must_use]
    pub fn length(&self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.start + 1 }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn adjoins(&self, other: &Self) -> bool {
        let is_before = |one: &Self, next: &Self| one.last.checked_add(1) == Some(next.start);
        is_before(self, other) || is_before(other, self)
    }
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<O> {
    /// The bytes.
    pub range: Range,
    /// Exclusive.
    pub write: bool,
    /// The owner.
    pub owner: O,
}

/// Locks of one owner in a file.
#[derive(Debug)]
struct Owned {
    /// Number of the owner in the trees.
    number: u64,
    /// Last byte and mode by start; they do not overlap.
    ranges: BTreeMap<u64, (u64, bool)>,
}

impl Owned {
    /// The ranges that overlap this one.
    fn overlapping(&self, range: &Range) -> Vec<(Range, bool)> {
        let before = self.ranges.range(..range.start).next_back();
        let within = self.ranges.range(range.start..=range.last);
        let all = before.into_iter().chain(within);
        all.map(|(&start, &(last, write))| (Range { start, last }, write))
            .filter(|(held, _)| held.overlaps(range))
            .collect()
    }
}

/// All locks of a file.
#[derive(Debug)]
pub struct RangeTable<O> {
    owners: HashMap<O, Owned>,
    next_number: u64,
    shared: IntervalTree<Held<O>>,
    exclusive: IntervalTree<Held<O>>,
    len: usize,
}

impl<O> Default for RangeTable<O> {
    fn default() -> Self {
        Self {
            owners: HashMap::default(),
            // 0 is for owners without locks.
            next_number: 1,
            shared: IntervalTree::default(),
            exclusive: IntervalTree::default(),
            len: 0,
        }
    }
}

impl<O: Clone + Eq + Hash> RangeTable<O> {
    /// A lock of another owner that conflicts with a lock of `owner`: the first
    /// one in the file. Takes logarithmic time in the number of locks.
    #[must_use]
    pub fn conflict(&self, range: &Range, write: bool, owner: &O) -> Option<&Held<O>> {
        let number = self.owners.get(owner).map_or(0, |owned| owned.number);
        let exclusive = self.exclusive.overlapping(range, number);
        if !write {
            return exclusive;
        }
        let found = exclusive.into_iter().chain(self.shared.overlapping(range, number));
        found.min_by_key(|held| held.range.start)
    }

    /// Sets a lock; replaces the owner's locks in the range. The caller has
    /// checked for conflicts.
    pub fn set(&mut self, range: Range, write: bool, owner: &O) {
        debug_assert!(self.conflict(&range, write, owner).is_none());
        self.clear(&range, owner);
        let mut merged = range;
        if let Some(owned) = self.owners.get(owner) {
            let before = owned.ranges.range(..range.start).next_back();
            let next = range.last.checked_add(1);
            let after = next.and_then(|next| owned.ranges.range(next..).next());
            let touching: Vec<_> = before
                .into_iter()
                .chain(after)
                .filter(|(_, (_, mode))| *mode == write)
                .map(|(&start, &(last, _))| Range { start, last })
                .filter(|held| held.adjoins(&range))
                .collect();
            for held in touching {
                merged.start = merged.start.min(held.start);
                merged.last = merged.last.max(held.last);
                self.take_out(held, write, owner);
            }
        }
        self.put_in(merged, write, owner);
    }

    /// Removes the owner's locks in the range, splitting where needed.
    pub fn clear(&mut self, range: &Range, owner: &O) {
        let Some(owned) = self.owners.get(owner) else { return };
        for (held, write) in owned.overlapping(range) {
            self.take_out(held, write, owner);
            if held.start < range.start {
                self.put_in(Range { start: held.start, last: range.start - 1 }, write, owner);
            }
            if range.last < held.last {
                self.put_in(Range { start: range.last + 1, last: held.last }, write, owner);
            }
        }
    }

    fn tree(&mut self, write: bool) -> &mut IntervalTree<Held<O>> {
        if write { &mut self.exclusive } else { &mut self.shared }
    }

    fn put_in(&mut self, range: Range, write: bool, owner: &O) {
        let next = &mut self.next_number;
        let owned = self.owners.entry(owner.clone()).or_insert_with(|| {
            *next += 1;
            Owned { number: *next - 1, ranges: BTreeMap::new() }
        });
        let number = owned.number;
        let replaced = owned.ranges.insert(range.start, (range.last, write));
        debug_assert_eq!(replaced, None);
        self.len += 1;
        self.tree(write).insert(range, number, Held { range, write, owner: owner.clone() });
    }

    fn take_out(&mut self, range: Range, write: bool, owner: &O) {
        let Some(owned) = self.owners.get_mut(owner) else { return };
        let number = owned.number;
        if owned.ranges.remove(&range.start).is_none() {
            return;
        }
        if owned.ranges.is_empty() {
            self.owners.remove(owner);
        }
        self.len -= 1;
        self.tree(write).remove(range.start, number);
    }

    /// True if removing this range from a lock of the owner leaves two.
    #[must_use]
    pub fn splits(&self, range: &Range, owner: &O) -> bool {
        let before = self.owners.get(owner).and_then(|o| o.ranges.range(..range.start).next_back());
        before.is_some_and(|(_, (last, _))| range.last < *last)
    }

    /// Removes all locks of the owner.
    pub fn clear_owner(&mut self, owner: &O) {
        let Some(owned) = self.owners.remove(owner) else { return };
        self.len -= owned.ranges.len();
        for (start, (_, write)) in owned.ranges {
            self.tree(write).remove(start, owned.number);
        }
    }

    /// Number of ranges of the owner.
    #[must_use]
    pub fn held_by(&self, owner: &O) -> usize {
        self.owners.get(owner).map_or(0, |owned| owned.ranges.len())
    }

    /// True if the owner has any lock.
    #[must_use]
    pub fn holds(&self, owner: &O) -> bool {
        self.owners.contains_key(owner)
    }

    /// Number of locked ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no locks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All locks, those of one owner ordered by start.
    pub fn iter(&self) -> impl Iterator<Item = Held<O>> + '_ {
        self.owners.iter().flat_map(|(owner, owned)| {
            owned.ranges.iter().map(|(&start, &(last, write))| Held {
                range: Range { start, last },
                write,
                owner: owner.clone(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the byte `start` on, without the byte `end`.
    fn r(start: u64, end: u64) -> Range {
        Range { start, last: end - 1 }
    }

    #[test]
    fn illegal_ranges_are_refused() {
        assert_eq!(Range::new(0, 0), None);
        assert_eq!(Range::new(2, u64::MAX - 1), None);
        assert_eq!(Range::new(u64::MAX, 1), None);
        assert_eq!(Range::new(5, u64::MAX), Some(Range { start: 5, last: u64::MAX }));
        assert_eq!(Range::new(5, 3), Some(r(5, 8)));
    }

    #[test]
    fn the_last_byte_is_locked_to_the_end() {
        let to_the_end = |offset| Range::new(offset, u64::MAX).unwrap();
        let (last, before) = (to_the_end(u64::MAX), Range::new(u64::MAX - 1, 1).unwrap());
        assert_eq!((last.length(), before.length()), (u64::MAX, 1));
        let mut t = RangeTable::default();
        t.set(last, true, &1);
        for range in [last, to_the_end(u64::MAX - 1), to_the_end(0)] {
            assert!(t.conflict(&range, false, &2).is_some(), "{range:?}");
            assert!(t.conflict(&range, true, &1).is_none(), "{range:?}");
        }
        assert!(t.conflict(&before, true, &2).is_none());
        t.set(before, true, &1);
        assert_eq!(t.iter().map(|h| h.range).collect::<Vec<_>>(), [to_the_end(u64::MAX - 1)]);
        t.clear(&last, &1);
        assert_eq!(t.iter().map(|h| h.range).collect::<Vec<_>>(), [before]);
    }

    #[test]
    fn locks_join_and_split() {
        let mut t = RangeTable::default();
        t.set(r(0, 10), true, &1);
        t.set(r(10, 20), true, &1);
        assert_eq!(t.iter().count(), 1);
        assert!(t.splits(&r(5, 6), &1) && !t.splits(&r(0, 6), &1) && !t.splits(&r(5, 6), &2));
        t.clear(&r(5, 6), &1);
        assert_eq!(t.iter().map(|h| h.range).collect::<Vec<_>>(), [r(0, 5), r(6, 20)]);
        t.set(r(8, 9), false, &1);
        assert_eq!(t.iter().count(), 4);
        assert!(t.conflict(&r(8, 9), false, &2).is_none());
        assert!(t.conflict(&r(8, 9), true, &2).is_some());
        assert!(t.conflict(&r(0, 1), false, &2).is_some());
        t.clear_owner(&1);
        assert!(t.is_empty());
    }
}
