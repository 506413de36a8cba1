//! LOCK (RFC 8881 §18.10).

use crate::v4::{LockType, StateOwner, Stateid};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// locker4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locker {
    /// open_to_lock_owner4: the owner's first lock of this file.
    New {
        /// Open owner's sequence number.
        open_seqid: u32,
        /// The open.
        open: Stateid,
        /// Lock owner's sequence number.
        lock_seqid: u32,
        /// The lock owner.
        owner: StateOwner,
    },
    /// exist_lock_owner4.
    Existing {
        /// The lock stateid.
        stateid: Stateid,
        /// Lock owner's sequence number.
        seqid: u32,
    },
}

impl Encode for Locker {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::New { open_seqid, open, lock_seqid, owner } => {
                e.u32(1);
                e.u32(*open_seqid);
                open.encode(e);
                e.u32(*lock_seqid);
                owner.encode(e);
            }
            Self::Existing { stateid, seqid } => {
                e.u32(0);
                stateid.encode(e);
                e.u32(*seqid);
            }
        }
    }
}

impl Decode for Locker {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        if bool::decode(d)? {
            Ok(Self::New {
                open_seqid: d.u32()?,
                open: Decode::decode(d)?,
                lock_seqid: d.u32()?,
                owner: Decode::decode(d)?,
            })
        } else {
            Ok(Self::Existing { stateid: Decode::decode(d)?, seqid: d.u32()? })
        }
    }
}

xdr_struct! {
    /// LOCK4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Type: shared or exclusive, waiting or not.
        pub kind: LockType,
        /// Reclaim of a lock held before a restart.
        pub reclaim: bool,
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones: to the end.
        pub length: u64,
        /// The lock owner.
        pub locker: Locker,
    }
}

xdr_struct! {
    /// LOCK4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// The lock stateid.
        pub stateid: Stateid,
    }
}

xdr_struct! {
    /// LOCK4denied: the conflicting lock.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Denied {
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones: to the end.
        pub length: u64,
        /// Shared or exclusive.
        pub kind: LockType,
        /// The lock owner.
        pub owner: StateOwner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::Opaque;

    #[test]
    fn both_lockers_survive_the_trip() {
        let stateid = Stateid { seqid: 1, other: [4; 12] };
        let owner = StateOwner { clientid: crate::v4::ClientId(7), owner: Opaque(b"me".to_vec()) };
        for locker in [
            Locker::New { open_seqid: 1, open: stateid, lock_seqid: 0, owner },
            Locker::Existing { stateid, seqid: 9 },
        ] {
            let mut e = Encoder::new();
            locker.encode(&mut e);
            let raw = e.finish().flatten().unwrap();
            assert_eq!(Locker::decode(&mut Decoder::new(&raw)).unwrap(), locker);
        }
    }
}
