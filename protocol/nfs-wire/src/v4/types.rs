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

/// bitmap4. Trailing zero words do not count in comparisons.
#[derive(Clone, Debug, Default)]
pub struct Bitmap(Vec<u32>);

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
        let word = (bit / 32) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (bit % 32);
    }

    /// Clears a bit.
    pub fn clear(&mut self, bit: u32) {
        if let Some(word) = self.0.get_mut((bit / 32) as usize) {
            *word &= !(1 << (bit % 32));
        }
    }

    /// True if a bit is set.
    #[must_use]
    pub fn contains(&self, bit: u32) -> bool {
        self.0.get((bit / 32) as usize).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    /// The bits set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * 32 + bit)
        })
    }

    /// True if no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The bits set in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect()).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}

impl PartialEq for Bitmap {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Bitmap {}

impl Encode for Bitmap {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.0);
    }
}

impl Decode for Bitmap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.array(MAX_BITMAP_WORDS).map(|words| Self(words).trimmed())
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
}
