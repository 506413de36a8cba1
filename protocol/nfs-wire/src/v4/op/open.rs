//! OPEN's arguments and results (RFC 8881 §18.16, RFC 7530 §16.16).

use crate::limits::MAX_PRINCIPAL_BYTES;
use crate::v4::{Bitmap, ChangeInfo, Component, Fattr, StateOwner, Stateid, Verifier};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// OPEN4_SHARE_ACCESS_WANT_DELEG_MASK.
pub const WANT_MASK: u32 = 0xff00;
/// OPEN4_SHARE_ACCESS_WANT_READ_DELEG.
pub const WANT_READ: u32 = 0x0100;
/// OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG.
pub const WANT_WRITE: u32 = 0x0200;
/// OPEN4_SHARE_ACCESS_WANT_NO_DELEG.
pub const WANT_NO_DELEGATION: u32 = 0x0400;
/// OPEN4_SHARE_ACCESS_WANT_CANCEL.
pub const WANT_CANCEL: u32 = 0x0500;
/// OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS (RFC 9754 §5).
pub const WANT_TIMESTAMPS: u32 = 0x10_0000;
/// WND4_NOT_WANTED.
pub const NOT_WANTED: u32 = 0;
/// WND4_CONTENTION, whose reply carries a further word.
pub const CONTENTION: u32 = 1;
/// WND4_RESOURCE, whose reply carries a further word.
pub const RESOURCE: u32 = 2;
/// WND4_NOT_SUPP_UPGRADE.
pub const NOT_SUPP_UPGRADE: u32 = 5;
/// WND4_NOT_SUPP_DOWNGRADE.
pub const NOT_SUPP_DOWNGRADE: u32 = 6;
/// WND4_CANCELLED.
pub const CANCELLED: u32 = 7;
/// OPEN4_RESULT_CONFIRM.
pub const RESULT_CONFIRM: u32 = 2;
/// OPEN4_RESULT_LOCKTYPE_POSIX.
pub const RESULT_LOCKTYPE_POSIX: u32 = 4;
/// OPEN4_RESULT_MAY_NOTIFY_LOCK.
pub const RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;

/// openflag4: creation mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// OPEN4_NOCREATE.
    NoCreate,
    /// UNCHECKED4.
    Unchecked(Fattr),
    /// GUARDED4.
    Guarded(Fattr),
    /// EXCLUSIVE4.
    Exclusive(Verifier),
    /// EXCLUSIVE4_1.
    ExclusiveWithAttrs(Verifier, Fattr),
}

impl Encode for How {
    fn encode(&self, e: &mut Encoder) {
        let (kind, verifier, attrs) = match self {
            Self::NoCreate => return e.u32(0),
            Self::Unchecked(attrs) => (0, None, Some(attrs)),
            Self::Guarded(attrs) => (1, None, Some(attrs)),
            Self::Exclusive(verifier) => (2, Some(verifier), None),
            Self::ExclusiveWithAttrs(verifier, attrs) => (3, Some(verifier), Some(attrs)),
        };
        e.u32(1);
        e.u32(kind);
        if let Some(verifier) = verifier {
            verifier.encode(e);
        }
        if let Some(attrs) = attrs {
            attrs.encode(e);
        }
    }
}

impl Decode for How {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(Self::NoCreate),
            1 => match d.u32()? {
                0 => Decode::decode(d).map(Self::Unchecked),
                1 => Decode::decode(d).map(Self::Guarded),
                2 => Decode::decode(d).map(Self::Exclusive),
                3 => Ok(Self::ExclusiveWithAttrs(Decode::decode(d)?, Decode::decode(d)?)),
                _ => Err(XdrError::BadValue),
            },
            _ => Err(XdrError::BadValue),
        }
    }
}

