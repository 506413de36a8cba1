//! Limits on the rates of reads and writes.

use crate::problem::{Findings, Place};

/// Least limit on requests per second.
pub const MIN_IOPS: u64 = 10;
/// Largest limit on requests per second.
pub const MAX_IOPS: u64 = 100_000_000;
/// Least limit on bytes per second.
pub const MIN_BYTES_PER_SECOND: u64 = 1 << 20;
/// Largest limit on bytes per second.
pub const MAX_BYTES_PER_SECOND: u64 = 1 << 40;

/// Limits of an export or a logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Most reads and writes per second.
    pub iops_max: Option<u64>,
    /// Most bytes per second that they move.
    pub bytes_per_second_max: Option<u64>,
}

impl Rates {
    /// Returns whether there is no limit.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.iops_max.is_none() && self.bytes_per_second_max.is_none()
    }

    pub(crate) fn check(self, place: &Place, found: &mut Findings) {
        if let Some(iops) = self.iops_max {
            found.range(place.key("iops_max"), iops, MIN_IOPS, MAX_IOPS);
        }
        if let Some(bytes) = self.bytes_per_second_max {
            let place = place.key("bytes_per_second_max");
            found.range(place, bytes, MIN_BYTES_PER_SECOND, MAX_BYTES_PER_SECOND);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn limits_have_bounds() {
        let said = |lines: &str| {
            let text = format!("[[export]]\npath = \"/a\"\npseudo = \"/a\"\n{lines}");
            match crate::parse(&text, std::path::Path::new("x")) {
                Ok(config) => format!("{:?}", config.exports[0].rates()),
                Err(error) => error.to_string(),
            }
        };
        let both = said("iops_max = 500\nbytes_per_second_max = \"100MiB\"\n");
        assert_eq!(both, "Rates { iops_max: Some(500), bytes_per_second_max: Some(104857600) }");
        assert!(said("iops_max = 9").contains("iops_max"));
        assert!(said("bytes_per_second_max = \"1KiB\"").contains("bytes_per_second_max"));
    }
}
