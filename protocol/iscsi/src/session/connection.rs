//! One connection: status numbering, transmit queue, liveness.

use super::events::ConnHandle;
use super::read::ReadLog;
use crate::limits::{
    BHS_BYTES, MAX_RETAINED_STATUSES, MAX_UNSOLICITED_ANSWERS, MAX_WAITING_ANSWER_BYTES,
    MAX_WAITING_RESENT,
};
use crate::login::Operational;
use crate::names::Cid;
use crate::pdu::{Itt, Lun, Opcode, Outgoing, Ttt};
use crate::serial::Sn;
use crate::text::{TextGather, TextWriter};
use crate::time::Timestamp;
use bytes::Bytes;
use std::collections::VecDeque;
use zgate_store::{MIN_SPAN_BYTES, Payload};

/// The one text exchange a connection may have open.
#[derive(Debug)]
pub(crate) struct TextExchange {
    pub(super) serial: u32,
    pub(super) itt: Itt,
    pub(super) lun: Lun,
    /// Transfer tag of the request that continues the exchange.
    pub(super) ttt: Ttt,
    /// The initiator has nothing more to negotiate.
    pub(super) is_final: bool,
    pub(super) gather: TextGather,
    pub(super) answer: TextWriter,
    /// Answer text not sent yet.
    pub(super) rest: Bytes,
}

/// A status that the initiator has not acknowledged.
#[derive(Debug)]
pub(crate) struct Retained {
    pub(crate) stat_sn: Sn,
    pub(crate) itt: Itt,
    pub(crate) pdu: Outgoing,
    /// The Data-In that the task sent.
    pub(crate) read: Option<ReadLog>,
}

impl Retained {
    /// Bytes of retained data: those that the task read, or those of the PDU.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.read {
            Some(log) => payload_bytes(&log.data),
            None => self.pdu.data_bytes() as u64,
        }
    }
}

/// Total length of the payloads, in bytes.
pub(crate) fn payload_bytes(data: &[Payload]) -> u64 {
    data.iter().map(|payload| payload.len() as u64).sum()
}

/// State of a connection: shows if commands are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    Open,
    /// The target is dropping it: no new PDUs are accepted, tasks may be
    /// recovered.
    Closing,
    /// Logout is in progress: no new PDUs are accepted, tasks end.
    LoggedOut,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) handle: ConnHandle,
    pub(crate) cid: Cid,
    pub(crate) params: Operational,
    pub(crate) state: ConnState,
    /// PDUs to be sent, and whether the peer has asked for them once more.
    out: VecDeque<(Outgoing, bool)>,
    queued_bytes: usize,
    /// PDUs in `out` that answer no task.
    waiting_answers: usize,
    /// Bytes of their data.
    waiting_answer_bytes: usize,
    /// PDUs in `out` that were asked for once more.
    waiting_resent: usize,
    /// The StatSN to be used next.
    pub(crate) stat_sn: Sn,
    /// ExpStatSN: all statuses before it arrived.
    pub(crate) acknowledged: Sn,
    pub(crate) retained: VecDeque<Retained>,
    /// Bytes of data that the retained statuses hold.
    pub(crate) retained_bytes: u64,
    pub(crate) last_heard: Timestamp,
    /// An unanswered ping and when it was sent.
    pub(crate) ping: Option<(Ttt, Timestamp)>,
    /// Time at which an initiator that was asked to log out is disconnected.
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
            queued_bytes: 0,
            waiting_answers: 0,
            waiting_answer_bytes: 0,
            waiting_resent: 0,
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

    /// Takes an ExpStatSN; one that is ahead of the target's StatSN is ignored.
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

    /// Queues a PDU without a StatSN of its own.
    pub(crate) fn send(&mut self, pdu: Outgoing) {
        self.queue(pdu, false);
    }

    /// Queues a PDU that the peer has asked for once more.
    pub(crate) fn resend(&mut self, pdu: Outgoing) {
        self.queue(pdu, true);
    }

    fn queue(&mut self, pdu: Outgoing, is_resent: bool) {
        if is_answer(&pdu) {
            self.waiting_answers += 1;
            self.waiting_answer_bytes += pdu.data_bytes();
        }
        self.waiting_resent += usize::from(is_resent);
        self.queued_bytes += pdu.data_bytes() + BHS_BYTES;
        self.out.push_back((pdu, is_resent));
    }

    /// The next PDU to go out.
    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let (pdu, is_resent) = self.out.pop_front()?;
        if is_answer(&pdu) {
            self.waiting_answers -= 1;
            self.waiting_answer_bytes -= pdu.data_bytes();
        }
        self.waiting_resent -= usize::from(is_resent);
        self.queued_bytes -= pdu.data_bytes() + BHS_BYTES;
        Some(pdu)
    }

    /// True if Data-In has a digest, or is cut into PDUs too small to be sent
    /// from a file.
    pub(crate) fn sends_bytes_only(&self) -> bool {
        let segment_bytes = self.params.initiator_recv_bytes as usize;
        self.params.data_digest || segment_bytes < MIN_SPAN_BYTES
    }

    /// Bytes in the transmit queue.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// True if the transmit queue is empty.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// True if the peer lets too many PDUs queue up without reading or
    /// acknowledging them.
    pub(crate) fn is_overrun(&self) -> bool {
        self.waiting_answers >= MAX_UNSOLICITED_ANSWERS
            || self.retained.len() >= MAX_RETAINED_STATUSES
    }

    /// True if an answer with so much data may be queued besides those that are.
    pub(crate) fn has_room_for_answer(&self, bytes: usize) -> bool {
        self.waiting_answer_bytes + bytes <= MAX_WAITING_ANSWER_BYTES
    }

    /// True if so many PDUs that were asked for once more are queued that no further ones
    /// are.
    pub(crate) fn resends_enough(&self) -> bool {
        self.waiting_resent >= MAX_WAITING_RESENT
    }

    /// Takes the next StatSN.
    pub(crate) fn take_stat_sn(&mut self) -> Sn {
        let sn = self.stat_sn;
        self.stat_sn = sn.next();
        sn
    }

    /// Queues a PDU with `stat_sn`, and retains it for retransmission if the
    /// error recovery level supports that.
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

/// True if a PDU answers the peer rather than a task; the number of tasks is
/// bounded.
fn is_answer(pdu: &Outgoing) -> bool {
    !matches!(pdu.bhs.opcode(), Opcode::DATA_IN | Opcode::SCSI_RESPONSE | Opcode::R2T)
}