/// open_claim4: reference to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// CLAIM_NULL: a name in the current directory.
    Null(Component),
    /// CLAIM_PREVIOUS: reclaim, with the delegation held before.
    Previous(u32),
    /// CLAIM_DELEGATE_CUR: a delegation held, and a name.
    DelegateCurrent(Stateid, Component),
    /// CLAIM_DELEGATE_PREV.
    DelegatePrevious(Component),
    /// CLAIM_FH: the current file handle.
    Fh,
    /// CLAIM_DELEG_CUR_FH.
    DelegateCurrentFh(Stateid),
    /// CLAIM_DELEG_PREV_FH.
    DelegatePreviousFh,
}

impl Claim {
    /// True for a reclaim after a restart.
    #[must_use]
    pub fn is_reclaim(&self) -> bool {
        matches!(self, Self::Previous(_))
    }

    /// True if the current file handle is the file itself.
    #[must_use]
    pub fn by_handle(&self) -> bool {
        matches!(
            self,
            Self::Previous(_) | Self::Fh | Self::DelegateCurrentFh(_) | Self::DelegatePreviousFh
        )
    }
}

impl Encode for Claim {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Null(name) => {
                e.u32(0);
                name.encode(e);
            }
            Self::Previous(kind) => {
                e.u32(1);
                e.u32(*kind);
            }
            Self::DelegateCurrent(stateid, name) => {
                e.u32(2);
                stateid.encode(e);
                name.encode(e);
            }
            Self::DelegatePrevious(name) => {
                e.u32(3);
                name.encode(e);
            }
            Self::Fh => e.u32(4),
            Self::DelegateCurrentFh(stateid) => {
                e.u32(5);
                stateid.encode(e);
            }
            Self::DelegatePreviousFh => e.u32(6),
        }
    }
}

impl Decode for Claim {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Decode::decode(d).map(Self::Null),
            1 => match d.u32()? {
                kind @ 0..=5 => Ok(Self::Previous(kind)),
                _ => Err(XdrError::BadValue),
            },
            2 => Ok(Self::DelegateCurrent(Decode::decode(d)?, Decode::decode(d)?)),
            3 => Decode::decode(d).map(Self::DelegatePrevious),
            4 => Ok(Self::Fh),
            5 => Decode::decode(d).map(Self::DelegateCurrentFh),
            6 => Ok(Self::DelegatePreviousFh),
            _ => Err(XdrError::BadValue),
        }
    }
}

xdr_struct! {
    /// OPEN4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Owner's sequence number (minor version 0).
        pub seqid: u32,
        /// OPEN4_SHARE_ACCESS_*, with WANT bits.
        pub access: u32,
        /// OPEN4_SHARE_DENY_*.
        pub deny: u32,
        /// The open owner.
        pub owner: StateOwner,
        /// Creation.
        pub how: How,
        /// Reference to the file.
        pub claim: Claim,
    }
}

xdr_struct! {
    /// nfsace4 as delegations carry it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DelegationAce {
        /// ALLOW is 0.
        pub kind: u32,
        /// Flags.
        pub flags: u32,
        /// Rights.
        pub mask: u32,
        /// The principal.
        pub who: Opaque<MAX_PRINCIPAL_BYTES>,
    }
}

/// open_delegation4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delegated {
    /// OPEN_DELEGATE_NONE.
    None,
    /// OPEN_DELEGATE_NONE_EXT with why_no_delegation4.
    NoneBecause(u32),
    /// OPEN_DELEGATE_READ; `attrs`: OPEN_DELEGATE_READ_ATTRS_DELEG.
    Read {
        /// Its stateid.
        stateid: Stateid,
        /// It will be recalled at once.
        recall: bool,
        /// With delegated time stamps (RFC 9754).
        attrs: bool,
    },
    /// OPEN_DELEGATE_WRITE.
    Write {
        /// Its stateid.
        stateid: Stateid,
        /// It will be recalled at once.
        recall: bool,
        /// Size in bytes to which the file may grow before the client must ask.
        limit_bytes: u64,
        /// With delegated time stamps (RFC 9754).
        attrs: bool,
    },
}

