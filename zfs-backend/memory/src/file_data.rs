//! Data of a file: present content, and content after a power loss.

use crate::content::Content;
use std::ops::Range;
use zgate_store::file_store::Stability;

/// A regular file's data.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileData {
    live: Content,
    /// Content on stable storage, if it differs from `live`.
    stable: Option<Content>,
}

impl FileData {
    /// Returns the content that readers see.
    pub(crate) fn live(&self) -> &Content {
        &self.live
    }

    /// Returns whether a power loss would lose data.
    pub(crate) fn is_unstable(&self) -> bool {
        self.stable.is_some()
    }

    /// Writes; with any stability but `Unstable`, the written range is on
    /// stable storage.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], stability: Stability) {
        if stability == Stability::Unstable {
            self.unstable(|live| live.write(offset, data));
        } else {
            self.both(|content| content.write(offset, data));
        }
    }

    /// Sets the length, which is stable at once, like all attributes.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.both(|content| content.set_size(size));
    }

    /// Punches a hole; unstable (RFC 7862 §15.4 leaves stability to COMMIT).
    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        self.unstable(|live| live.punch(offset, len));
    }

    /// Reserves space; unstable.
    pub(crate) fn reserve(&mut self, offset: u64, len: u64) {
        self.unstable(|live| live.reserve(offset, len));
    }

    /// Copies a range of another file's (or its own) data; unstable.
    pub(crate) fn copy_from(&mut self, from: &Content, range: &Range<u64>, offset: u64) {
        self.unstable(|live| live.copy_from(from, range, offset));
    }

    /// Makes everything stable.
    pub(crate) fn commit(&mut self) {
        self.stable = None;
    }

    /// Drops unstable data; returns whether there was any.
    pub(crate) fn crash(&mut self) -> bool {
        match self.stable.take() {
            Some(stable) => {
                self.live = stable;
                true
            }
            None => false,
        }
    }

    fn unstable(&mut self, change: impl FnOnce(&mut Content)) {
        if self.stable.is_none() {
            self.stable = Some(self.live.clone());
        }
        change(&mut self.live);
    }

    fn both(&mut self, change: impl Fn(&mut Content)) {
        change(&mut self.live);
        if let Some(stable) = &mut self.stable {
            change(stable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stable_write_saves_its_own_range_only() {
        let mut data = FileData::default();
        data.write(0, b"aaaa", Stability::FileSync);
        assert!(!data.is_unstable());
        data.write(0, b"bb", Stability::Unstable);
        data.write(2, b"cc", Stability::DataSync);
        assert_eq!(data.live().read(0, 9), b"bbcc");
        assert!(data.crash());
        assert_eq!(data.live().read(0, 9), b"aacc");
        assert!(!data.crash());
    }

    #[test]
    fn commit_saves_all_and_truncation_is_stable() {
        let mut data = FileData::default();
        data.write(0, b"0123456789", Stability::Unstable);
        data.commit();
        data.write(4, b"xxxxxxxxxx", Stability::Unstable);
        data.set_size(6);
        data.crash();
        assert_eq!(data.live().read(0, 99), b"012345");
    }
}
