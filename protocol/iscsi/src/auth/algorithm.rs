//! Hash functions for CHAP.

use md5::Digest;

/// A CHAP algorithm by its number in IANA's PPP authentication registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChapAlgorithm {
    /// 5: MD5, which RFC 7143 §12.1.3 makes mandatory.
    Md5,
    /// 6: SHA-1.
    Sha1,
    /// 7: SHA-256.
    Sha256,
    /// 8: SHA3-256.
    Sha3_256,
}

impl ChapAlgorithm {
    /// All, strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The registered number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 6,
            Self::Sha256 => 7,
            Self::Sha3_256 => 8,
        }
    }

    /// The algorithm for a number in CHAP_A.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let number = text.parse::<u8>().ok()?;
        Self::ALL.into_iter().find(|algorithm| algorithm.number() == number)
    }

    /// The response to a challenge: hash of identifier, secret and challenge
    /// (RFC 1994 §4.1).
    #[must_use]
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hasher = D::new();
            parts.iter().for_each(|part| hasher.update(part));
            hasher.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Self::Md5 => hash::<md5::Md5>(parts),
            Self::Sha1 => hash::<sha1::Sha1>(parts),
            Self::Sha256 => hash::<sha2::Sha256>(parts),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn responses_are_the_hash_of_the_concatenation() {
        // The known digests of "abc": identifier 'a', secret "b", challenge "c".
        let of = |algorithm: ChapAlgorithm| hex(&algorithm.response(b'a', b"b", b"c"));
        assert_eq!(of(ChapAlgorithm::Md5), "900150983cd24fb0d6963f7d28e17f72"); // RFC 1321 A.5
        assert_eq!(of(ChapAlgorithm::Sha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(of(ChapAlgorithm::Sha256).starts_with("ba7816bf8f01cfea414140de5dae2223"));
        assert!(of(ChapAlgorithm::Sha3_256).starts_with("3a985da74fe225b2045c172d6bd390bd"));
    }

    #[test]
    fn numbers_are_read_whole() {
        assert_eq!(ChapAlgorithm::from_text("5"), Some(ChapAlgorithm::Md5));
        for bad in ["", "56", "9", "5x", "-5"] {
            assert_eq!(ChapAlgorithm::from_text(bad), None);
        }
    }
}
