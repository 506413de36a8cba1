//! I_T nexuses and the names of initiator ports.

use crate::limits::MAX_TRANSPORT_ID_BYTES;
use crate::wire::{be16, byte};
use std::fmt;

/// Identifies one I_T nexus (a session) for its lifetime; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub u64);

/// Name of an iSCSI initiator port or node in the form of persistent
/// reservations (SPC-4 §7.6.4.6).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransportId {
    name: String,
    isid: Option<[u8; 6]>,
}

impl TransportId {
    /// Names an initiator port: node name and ISID.
    #[must_use]
    pub fn iscsi_port(name: &str, isid: [u8; 6]) -> Self {
        Self { name: name.to_ascii_lowercase(), isid: Some(isid) }
    }

    /// Names an initiator node: all its ports.
    #[must_use]
    pub fn iscsi_node(name: &str) -> Self {
        Self { name: name.to_ascii_lowercase(), isid: None }
    }

    /// Returns the iSCSI node name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this registered name covers the port `other`.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.name == other.name && (self.isid.is_none() || self.isid == other.isid)
    }

    /// Encodes the TransportID, padded to a multiple of four bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut name = self.name.clone().into_bytes();
        let mut format = 0x00;
        if let Some(isid) = self.isid {
            format = 0x40;
            name.extend(b",i,0x");
            for byte in isid {
                name.extend(format!("{byte:02x}").bytes());
            }
        }
        name.push(0);
        // ADDITIONAL LENGTH is at least 20 and a multiple of four.
        let padded = name.len().next_multiple_of(4).max(20);
        name.resize(padded, 0);
        let mut data = vec![format | 0x05, 0];
        data.extend(u16::try_from(padded).unwrap_or(u16::MAX).to_be_bytes());
        data.extend(name);
        data
    }

    /// Parses one TransportID at the front of `data`; returns it with its
    /// length in bytes. Only iSCSI (protocol 5h) is supported.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<(Self, usize)> {
        if byte(data, 0) & 0x0F != 0x05 {
            return None;
        }
        let len = usize::from(be16(data, 2));
        if len < 20 || !len.is_multiple_of(4) || len > MAX_TRANSPORT_ID_BYTES {
            return None;
        }
        let text = data.get(4..4 + len)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        let text = std::str::from_utf8(text.get(..end)?).ok()?;
        let parsed = match byte(data, 0) >> 6 {
            0 if !text.is_empty() => Self::iscsi_node(text),
            1 => {
                let (name, isid) = text.split_once(",i,0x")?;
                Self::iscsi_port(name, parse_isid(isid)?)
            }
            _ => return None,
        };
        Some((parsed, 4 + len))
    }
}

fn parse_isid(text: &str) -> Option<[u8; 6]> {
    if text.is_empty() || text.len() > 12 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let value = u64::from_str_radix(text, 16).ok()?;
    let [_, _, isid @ ..] = value.to_be_bytes();
    Some(isid)
}

impl fmt::Debug for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match self.isid {
            Some(isid) => write!(f, ",i,{isid:02x?}"),
            None => Ok(()),
        }
    }
}

/// One I_T nexus: an initiator port at a target port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexus {
    /// Id of this session.
    pub id: NexusId,
    /// Name of the initiator port.
    pub initiator: TransportId,
    /// RELATIVE TARGET PORT IDENTIFIER of the target port.
    pub relative_port: u16,
}

impl Nexus {
    /// Returns whether both are one I_T nexus in two sessions: the same
    /// initiator port at the same target port.
    #[must_use]
    pub fn is_same_port(&self, other: &Self) -> bool {
        self.initiator == other.initiator && self.relative_port == other.relative_port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_ids_survive_the_wire() {
        for id in [
            TransportId::iscsi_port("iqn.2026-01.test:a", [0x80, 1, 2, 3, 4, 5]),
            TransportId::iscsi_node("iqn.2026-01.test:somebody"),
        ] {
            let wire = id.encode();
            assert_eq!(wire.len() % 4, 0);
            assert_eq!(TransportId::parse(&wire), Some((id, wire.len())));
        }
    }

    #[test]
    fn a_node_covers_its_ports() {
        let node = TransportId::iscsi_node("IQN.x");
        let port = TransportId::iscsi_port("iqn.x", [0; 6]);
        assert!(node.covers(&port));
        assert!(!port.covers(&node));
    }

    #[test]
    fn malformed_transport_ids_are_refused() {
        assert!(TransportId::parse(&[]).is_none());
        assert!(TransportId::parse(&[0x45, 0, 0, 20, b'x']).is_none());
        assert!(TransportId::parse(&[0x06; 40]).is_none());
        let mut unterminated = vec![0x05, 0, 0, 20];
        unterminated.extend([b'a'; 20]);
        assert!(TransportId::parse(&unterminated).is_none());
    }
}
