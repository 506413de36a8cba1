//! Types of persistent reservations (SPC-4 table 68).

/// Type of a reservation: the accesses it restricts, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum ReservationType {
    WriteExclusive = 0x1,
    ExclusiveAccess = 0x3,
    WriteExclusiveRegistrants = 0x5,
    ExclusiveAccessRegistrants = 0x6,
    WriteExclusiveAll = 0x7,
    ExclusiveAccessAll = 0x8,
}

impl ReservationType {
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0x1 => Some(Self::WriteExclusive),
            0x3 => Some(Self::ExclusiveAccess),
            0x5 => Some(Self::WriteExclusiveRegistrants),
            0x6 => Some(Self::ExclusiveAccessRegistrants),
            0x7 => Some(Self::WriteExclusiveAll),
            0x8 => Some(Self::ExclusiveAccessAll),
            _ => None,
        }
    }

    /// Returns whether reads of others are refused, too.
    pub(crate) fn is_exclusive_access(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }

    /// Returns whether every registrant has the holder's access.
    pub(crate) fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Returns whether every registrant holds the reservation.
    pub(crate) fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }
}
