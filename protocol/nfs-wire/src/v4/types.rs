//! Identifiers and small structures (RFC 8881 §3.2, §3.3).

use crate::limits::{MAX_BITMAP_WORDS, MAX_COMPONENT_BYTES, MAX_FH_BYTES, MAX_OPAQUE_BYTES};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_enum, xdr_struct};

/// A verifier: eight bytes compared for equality only.
pub type Verifier = [u8; 8];

/// A path component in wire format.
pub type Component = Opaque<MAX_COMPONENT_BYTES>;

/// A client's or owner's opaque string.
pub type OwnerBytes = Opaque<MAX_OPAQUE_BYTES>;

/// nfs_fh4. Opaque except to the server that issued it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub Vec<u8>);

impl Encode for Fh {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

impl Decode for Fh {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.opaque(MAX_FH_BYTES).map(|bytes| Self(bytes.to_vec()))
    }
}

macro_rules! number {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
        impl Encode for $name {
            fn encode(&self, e: &mut Encoder) { e.u64(self.0); }
        }
        impl Decode for $name {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> { d.u64().map(Self) }
        }
    };
}

number! {
    /// clientid4.
    ClientId
}

/// sessionid4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl Encode for SessionId {
    fn encode(&self, e: &mut Encoder) {
        e.opaque_fixed(&self.0);
    }
}

impl Decode for SessionId {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        <[u8; 16]>::decode(d).map(Self)
    }
}

xdr_struct! {
    /// stateid4.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Stateid {
        /// Version of the state; 0 means the newest (minor versions ≥ 1).
        pub seqid: u32,
        /// Identifies the state.
        pub other: [u8; 12],
    }
}

impl Stateid {
    /// All zeros: anonymous (RFC 8881 §8.2.3).
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// All ones: READ bypasses locks.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The COMPOUND's current stateid (RFC 8881 §16.2.3.1.2).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// Never valid (RFC 8881 §8.2.3).
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };
}

/// Words of a bitmap that are kept in place: all numbers of attributes that have a meaning lie
/// in them.
const PLACED_WORDS: usize = 3;

/// bitmap4. Trailing zero words do not count: they are neither compared nor sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    placed: [u32; PLACED_WORDS],
    /// The words behind; the last one is not zero.
    more: Vec<u32>,
}

impl Bitmap {
    /// A bitmap with these bits set.
    #[must_use]
    pub fn of(bits: &[u32]) -> Self {
        let mut map = Self::default();
        for &bit in bits {
            map.set(bit);
        }
        map
    }

    /// Sets a bit.
    pub fn set(&mut self, bit: u32) {
        let at = (bit / 32) as usize;
        let word = match at.checked_sub(PLACED_WORDS) {
            None => &mut self.placed[at],
            Some(at) => {
                if self.more.len() <= at {
                    self.more.resize(at + 1, 0);
                }
                &mut self.more[at]
            }
        };
        *word |= 1 << (bit % 32);
    }

    /// Clears a bit.
    pub fn clear(&mut self, bit: u32) {
        let at = (bit / 32) as usize;
        let word = match at.checked_sub(PLACED_WORDS) {
            None => self.placed.get_mut(at),
            Some(at) => self.more.get_mut(at),
        };
        if let Some(word) = word {
            *word &= !(1 << (bit % 32));
        }
        self.trim();
    }

    /// True if a bit is set.
    #[must_use]
    #[inline]
    pub fn contains(&self, bit: u32) -> bool {
        self.word((bit / 32) as usize).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    /// The bits set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        Bits { map: self, at: 0, left: self.placed[0] }
    }

    /// True if no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placed == [0; PLACED_WORDS] && self.more.is_empty()
    }

    /// The bits set in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let placed = std::array::from_fn(|at| self.placed[at] & other.placed[at]);
        let mut both = Self { placed, more: Vec::new() };
        // Hardly any bitmap has words behind those in place.
        if !self.more.is_empty() && !other.more.is_empty() {
            both.more = self.more.iter().zip(&other.more).map(|(a, b)| a & b).collect();
            both.trim();
        }
        both
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u32> {
        let word = match at.checked_sub(PLACED_WORDS) {
            None => self.placed.get(at),
            Some(at) => self.more.get(at),
        };
        word.copied()
    }

    /// Number of words without trailing zeros.
    fn words(&self) -> usize {
        if !self.more.is_empty() {
            return PLACED_WORDS + self.more.len();
        }
        self.placed.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1)
    }

    fn trim(&mut self) {
        while self.more.last() == Some(&0) {
            self.more.pop();
        }
    }
}

/// The bits set in a bitmap from a place on.
struct Bits<'a> {
    map: &'a Bitmap,
    /// Index of the present word.
    at: usize,
    /// Those of its bits that are still to come.
    left: u32,
}

impl Iterator for Bits<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.left == 0 {
            let next = self.at + 1;
            self.left = self.map.word(next)?;
            self.at = next;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(self.at as u32 * 32 + bit)
    }
}

impl Encode for Bitmap {
    fn encode(&self, e: &mut Encoder) {
        let words = self.words();
        e.u32(words as u32);
        for word in self.placed.iter().chain(&self.more).take(words) {
            e.u32(*word);
        }
    }
}

