//! One connection: status numbering, what waits to be sent, liveness.

use super::events::ConnHandle;
use super::read::ReadLog;
use super::text_exchange::TextExchange;
use crate::limits::{MAX_RETAINED_STATUSES, MAX_UNSOLICITED_ANSWERS};
use crate::login::Operational;
use crate::names::Cid;
use crate::pdu::{Itt, Opcode, Outgoing, Ttt};
use crate::serial::Sn;
use crate::time::Timestamp;
use std::collections::VecDeque;
use zgate_store::Payload;

/// A status that the initiator has not acknowledged.
#[derive(Debug)]
pub(crate) struct Retained {
    pub(crate) stat_sn: Sn,
    pub(crate) itt: Itt,
    pub(crate) pdu: Outgoing,
    /// The data that went with it.
    pub(crate) read: Option<ReadLog>,
}

impl Retained {
    /// Bytes of data that it holds.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.read.as_ref().map_or(0, |log| payload_bytes(&log.data))
    }
}

/// Length of the payloads together, in bytes.
pub(crate) fn payload_bytes(data: &[Payload]) -> u64 {
    data.iter().map(|payload| payload.len() as u64).sum()
}

/// Whether commands are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    Open,
    /// The target drops it: nothing new is taken, tasks may be recovered.
    Closing,
    /// Logout is under way: nothing new is taken, tasks end.
    LoggedOut,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) handle: ConnHandle,
    pub(crate) cid: Cid,
    pub(crate) params: Operational,
    pub(crate) state: ConnState,
    out: VecDeque<Outgoing>,
    /// PDUs in `out` that answer no task.
    waiting_answers: usize,
    /// The StatSN to be used next.
    pub(crate) stat_sn: Sn,
    /// ExpStatSN: everything before it arrived.
    pub(crate) acknowledged: Sn,
    pub(crate) retained: VecDeque<Retained>,
    /// Bytes of data that the retained statuses hold.
    pub(crate) retained_bytes: u64,
    pub(crate) last_heard: Timestamp,
    /// An unanswered ping and when it was sent.
    pub(crate) ping: Option<(Ttt, Timestamp)>,
    /// When an initiator that was asked to log out is cut off.
    pub(crate) logout_deadline: Option<Timestamp>,
    pub(crate) text: Option<TextExchange>,
}

impl Connection {
    pub(crate) fn new(
        handle: ConnHandle,
        cid: Cid,
        params: Operational,
        stat_sn: Sn,
        now: Timestamp,
    ) -> Self {
        Self {
            handle,
            cid,
            params,
            state: ConnState::Open,
            out: VecDeque::new(),
            waiting_answers: 0,
            stat_sn,
            acknowledged: stat_sn,
            retained: VecDeque::new(),
            retained_bytes: 0,
            last_heard: now,
            ping: None,
            logout_deadline: None,
            text: None,
        }
    }

    /// Takes an ExpStatSN; one from the future is ignored.
    pub(crate) fn acknowledge(&mut self, exp_stat_sn: Sn) {
        if exp_stat_sn.after(self.acknowledged) && !exp_stat_sn.after(self.stat_sn) {
            self.acknowledged = exp_stat_sn;
            while self.retained.front().is_some_and(|r| r.stat_sn.before(exp_stat_sn)) {
                self.forget_oldest();
            }
        }
    }

    /// Forgets the oldest retained status.
    pub(crate) fn forget_oldest(&mut self) {
        if let Some(oldest) = self.retained.pop_front() {
            self.retained_bytes -= oldest.data_bytes();
        }
    }

    /// Statuses sent and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.stat_sn.ahead_of(self.acknowledged).max(0).cast_unsigned()
    }

    /// Queues a PDU without a status of its own.
    pub(crate) fn send(&mut self, pdu: Outgoing) {
        self.waiting_answers += usize::from(is_answer(&pdu));
        self.out.push_back(pdu);
    }

    /// The next PDU to go out.
    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let pdu = self.out.pop_front()?;
        self.waiting_answers -= usize::from(is_answer(&pdu));
        Some(pdu)
    }

    /// Whether nothing waits to go out.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether the peer lets too much pile up without reading or
    /// acknowledging.
    pub(crate) fn is_overrun(&self) -> bool {
        self.waiting_answers >= MAX_UNSOLICITED_ANSWERS
            || self.retained.len() >= MAX_RETAINED_STATUSES
    }

    /// Takes the next StatSN.
    pub(crate) fn take_stat_sn(&mut self) -> Sn {
        let sn = self.stat_sn;
        self.stat_sn = sn.next();
        sn
    }

    /// Queues a PDU that carries `stat_sn`, keeping it for retransmission
    /// where the error recovery level has one.
    pub(crate) fn send_status(
        &mut self,
        stat_sn: Sn,
        itt: Itt,
        pdu: Outgoing,
        read: Option<ReadLog>,
    ) {
        if self.params.error_recovery_level >= 1 {
            let retained = Retained { stat_sn, itt, pdu: pdu.clone(), read };
            self.retained_bytes += retained.data_bytes();
            self.retained.push_back(retained);
        }
        self.send(pdu);
    }
}

/// Whether a PDU was not asked for by a task, whose number is bounded.
fn is_answer(pdu: &Outgoing) -> bool {
    !matches!(pdu.bhs.opcode(), Opcode::DATA_IN | Opcode::SCSI_RESPONSE | Opcode::R2T)
}
