//! Entries of a directory, with stable cookies.

use std::collections::BTreeMap;

/// First cookie issued: 0, 1 and 2 have meanings in NFS.
const FIRST_COOKIE: u64 = 3;

/// Entries of a directory. Every entry gets a larger cookie than all before it,
/// so that a resumed listing neither skips nor repeats an unchanged entry.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// Parent directory; the root is its own parent.
    pub(crate) parent: u64,
    names: BTreeMap<Vec<u8>, Slot>,
    order: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    cookie: u64,
}

/// An entry in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) cookie: u64,
    pub(crate) number: u64,
}

impl Directory {
    /// Creates an empty directory below `parent`.
    pub(crate) fn new(parent: u64) -> Self {
        let (names, order) = (BTreeMap::new(), BTreeMap::new());
        Self { parent, names, order, next_cookie: FIRST_COOKIE }
    }

    /// Returns the number of entries without `.` and `..`.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the number of the object with this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<u64> {
        self.names.get(name).map(|slot| slot.number)
    }

    /// Binds a name to an object. An existing name keeps its cookie, and with
    /// it its place in a listing.
    pub(crate) fn put(&mut self, name: &[u8], number: u64) {
        if let Some(slot) = self.names.get_mut(name) {
            slot.number = number;
            return;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.names.insert(name.to_vec(), Slot { number, cookie });
        self.order.insert(cookie, name.to_vec());
    }

    /// Removes a name.
    pub(crate) fn take(&mut self, name: &[u8]) {
        if let Some(slot) = self.names.remove(name) {
            self.order.remove(&slot.cookie);
        }
    }

    /// Returns at most `max` entries after `cookie`, and whether they reach the
    /// end.
    pub(crate) fn list(&self, cookie: u64, max: usize) -> (Vec<Listed>, bool) {
        let Some(first) = cookie.checked_add(1) else {
            return (Vec::new(), true);
        };
        let mut rest = self.order.range(first..);
        let listed = rest
            .by_ref()
            .take(max)
            .filter_map(|(cookie, name)| {
                let number = self.find(name)?;
                Some(Listed { name: name.clone(), cookie: *cookie, number })
            })
            .collect();
        (listed, rest.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &[Listed]) -> Vec<&str> {
        page.iter().map(|entry| std::str::from_utf8(&entry.name).unwrap()).collect()
    }

    #[test]
    fn cookies_hold_while_entries_come_and_go() {
        let mut dir = Directory::new(2);
        for (index, name) in ["d", "a", "c", "b"].iter().enumerate() {
            dir.put(name.as_bytes(), index as u64);
        }
        let (page, end) = dir.list(0, 2);
        assert_eq!((names(&page), end), (vec!["d", "a"], false));
        let resume = page[1].cookie;
        assert!(page[0].cookie > 2);
        // The entry of the cookie is removed, and an entry before it is added
        // again.
        dir.take(b"a");
        dir.take(b"d");
        dir.put(b"d", 9);
        let (page, end) = dir.list(resume, 10);
        assert_eq!((names(&page), end), (vec!["c", "b", "d"], true));
        assert_eq!(dir.list(page[2].cookie, 10), (vec![], true));
        assert_eq!(dir.list(u64::MAX, 10), (vec![], true));
    }

    #[test]
    fn a_replaced_name_keeps_its_place() {
        let mut dir = Directory::new(2);
        dir.put(b"a", 10);
        dir.put(b"b", 11);
        dir.put(b"a", 12);
        let (page, _) = dir.list(0, 10);
        assert_eq!(names(&page), ["a", "b"]);
        assert_eq!((dir.find(b"a"), dir.len()), (Some(12), 2));
    }
}
