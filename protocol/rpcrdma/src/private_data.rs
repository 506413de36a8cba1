//! Private data that both sides exchange while they connect (RFC 8797).

use crate::limits::{DEFAULT_INLINE_BYTES, MAX_INLINE_BYTES};

/// First word of the message (RFC 8797 §4).
const FORMAT: u32 = 0xf6ab_0e18;
const VERSION: u8 = 1;
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;
/// Length of the message in bytes.
pub const PRIVATE_DATA_BYTES: usize = 8;

/// One side's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// Set if memory of the sender may be invalidated by the peer's Send.
    pub remote_invalidation: bool,
    /// Longest message that the side sends, in bytes; a multiple of 1 KiB.
    pub send_bytes: u32,
    /// Longest message that the side receives, in bytes; a multiple of 1 KiB.
    pub receive_bytes: u32,
}

/// Values of a side that sent nothing: the defaults of RFC 8166 §3.3.3.
impl Default for PrivateData {
    fn default() -> Self {
        Self {
            remote_invalidation: false,
            send_bytes: DEFAULT_INLINE_BYTES,
            receive_bytes: DEFAULT_INLINE_BYTES,
        }
    }
}

impl PrivateData {
    /// Encodes the bytes for the connection request or reply.
    #[must_use]
    pub fn encode(&self) -> [u8; PRIVATE_DATA_BYTES] {
        let [a, b, c, d] = FORMAT.to_be_bytes();
        let flags = if self.remote_invalidation { FLAG_REMOTE_INVALIDATION } else { 0 };
        [a, b, c, d, VERSION, flags, encode_size(self.send_bytes), encode_size(self.receive_bytes)]
    }

    /// Parses a peer's private data. Other formats and versions, and none at
    /// all, mean the defaults (RFC 8797 §5.1). Padding may follow, and data of
    /// other layers may precede it (RFC 8797 §5.2).
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let begins = |at: &&[u8; PRIVATE_DATA_BYTES]| at.starts_with(&FORMAT.to_be_bytes());
        let mut places = bytes.windows(PRIVATE_DATA_BYTES).filter_map(<[u8]>::first_chunk);
        let Some(&[_, _, _, _, VERSION, flags, send, receive]) = places.find(begins) else {
            return Self::default();
        };
        // Reserved flags are ignored by receivers.
        Self {
            remote_invalidation: flags & FLAG_REMOTE_INVALIDATION != 0,
            send_bytes: decode_size(send),
            receive_bytes: decode_size(receive),
        }
    }
}

fn encode_size(bytes: u32) -> u8 {
    (bytes.clamp(DEFAULT_INLINE_BYTES, MAX_INLINE_BYTES) / 1024 - 1) as u8
}

fn decode_size(byte: u8) -> u32 {
    (u32::from(byte) + 1) * 1024
}

/// Inline thresholds of a connection, in bytes: the longest message in each
/// direction, transport header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineBytes {
    /// From this side to the peer.
    pub send: u32,
    /// From the peer to this side.
    pub receive: u32,
}

impl InlineBytes {
    /// Derives the thresholds from both offers: neither side sends more than
    /// the other receives (RFC 8797 §4.2).
    #[must_use]
    pub fn negotiate(own: &PrivateData, peer: &PrivateData) -> Self {
        Self {
            send: own.send_bytes.min(peer.receive_bytes),
            receive: own.receive_bytes.min(peer.send_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Private data of the Linux client: 4 KiB in each direction, remote
    /// invalidation.
    const LINUX: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

    #[test]
    fn the_fixed_vector_of_a_linux_client() {
        let offer = PrivateData::decode(&LINUX);
        let expected =
            PrivateData { remote_invalidation: true, send_bytes: 4096, receive_bytes: 4096 };
        assert_eq!(offer, expected);
        assert_eq!(offer.encode(), LINUX);
        let mut padded = LINUX.to_vec();
        padded.resize(56, 0);
        assert_eq!(PrivateData::decode(&padded), expected);
        // Behind data of another layer, at an unaligned offset.
        padded.splice(0..0, [0xf6, 0xab, 0x0e]);
        assert_eq!(PrivateData::decode(&padded), expected);
    }

    #[test]
    fn nothing_and_nonsense_mean_the_defaults() {
        let mut other_version = LINUX;
        other_version[4] = 2;
        let mut other_format = LINUX;
        other_format[0] = 0;
        for bytes in [&[][..], &LINUX[..7], &other_version, &other_format] {
            assert_eq!(PrivateData::decode(bytes), PrivateData::default());
        }
    }

    #[test]
    fn neither_side_sends_more_than_the_other_takes() {
        let own = PrivateData { send_bytes: 8192, receive_bytes: 4096, ..Default::default() };
        let peer = PrivateData { send_bytes: 65536, receive_bytes: 2048, ..Default::default() };
        assert_eq!(InlineBytes::negotiate(&own, &peer), InlineBytes { send: 2048, receive: 4096 });
        let silent = InlineBytes::negotiate(&own, &PrivateData::default());
        assert_eq!(silent, InlineBytes { send: 1024, receive: 1024 });
    }

    #[test]
    fn all_sizes_survive_the_trip() {
        for byte in 0..=u8::MAX {
            assert_eq!(encode_size(decode_size(byte)), byte);
        }
        assert_eq!(encode_size(0), 0);
        assert_eq!(encode_size(u32::MAX), 255);
    }
}
