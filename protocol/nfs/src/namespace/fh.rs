//! Wire format of file handles:
//! `[tag][3 reserved zero bytes][export id: 4 bytes][node handle]`. Tag
//! `TAG_NODE` names an object of a store, `TAG_PSEUDO` a directory of the
//! pseudo file system by its id.

use super::export::ExportId;
use super::pseudo::PseudoId;
use crate::limits::FH_PREFIX_BYTES;
use zgate_nfs_wire::v4::Fh;
use zgate_store::NodeHandle;

const TAG_NODE: u8 = 0x5a;
const TAG_PSEUDO: u8 = 0x5b;

/// Content of a file handle: the object that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileHandle {
    /// A directory of the pseudo file system.
    Pseudo(PseudoId),
    /// An object of an export.
    Node(ExportId, NodeHandle),
}

impl FileHandle {
    /// Decodes a handle; `None` if this server cannot have issued it.
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
        for handle in [FileHandle::Pseudo(PseudoId(7)), FileHandle::Node(ExportId(1 << 30), node)] {
            assert_eq!(FileHandle::parse(&handle.to_fh().0), Some(handle));
        }
        assert_eq!(FileHandle::parse(b""), None);
        assert_eq!(FileHandle::parse(&[0; 20]), None);
        assert_eq!(FileHandle::parse(&[TAG_NODE, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