fn no_ace() -> DelegationAce {
    DelegationAce { kind: 0, flags: 0, mask: 0, who: Opaque::default() }
}

impl Encode for Delegated {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::None => e.u32(0),
            Self::NoneBecause(why) => {
                e.u32(3);
                e.u32(*why);
                if matches!(*why, CONTENTION | RESOURCE) {
                    e.u32(0);
                }
            }
            Self::Read { stateid, recall, attrs } => {
                e.u32(if *attrs { 4 } else { 1 });
                stateid.encode(e);
                recall.encode(e);
                no_ace().encode(e);
            }
            Self::Write { stateid, recall, limit_bytes, attrs } => {
                e.u32(if *attrs { 5 } else { 2 });
                stateid.encode(e);
                recall.encode(e);
                e.u32(1);
                e.u64(*limit_bytes);
                no_ace().encode(e);
            }
        }
    }
}

impl Decode for Delegated {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(Self::None),
            kind @ (1 | 4) => {
                let (stateid, recall) = (Decode::decode(d)?, Decode::decode(d)?);
                DelegationAce::decode(d)?;
                Ok(Self::Read { stateid, recall, attrs: kind == 4 })
            }
            kind @ (2 | 5) => {
                let (stateid, recall) = (Decode::decode(d)?, Decode::decode(d)?);
                let limit_bytes = match d.u32()? {
                    1 => d.u64()?,
                    2 => u64::from(d.u32()?) * u64::from(d.u32()?),
                    _ => return Err(XdrError::BadValue),
                };
                DelegationAce::decode(d)?;
                Ok(Self::Write { stateid, recall, limit_bytes, attrs: kind == 5 })
            }
            3 => {
                let why = d.u32()?;
                if matches!(why, CONTENTION | RESOURCE) {
                    d.u32()?;
                }
                Ok(Self::NoneBecause(why))
            }
            _ => Err(XdrError::BadValue),
        }
    }
}

xdr_struct! {
    /// OPEN4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// The open.
        pub stateid: Stateid,
        /// The directory's change.
        pub change: ChangeInfo,
        /// OPEN4_RESULT_*.
        pub flags: u32,
        /// Attributes set at creation.
        pub attrs_set: Bitmap,
        /// A delegation.
        pub delegated: Delegated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T) {
        let mut e = Encoder::new();
        value.encode(&mut e);
        let raw = e.finish().flatten().unwrap();
        let mut d = Decoder::new(&raw);
        assert_eq!(&T::decode(&mut d).unwrap(), value);
        d.finish().unwrap();
        for cut in 0..raw.len() {
            assert!(T::decode(&mut Decoder::new(&raw[..cut])).is_err());
        }
    }

    #[test]
    fn every_arm_survives_the_trip() {
        let stateid = Stateid { seqid: 3, other: [7; 12] };
        let name = || Opaque(b"file".to_vec());
        for how in [
            How::NoCreate,
            How::Unchecked(Fattr::default()),
            How::Guarded(Fattr::default()),
            How::Exclusive([1; 8]),
            How::ExclusiveWithAttrs([2; 8], Fattr::default()),
        ] {
            round_trip(&how);
        }
        for claim in [
            Claim::Null(name()),
            Claim::Previous(2),
            Claim::DelegateCurrent(stateid, name()),
            Claim::DelegatePrevious(name()),
            Claim::Fh,
            Claim::DelegateCurrentFh(stateid),
            Claim::DelegatePreviousFh,
        ] {
            round_trip(&claim);
        }
        for delegated in [
            Delegated::None,
            Delegated::NoneBecause(0),
            Delegated::NoneBecause(2),
            Delegated::Read { stateid, recall: false, attrs: true },
            Delegated::Write { stateid, recall: true, limit_bytes: 1 << 40, attrs: false },
        ] {
            round_trip(&delegated);
        }
    }
}