impl Decode for Bitmap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let words = d.length(MAX_BITMAP_WORDS)?;
        let mut map = Self::default();
        for word in map.placed.iter_mut().take(words) {
            *word = d.u32()?;
        }
        for _ in PLACED_WORDS..words {
            map.more.push(d.u32()?);
        }
        map.trim();
        Ok(map)
    }
}

xdr_struct! {
    /// change_info4.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChangeInfo {
        /// Taken atomically with the change.
        pub atomic: bool,
        /// Before.
        pub before: u64,
        /// After.
        pub after: u64,
    }
}

impl From<zgate_store::file_store::DirChange> for ChangeInfo {
    fn from(c: zgate_store::file_store::DirChange) -> Self {
        Self { atomic: c.atomic, before: c.before, after: c.after }
    }
}

xdr_struct! {
    /// fattr4: mask of attributes, and their concatenated values.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Fattr {
        /// Mask of the attributes.
        pub mask: Bitmap,
        /// Their values.
        pub values: Opaque<{ crate::limits::MAX_FATTR_BYTES }>,
    }
}

xdr_struct! {
    /// open_owner4, lock_owner4.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct StateOwner {
        /// The client. Ignored by minor versions ≥ 1, where the session
        /// determines it.
        pub clientid: ClientId,
        /// The owner's name.
        pub owner: OwnerBytes,
    }
}

xdr_struct! {
    /// nfstime4.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NfsTime {
        /// Seconds since the epoch.
        pub seconds: i64,
        /// Nanoseconds.
        pub nanoseconds: u32,
    }
}

impl From<zgate_store::Timestamp> for NfsTime {
    fn from(t: zgate_store::Timestamp) -> Self {
        Self { seconds: t.seconds, nanoseconds: t.nanoseconds }
    }
}

xdr_enum! {
    /// stable_how4.
    pub enum StableHow {
        /// UNSTABLE4.
        Unstable = 0,
        /// DATA_SYNC4.
        DataSync = 1,
        /// FILE_SYNC4.
        FileSync = 2,
    }
}

xdr_enum! {
    /// nfs_lock_type4.
    pub enum LockType {
        /// READ_LT.
        Read = 1,
        /// WRITE_LT.
        Write = 2,
        /// READW_LT: the client will wait.
        ReadWait = 3,
        /// WRITEW_LT: the client will wait.
        WriteWait = 4,
    }
}

impl LockType {
    /// True for an exclusive lock.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }

    /// True if the client will wait for the lock.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, Self::ReadWait | Self::WriteWait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_compare_by_their_bits() {
        let mut a = Bitmap::of(&[1, 40, 86]);
        assert_eq!(a.iter().collect::<Vec<_>>(), [1, 40, 86]);
        a.clear(86);
        assert_eq!(a, Bitmap::of(&[40, 1]));
        assert_eq!(a.intersection(&Bitmap::of(&[40, 3])), Bitmap::of(&[40]));
        assert!(!a.contains(1000));
    }

    #[test]
    fn words_that_no_attribute_has_count_as_all_others_do() {
        let bits = [0, 31, 32, 95, 96, 127, 200];
        let mut a = Bitmap::of(&bits);
        assert_eq!(a.iter().collect::<Vec<_>>(), bits);
        assert!(bits.iter().all(|bit| a.contains(*bit)) && !a.contains(128));
        assert_eq!(a.intersection(&Bitmap::of(&[31, 127, 128])), Bitmap::of(&[31, 127]));
        a.clear(200);
        assert_eq!(a, Bitmap::of(&bits[..6]));
        for bit in bits {
            a.clear(bit);
        }
        assert!(a.is_empty() && a.iter().next().is_none());
        assert_eq!(a, Bitmap::default());
    }

    #[test]
    fn trailing_zero_words_are_read_and_not_sent() {
        let sent = |map: &Bitmap| {
            let mut e = Encoder::new();
            map.encode(&mut e);
            e.finish_bytes().unwrap()
        };
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        for (received, expected) in [
            (&[0][..], &[0][..]),
            (&[2, 0, 0], &[0]),
            (&[3, 1, 0, 0], &[1, 1]),
            (&[5, 0, 0, 0, 1, 0], &[4, 0, 0, 0, 1]),
            (&[4, 1, 0, 0, 0], &[1, 1]),
        ] {
            let bytes = words(received);
            let map = Bitmap::decode(&mut Decoder::new(&bytes)).unwrap();
            assert_eq!(sent(&map)[..], words(expected), "{received:?}");
        }
        let mut cleared = Bitmap::of(&[1, 40]);
        cleared.clear(40);
        assert_eq!(sent(&cleared)[..], words(&[1, 2]));
        let short = words(&[2, 1]);
        assert_eq!(Bitmap::decode(&mut Decoder::new(&short)), Err(XdrError::Short));
        let long = words(&[MAX_BITMAP_WORDS as u32 + 1]);
        assert_eq!(Bitmap::decode(&mut Decoder::new(&long)), Err(XdrError::TooLong));
    }
}
