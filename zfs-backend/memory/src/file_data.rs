//! What a file holds now and what it would hold after a power loss.

use crate::content::Content;
use std::ops::Range;
use zgate_store::file_store::Stability;

/// A regular file's data.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileData {
    live: Content,
    /// What is on stable storage, where it differs from `live`.
    stable: Option<Content>,
}

impl FileData {
    /// What readers see.
    pub(crate) fn live(&self) -> &Content {
        &self.live
    }

    /// Whether something would be lost.
    pub(crate) fn is_unstable(&self) -> bool {
        self.stable.is_some()
    }

    /// Writes; anything but `Unstable` reaches stable storage, for the range
    /// written only.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], stability: Stability) {
        if stability == Stability::Unstable {
            self.unstable(|live| live.write(offset, data));
        } else {
            self.both(|content| content.write(offset, data));
        }
    }

    /// Sets the length; stable at once, like all attributes.
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

    /// Loses what is not stable; whether there was anything to lose.
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
