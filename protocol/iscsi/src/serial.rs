//! Serial number arithmetic on 32 bits (RFC 7143 §4.2.2.1 and RFC 1982).

use std::fmt;

/// A CmdSN, StatSN, DataSN or R2TSN: compares modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sn(pub u32);

impl Sn {
    /// This number plus `n`, wrapping.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Distance from `other` to `self`; negative if `self` is behind.
    #[must_use]
    pub const fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// True if `self` comes before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.ahead_of(other) < 0
    }

    /// True if `self` comes after `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.ahead_of(other) > 0
    }
}

impl fmt::Display for Sn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_wraps() {
        assert!(Sn(u32::MAX).before(Sn(0)));
        assert!(Sn(5).after(Sn(u32::MAX - 3)));
        assert_eq!(Sn(2).ahead_of(Sn(u32::MAX)), 3);
        assert!(!Sn(7).before(Sn(7)) && !Sn(7).after(Sn(7)));
    }
}
