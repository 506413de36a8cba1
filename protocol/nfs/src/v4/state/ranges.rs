//! Byte-range locks of one file: who holds what, what conflicts, and the
//! POSIX rules for joining and splitting (RFC 8881 §9.1, §18.10).

/// A range of bytes; `end` is exclusive, [`u64::MAX`] means to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Range {
    /// A range as LOCK names it; `None` when it is illegal: length 0, or
    /// beyond 2^64 (RFC 8881 §18.10.3).
    #[must_use]
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        match length {
            0 => None,
            u64::MAX => Some(Self { start: offset, end: u64::MAX }),
            _ => offset.checked_add(length).map(|end| Self { start: offset, end }),
        }
    }

    /// Its length as LOCK denials name it.
    #[must_use]
    pub fn length(&self) -> u64 {
        if self.end == u64::MAX { u64::MAX } else { self.end - self.start }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<O> {
    /// The bytes.
    pub range: Range,
    /// Exclusive.
    pub write: bool,
    /// Whose.
    pub owner: O,
}

/// All locks of a file, sorted by start.
#[derive(Clone, Debug)]
pub struct RangeTable<O> {
    held: Vec<Held<O>>,
}

impl<O> Default for RangeTable<O> {
    fn default() -> Self {
        Self { held: Vec::new() }
    }
}

impl<O: Clone + PartialEq> RangeTable<O> {
    /// A lock of another owner that keeps `owner` from this one.
    #[must_use]
    pub fn conflict(&self, range: &Range, write: bool, owner: &O) -> Option<&Held<O>> {
        self.held
            .iter()
            .find(|h| h.owner != *owner && (write || h.write) && h.range.overlaps(range))
    }

    /// Sets a lock; it replaces what the same owner holds in the range. The
    /// caller has made sure that nothing conflicts.
    pub fn set(&mut self, range: Range, write: bool, owner: &O) {
        debug_assert!(self.conflict(&range, write, owner).is_none());
        self.clear(&range, owner);
        let mut merged = range;
        self.held.retain(|h| {
            let touches = h.owner == *owner
                && h.write == write
                && (h.range.end == merged.start || h.range.start == merged.end);
            if touches {
                merged.start = merged.start.min(h.range.start);
                merged.end = merged.end.max(h.range.end);
            }
            !touches
        });
        let at = self.held.partition_point(|h| h.range.start < merged.start);
        self.held.insert(at, Held { range: merged, write, owner: owner.clone() });
    }

    /// Removes what the owner holds in the range, splitting where needed.
    pub fn clear(&mut self, range: &Range, owner: &O) {
        let mut pieces = Vec::new();
        self.held.retain(|held| {
            if !held.range.overlaps(range) || held.owner != *owner {
                return true;
            }
            if held.range.start < range.start {
                let left = Range { start: held.range.start, end: range.start };
                pieces.push(Held { range: left, ..held.clone() });
            }
            if range.end < held.range.end {
                let right = Range { start: range.end, end: held.range.end };
                pieces.push(Held { range: right, ..held.clone() });
            }
            false
        });
        for piece in pieces {
            let at = self.held.partition_point(|h| h.range.start < piece.range.start);
            self.held.insert(at, piece);
        }
    }

    /// Whether taking this range out of a lock of the owner leaves two.
    #[must_use]
    pub fn splits(&self, range: &Range, owner: &O) -> bool {
        self.held
            .iter()
            .any(|h| h.owner == *owner && h.range.start < range.start && range.end < h.range.end)
    }

    /// Removes everything the owner holds.
    pub fn clear_owner(&mut self, owner: &O) {
        self.held.retain(|h| h.owner != *owner);
    }

    /// Whether the owner holds anything.
    #[must_use]
    pub fn holds(&self, owner: &O) -> bool {
        self.held.iter().any(|h| h.owner == *owner)
    }

    /// How many ranges are locked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nobody holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// All locks.
    pub fn iter(&self) -> impl Iterator<Item = &Held<O>> {
        self.held.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn r(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn illegal_ranges_are_refused() {
        assert_eq!(Range::new(0, 0), None);
        assert_eq!(Range::new(2, u64::MAX - 1), None);
        assert_eq!(Range::new(5, u64::MAX), Some(r(5, u64::MAX)));
        assert_eq!(Range::new(5, 3), Some(r(5, 8)));
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

    proptest! {
        /// The table agrees with one owner and mode per byte.
        #[test]
        fn agrees_with_a_byte_map(
            steps in proptest::collection::vec((0u64..32, 1u64..16, any::<bool>(), 0u8..3, any::<bool>()), 0..40)
        ) {
            let mut table = RangeTable::default();
            let mut bytes = vec![std::collections::HashMap::<u8, bool>::new(); 64];
            for (start, len, write, owner, unlock) in steps {
                let range = r(start, start + len);
                let span = start as usize..(start + len) as usize;
                if unlock {
                    table.clear(&range, &owner);
                    for byte in &mut bytes[span] { byte.remove(&owner); }
                    continue;
                }
                let blocked = bytes[span.clone()].iter().any(|byte| {
                    byte.iter().any(|(&o, &w)| o != owner && (w || write))
                });
                prop_assert_eq!(table.conflict(&range, write, &owner).is_some(), blocked);
                if !blocked {
                    table.set(range, write, &owner);
                    for byte in &mut bytes[span] { byte.insert(owner, write); }
                }
            }
            let mut seen = vec![std::collections::HashMap::<u8, bool>::new(); 64];
            for held in table.iter() {
                for byte in &mut seen[held.range.start as usize..held.range.end as usize] {
                    prop_assert!(byte.insert(held.owner, held.write).is_none());
                }
            }
            prop_assert_eq!(seen, bytes);
        }
    }
}
