//! File handles as clients hold them: `[tag][3 reserved zero bytes][export
//! id: 4 bytes][node handle]`. Tag `TAG_NODE` names an object of a store,
//! `TAG_PSEUDO` a directory of the pseudo file system by its id.

use super::export::ExportId;
use super::pseudo::PseudoId;
use crate::limits::{FH_PREFIX_BYTES, MAX_FH_BYTES};
use zgate_store::NodeHandle;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

const TAG_NODE: u8 = 0x5a;
const TAG_PSEUDO: u8 = 0x5b;

/// A file handle on the wire, not yet looked into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub Vec<u8>);

impl Encode for Fh {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

impl Decode for Fh {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.opaque(MAX_FH_BYTES).map(|bytes| Self(bytes.to_vec()))
    }
}

/// What a file handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A directory of the pseudo file system.
    Pseudo(PseudoId),
    /// An object of an export.
    Node(ExportId, NodeHandle),
}

impl Place {
    /// Reads a handle; `None` when it was never one of ours.
    #[must_use]
    pub fn parse(raw: &[u8]) -> Option<Self> {
        if raw.len() < FH_PREFIX_BYTES || raw[1..4] != [0; 3] {
            return None;
        }
        let number = u32::from_be_bytes([raw[4], raw[5], raw[6], raw[7]]);
        let rest = &raw[FH_PREFIX_BYTES..];
        match raw[0] {
            TAG_NODE => NodeHandle::new(rest).map(|node| Self::Node(ExportId(number), node)),
            TAG_PSEUDO if rest.is_empty() => Some(Self::Pseudo(PseudoId(number))),
            _ => None,
        }
    }

    /// The handle for clients.
    #[must_use]
    pub fn to_fh(&self) -> Fh {
        let (tag, number, rest) = match self {
            Self::Pseudo(id) => (TAG_PSEUDO, id.0, &[][..]),
            Self::Node(export, node) => (TAG_NODE, export.0, node.as_bytes()),
        };
        let mut raw = Vec::with_capacity(FH_PREFIX_BYTES + rest.len());
        raw.extend_from_slice(&[tag, 0, 0, 0]);
        raw.extend_from_slice(&number.to_be_bytes());
        raw.extend_from_slice(rest);
        Fh(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive_the_trip_and_refuse_rubbish() {
        let node = NodeHandle::new(&[9; 20]).unwrap();
        for place in [Place::Pseudo(PseudoId(7)), Place::Node(ExportId(1 << 30), node)] {
            assert_eq!(Place::parse(&place.to_fh().0), Some(place));
        }
        assert_eq!(Place::parse(b""), None);
        assert_eq!(Place::parse(&[0; 20]), None);
        assert_eq!(Place::parse(&[TAG_NODE, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
