//! The iSER header (RFC 7145 §9.1 to §9.4).

use super::limits::HEADER_BYTES;
use thiserror::Error;

const CONTROL: u8 = 1;
const HELLO: u8 = 2;
const HELLO_REPLY: u8 = 3;
/// WSV: the Write STag is valid.
const WRITE_VALID: u8 = 0x08;
/// RSV: the Read STag is valid.
const READ_VALID: u8 = 0x04;
/// REJ of a HelloReply.
const REJECTED: u8 = 0x01;
/// The version of RFC 7145 (§9.3, §9.4).
const NEWEST_VERSION: u8 = 10;

/// Memory of the initiator that the target may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Its key.
    pub stag: u32,
    /// Address of its first byte.
    pub base: u64,
}

/// The first message of an initiator that requests a Hello exchange (RFC 7145
/// §9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Newest version that the initiator supports.
    pub max_version: u8,
    /// Oldest version that the initiator supports.
    pub min_version: u8,
    /// RDMA Reads that the initiator can serve at the same time.
    pub inbound_reads: u16,
}

/// The answer to a Hello (RFC 7145 §9.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloReply {
    /// No common version.
    pub rejected: bool,
    /// Newest version that the target supports.
    pub max_version: u8,
    /// The selected version.
    pub version: u8,
    /// RDMA Reads that the target will have outstanding at the same time.
    pub outbound_reads: u16,
}

/// An iSER header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// An iSCSI PDU follows (RFC 7145 §9.2).
    Control {
        /// Memory that the target may read: the data of a SCSI write.
        write: Option<RemoteBuffer>,
        /// Memory that the target may write: for the data of a SCSI read.
        read: Option<RemoteBuffer>,
    },
    /// Hello.
    Hello(Hello),
    /// HelloReply.
    HelloReply(HelloReply),
}

/// Error in the format of a header; an error of the peer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// Truncated.
    #[error("{0} bytes are too few for an iSER message")]
    Short(usize),
    /// An unknown opcode.
    #[error("iSER opcode {0}")]
    Opcode(u8),
}

impl Hello {
    /// The HelloReply to this Hello.
    #[must_use]
    pub fn answer(&self, outbound_reads: u16) -> HelloReply {
        let version = self.max_version.min(NEWEST_VERSION);
        let rejected = version < self.min_version;
        let outbound_reads = outbound_reads.min(self.inbound_reads);
        HelloReply { rejected, max_version: NEWEST_VERSION, version, outbound_reads }
    }
}

impl Header {
    /// The header of a PDU that advertises no memory.
    pub const PLAIN: Self = Self::Control { write: None, read: None };

    /// Reads the header at the start of a message.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn decode(message: &[u8]) -> Result<Self, HeaderError> {
        let header =
            message.first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Short(message.len()))?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let buffer = |valid: u8, at: usize| {
            let mut stag = [0; 4];
            let mut base = [0; 8];
            stag.copy_from_slice(&header[at..at + 4]);
            base.copy_from_slice(&header[at + 4..at + 12]);
            (header[0] & valid != 0).then_some(RemoteBuffer {
                stag: u32::from_be_bytes(stag),
                base: u64::from_be_bytes(base),
            })
        };
        match header[0] >> 4 {
            CONTROL => {
                Ok(Self::Control { write: buffer(WRITE_VALID, 4), read: buffer(READ_VALID, 16) })
            }
            HELLO => Ok(Self::Hello(Hello {
                max_version: header[1] >> 4,
                min_version: header[1] & 15,
                inbound_reads: half(2),
            })),
            HELLO_REPLY => Ok(Self::HelloReply(HelloReply {
                rejected: header[0] & REJECTED != 0,
                max_version: header[1] >> 4,
                version: header[1] & 15,
                outbound_reads: half(2),
            })),
            opcode => Err(HeaderError::Opcode(opcode)),
        }
    }

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        match self {
            Self::Control { write, read } => {
                out[0] = CONTROL << 4;
                for (buffer, valid, at) in [(write, WRITE_VALID, 4), (read, READ_VALID, 16)] {
                    if let Some(RemoteBuffer { stag, base }) = buffer {
                        out[0] |= valid;
                        out[at..at + 4].copy_from_slice(&stag.to_be_bytes());
                        out[at + 4..at + 12].copy_from_slice(&base.to_be_bytes());
                    }
                }
            }
            Self::Hello(hello) => {
                out[0] = HELLO << 4;
                out[1] = hello.max_version << 4 | hello.min_version & 15;
                out[2..4].copy_from_slice(&hello.inbound_reads.to_be_bytes());
            }
            Self::HelloReply(reply) => {
                out[0] = HELLO_REPLY << 4 | u8::from(reply.rejected);
                out[1] = reply.max_version << 4 | reply.version & 15;
                out[2..4].copy_from_slice(&reply.outbound_reads.to_be_bytes());
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_one_on_the_wire() {
        let header = Header::Control {
            write: Some(RemoteBuffer { stag: 0x0102_0304, base: 0x1112_1314_1516_1718 }),
            read: Some(RemoteBuffer { stag: 0x2122_2324, base: 0x3132_3334_3536_3738 }),
        };
        let bytes = header.encode();
        assert_eq!(
            bytes,
            [
                0x1c, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21,
                0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38
            ]
        );
        assert_eq!(Header::decode(&bytes), Ok(header));
        // STags without their flags have no meaning.
        let mut quiet = bytes;
        quiet[0] = 0x10;
        assert_eq!(Header::decode(&quiet), Ok(Header::PLAIN));
        assert_eq!(Header::PLAIN.encode()[0], 0x10, "what Linux sends with a login");
    }

    #[test]
    fn hellos_settle_on_a_version_or_not() {
        let hello = Hello { max_version: 10, min_version: 1, inbound_reads: 16 };
        assert_eq!(Header::decode(&Header::Hello(hello).encode()), Ok(Header::Hello(hello)));
        let reply = hello.answer(4);
        assert_eq!((reply.rejected, reply.version, reply.outbound_reads), (false, 10, 4));
        let bytes = Header::HelloReply(reply).encode();
        assert_eq!(Header::decode(&bytes), Ok(Header::HelloReply(reply)));
        let newer = Hello { max_version: 15, min_version: 11, inbound_reads: 1 };
        assert!(newer.answer(4).rejected);
    }

    #[test]
    fn what_is_no_header_is_said() {
        assert_eq!(Header::decode(&[0x10; 27]), Err(HeaderError::Short(27)));
        assert_eq!(Header::decode(&[0x40; 28]), Err(HeaderError::Opcode(4)));
    }
}
