//! Flags in the connection manager's private data: one octet of flags, then
//! three reserved ones. RFC 7145 leaves their format to the fabric: this is the
//! header of the InfiniBand architecture's annex A12, which Linux also sends
//! over RoCE (`struct iser_cm_hdr`).

/// Zero-based virtual addresses are not used.
const NO_ZERO_BASED: u8 = 0x80;
/// Send with Invalidate is not used.
const NO_INVALIDATE: u8 = 0x40;

/// The flags, as capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivateData {
    /// Addresses begin at zero in each registered region.
    pub zero_based: bool,
    /// A Send may invalidate a registered region.
    pub invalidate: bool,
}

impl PrivateData {
    /// Reads the private data of a request. Without the header, no capability
    /// is offered: a connection manager pads with zeros, and all known
    /// initiators set the first flag.
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        match data.first() {
            Some(&flags) if data.len() >= 4 && flags & NO_ZERO_BASED != 0 => {
                Self { zero_based: false, invalidate: flags & NO_INVALIDATE == 0 }
            }
            _ => Self::default(),
        }
    }

    /// The answer to a request: invalidation if both sides support it,
    /// zero-based addresses never.
    #[must_use]
    pub fn answer(self, can_invalidate: bool) -> Self {
        Self { zero_based: false, invalidate: self.invalidate && can_invalidate }
    }

    /// The encoded private data.
    #[must_use]
    pub fn encode(self) -> [u8; 4] {
        let zero_based = if self.zero_based { 0 } else { NO_ZERO_BASED };
        let invalidate = if self.invalidate { 0 } else { NO_INVALIDATE };
        [zero_based | invalidate, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalidation_needs_both_and_silence_is_no_offer() {
        let linux = PrivateData::decode(&[0x80, 0, 0, 0, 0, 0]);
        assert!(linux.invalidate);
        assert_eq!(linux.answer(true).encode(), [0x80, 0, 0, 0]);
        assert_eq!(linux.answer(false).encode(), [0xc0, 0, 0, 0]);
        let without = PrivateData::decode(&[0xc0, 0, 0, 0]);
        assert_eq!(without.answer(true).encode(), [0xc0, 0, 0, 0]);
        for silence in [&[][..], &[0; 56], &[0x80]] {
            assert_eq!(PrivateData::decode(silence), PrivateData::default());
        }
    }
}
