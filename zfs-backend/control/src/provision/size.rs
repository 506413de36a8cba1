//! Sizes in layouts: exact, with units that cannot be mistaken.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// A size in bytes: a number, or a number with KiB, MiB, GiB, TiB (powers of
/// 1024) or KB, MB, GB, TB (powers of 1000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// One mebibyte.
pub(super) const MIB: u64 = 1 << 20;

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", MIB),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let factor = factor.ok_or_else(|| {
            format!("\"{text}\": the unit is ambiguous; use GiB (1024 each) or GB (1000 each)")
        })?;
        let number: u64 = digits.parse().map_err(|_| format!("\"{text}\" is not a size"))?;
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("\"{text}\" is too large"))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(u64),
            Text(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Number(number) => Ok(Self(number)),
            Raw::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// Prints the size exactly, in the form that `zfs` takes: `2T`, `16K`, `1000`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// Parses a size as defined in zfsprops(7): units are powers of 1024, and the
/// rest of the unit is ignored.
pub(super) fn zfs_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        assert_eq!("32GiB".parse(), Ok(Bytes(32 << 30)));
        assert_eq!("18TB".parse(), Ok(Bytes(18_000_000_000_000)));
        assert_eq!("512".parse(), Ok(Bytes(512)));
        for bad in ["32G", "1.5TiB", "", "GiB", "99999999999TiB", "-1"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
        assert_eq!(Bytes(2 << 40).to_string(), "2T");
        assert_eq!(Bytes(1536).to_string(), "1536");
        assert_eq!(Bytes(3 << 19).to_string(), "1536K");
        assert_eq!(
            (zfs_size("32K"), zfs_size("1MiB"), zfs_size("8")),
            (Some(32768), Some(MIB), Some(8))
        );
        assert_eq!((zfs_size("x"), zfs_size("1.5K"), zfs_size("none")), (None, None, None));
    }
}
