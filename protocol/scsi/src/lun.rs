//! Logical unit numbers (SAM-5 §4.7).

use std::fmt;

/// A logical unit number of a single-level target, 0 to 16383.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(u16);

impl Lun {
    /// LUN 0.
    pub const ZERO: Self = Self(0);
    /// Largest LUN that flat space addressing can carry.
    pub const MAX: u16 = 0x3FFF;

    /// Creates a LUN, unless the number is too large.
    #[must_use]
    pub const fn new(lun: u16) -> Option<Self> {
        if lun <= Self::MAX { Some(Self(lun)) } else { None }
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Parses the eight bytes of a command; `None` if they name no single-level
    /// logical unit (another level, another bus, a well-known LUN).
    #[must_use]
    pub fn parse(wire: [u8; 8]) -> Option<Self> {
        let [first, second, rest @ ..] = wire;
        if rest != [0; 6] {
            return None;
        }
        match first >> 6 {
            // Peripheral device addressing: only bus 0 exists (SAM-5 §4.7.7.2).
            0b00 if first == 0 => Some(Self(u16::from(second))),
            // Flat space addressing (SAM-5 §4.7.7.3).
            0b01 => Some(Self(u16::from_be_bytes([first & 0x3F, second]))),
            _ => None,
        }
    }

    /// Encodes the eight bytes for REPORT LUNS: peripheral addressing up to
    /// 255, flat space addressing above.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let [mut first, second] = self.0.to_be_bytes();
        if self.0 > 0xFF {
            first |= 0x40;
        }
        [first, second, 0, 0, 0, 0, 0, 0]
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addressing_methods_are_read() {
        assert_eq!(Lun::parse([0, 5, 0, 0, 0, 0, 0, 0]), Lun::new(5));
        assert_eq!(Lun::parse([0x40, 5, 0, 0, 0, 0, 0, 0]), Lun::new(5));
        assert_eq!(Lun::parse([0x41, 0, 0, 0, 0, 0, 0, 0]), Lun::new(256));
        assert_eq!(Lun::parse([1, 5, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Lun::parse([0xC1, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Lun::parse([0, 5, 0, 1, 0, 0, 0, 0]), None);
    }

    #[test]
    fn what_is_reported_is_understood() {
        for number in [0, 1, 255, 256, Lun::MAX] {
            let lun = Lun::new(number).unwrap();
            assert_eq!(Lun::parse(lun.encode()), Some(lun));
        }
        assert_eq!(Lun::new(Lun::MAX + 1), None);
    }
}
