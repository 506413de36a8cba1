//! Direction of an RPC message (RFC 8167 §5): both sides may call on one
//! connection, and only the message itself tells them apart.

use crate::header::Xid;

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// A call or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A call from the sender.
    Call,
    /// A reply from the sender.
    Reply,
}

/// Reads the direction from the start of an RPC message. `None`: not an RPC
/// message, or its transaction id differs from that of its transport header
/// (RFC 8166 §4.2.1).
#[must_use]
pub fn direction(xid: Xid, message: &[u8]) -> Option<Direction> {
    let (first, rest) = message.split_first_chunk::<4>()?;
    if u32::from_be_bytes(*first) != xid.0 {
        return None;
    }
    match u32::from_be_bytes(*rest.first_chunk::<4>()?) {
        CALL => Some(Direction::Call),
        REPLY => Some(Direction::Reply),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_type_tells() {
        assert_eq!(direction(Xid(9), &[0, 0, 0, 9, 0, 0, 0, 0, 5]), Some(Direction::Call));
        assert_eq!(direction(Xid(9), &[0, 0, 0, 9, 0, 0, 0, 1]), Some(Direction::Reply));
        assert_eq!(direction(Xid(8), &[0, 0, 0, 9, 0, 0, 0, 1]), None);
        assert_eq!(direction(Xid(9), &[0, 0, 0, 9, 0, 0, 0, 2]), None);
        assert_eq!(direction(Xid(9), &[0, 0, 0, 9, 0, 0, 0]), None);
    }
}
