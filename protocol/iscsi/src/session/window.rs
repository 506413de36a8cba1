//! Command numbering (RFC 7143 §4.2.2.1).

use crate::pdu::Frame;
use crate::serial::Sn;
use crate::session::{ConnHandle, TaskTag};
use std::collections::BTreeMap;

/// A PDU received before one with a lower CmdSN.
#[derive(Debug)]
pub(crate) enum OutOfOrder {
    /// A SCSI command, already in the task table.
    Command(TaskTag),
    /// Any other PDU.
    Pdu(ConnHandle, Box<Frame>),
    /// A PDU that needs no action: aborted, or counted as received.
    Void,
}

/// Delivery of a PDU by its CmdSN (RFC 7143 §4.2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The next one: execute it.
    Now,
    /// Keep it for later.
    Later,
    /// Outside the window or seen before: ignore it silently.
    Ignore,
}

/// The command window of a session.
#[derive(Debug)]
pub(crate) struct Window {
    expected: Sn,
    max: Sn,
    depth: u32,
    out_of_order: BTreeMap<u32, OutOfOrder>,
}

impl Window {
    pub(crate) fn new(first: Sn, depth: u32) -> Self {
        Self { expected: first, max: first.plus(depth - 1), depth, out_of_order: BTreeMap::new() }
    }

    pub(crate) fn expected(&self) -> Sn {
        self.expected
    }

    /// Capacity of the window, in commands.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// The MaxCmdSN sent to the initiator.
    pub(crate) fn max(&self) -> Sn {
        self.max
    }

    /// MaxCmdSN for the next PDU, with `occupied` places taken by unfinished
    /// commands. Never decreases.
    pub(crate) fn advertise(&mut self, occupied: u32) -> Sn {
        let candidate = self.expected.plus(self.depth - self.depth.min(occupied)).plus(u32::MAX);
        if candidate.after(self.max) {
            self.max = candidate;
        }
        self.max
    }

    pub(crate) fn delivery(&self, sn: Sn) -> Delivery {
        if sn.before(self.expected) || sn.after(self.max) || self.out_of_order.contains_key(&sn.0) {
            Delivery::Ignore
        } else if sn == self.expected {
            Delivery::Now
        } else {
            Delivery::Later
        }
    }

    /// Counts the expected number as received.
    pub(crate) fn advance(&mut self) {
        self.expected = self.expected.next();
    }

    /// Counts the last number as not received after all: its PDU was rejected.
    pub(crate) fn reopen(&mut self) {
        self.expected = self.expected.plus(u32::MAX);
        debug_assert!(!self.out_of_order.contains_key(&self.expected.0));
    }

    /// Keeps a PDU until its CmdSN is next; only after [`Delivery::Later`].
    pub(crate) fn keep(&mut self, sn: Sn, pdu: OutOfOrder) {
        debug_assert!(!self.out_of_order.contains_key(&sn.0));
        self.out_of_order.insert(sn.0, pdu);
    }

    /// Bytes of data of the kept PDUs other than commands.
    pub(crate) fn early_bytes(&self) -> usize {
        let bytes = |pdu: &OutOfOrder| match pdu {
            OutOfOrder::Pdu(_, frame) => frame.data_bytes(),
            OutOfOrder::Command(_) | OutOfOrder::Void => 0,
        };
        self.out_of_order.values().map(bytes).sum()
    }

    /// The PDU whose CmdSN is next, counted as received.
    pub(crate) fn pop_ready(&mut self) -> Option<OutOfOrder> {
        let pdu = self.out_of_order.remove(&self.expected.0)?;
        self.advance();
        Some(pdu)
    }

    /// True if a number is inside the window and was not received yet.
    pub(crate) fn is_awaited(&self, sn: Sn) -> bool {
        self.delivery(sn) != Delivery::Ignore
    }

    /// Counts a number as received, whatever its PDU was.
    pub(crate) fn plug(&mut self, sn: Sn) {
        if !sn.before(self.expected) && !sn.after(self.max) {
            self.out_of_order.insert(sn.0, OutOfOrder::Void);
        }
    }

    /// Drops the queued PDUs of a closed connection.
    pub(crate) fn drop_connection(&mut self, conn: ConnHandle) {
        for pdu in self.out_of_order.values_mut() {
            if matches!(pdu, OutOfOrder::Pdu(from, _) if *from == conn) {
                *pdu = OutOfOrder::Void;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_rules_hold_across_the_wrap() {
        let mut window = Window::new(Sn(u32::MAX), 4);
        assert_eq!(window.max(), Sn(2));
        assert_eq!(window.delivery(Sn(u32::MAX - 1)), Delivery::Ignore);
        assert_eq!(window.delivery(Sn(3)), Delivery::Ignore);
        assert_eq!(window.delivery(Sn(0)), Delivery::Later);
        window.keep(Sn(0), OutOfOrder::Void);
        assert_eq!(window.delivery(Sn(0)), Delivery::Ignore);
        assert_eq!(window.delivery(Sn(u32::MAX)), Delivery::Now);
        window.advance();
        assert!(matches!(window.pop_ready(), Some(OutOfOrder::Void)));
        assert!(window.pop_ready().is_none());
        assert_eq!(window.expected(), Sn(1));
        assert_eq!(window.advertise(4), Sn(2));
        assert_eq!(window.advertise(2), Sn(2));
        assert_eq!(window.advertise(0), Sn(4));
        assert_eq!(window.advertise(4), Sn(4));
    }
}
