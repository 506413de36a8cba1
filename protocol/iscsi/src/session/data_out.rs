//! Data-Out: the rules of sequences (RFC 7143 §11.7, §7.9).

use super::Session;
use super::events::ConnHandle;
use super::task::{Condition, Failure, Phase};
use crate::pdu::{DataOut, Frame, RejectReason, Ttt};
use crate::serial::Sn;

impl Session {
    /// Takes a Data-Out.
    pub(super) fn data_out(&mut self, handle: ConnHandle, frame: Frame) {
        let pdu = DataOut::parse(&frame.bhs);
        // Data for a task that has ended was sent before the initiator knew of
        // the end.
        let Some(task) = self.tasks.get(&pdu.itt) else { return };
        if task.conn != handle || task.orphaned {
            // RFC 7143 §4.2.5.1: connection allegiance.
            self.reject(handle, &frame, RejectReason::PROTOCOL_ERROR);
            return;
        }
        if task.phase != Phase::Collecting {
            self.reject(handle, &frame, RejectReason::INVALID_FIELD);
            return;
        }
        if !frame.data_digest_ok {
            self.reject(handle, &frame, RejectReason::DATA_DIGEST_ERROR);
        }
        if self.apply_data(pdu, frame) {
            self.pump(pdu.itt);
        } else {
            tracing::debug!(itt = pdu.itt.0, ttt = pdu.ttt.0, "Data-Out for no sequence");
        }
    }

    /// False if the PDU belongs to no sequence of its task.
    fn apply_data(&mut self, pdu: DataOut, frame: Frame) -> bool {
        let recovers = self.params.error_recovery_level >= 1;
        let in_order = self.params.data_pdu_in_order;
        let Some(task) = self.tasks.get_mut(&pdu.itt) else { return false };
        let Some(at) = task.sequences.iter().position(|s| s.ttt == pdu.ttt) else {
            // Announced data may arrive twice.
            let again = recovers && !task.command.is_final;
            if pdu.ttt == Ttt::NONE && !again {
                task.fail(Failure::Check(Condition::UNEXPECTED_UNSOLICITED));
                return true;
            }
            return false;
        };
        (task.quiet_since, task.silences) = (None, 0);
        let mut sequence = task.sequences[at];
        if recovers && Sn(pdu.data_sn).before(Sn(sequence.next_data_sn)) {
            return false; // received before: nothing is lost
        }
        // Not before: nobody misses what is passed over, and its task might never be answered.
        if frame.lacks_data() {
            task.fail(Failure::NO_MEMORY);
        }
        let end = u64::from(pdu.offset) + frame.data_bytes() as u64;
        let mut problem = None;
        if pdu.offset < sequence.start || end > u64::from(sequence.end) {
            problem = Some(Condition::INCORRECT_AMOUNT);
        } else {
            // RFC 7143 §7.9: a gap in DataSN is a lost PDU.
            if Sn(pdu.data_sn).after(Sn(sequence.next_data_sn)) && recovers {
                sequence.lossy = true;
            } else if pdu.data_sn != sequence.next_data_sn {
                problem = Some(Condition::CRC);
            }
            let jumps = in_order && pdu.offset != sequence.next_offset;
            if jumps && !(sequence.lossy && pdu.offset > sequence.next_offset) {
                problem = problem.or(Some(Condition::CRC));
            }
            sequence.next_offset = end as u32;
        }
        sequence.next_data_sn = pdu.data_sn.wrapping_add(1);
        if !frame.data_digest_ok {
            sequence.lossy = true;
            problem = problem.or((!recovers).then_some(Condition::CRC));
        } else if problem.is_none() && task.failure.is_none() {
            sequence.received += (end - u64::from(pdu.offset)) as u32;
            if task.gather.insert(pdu.offset, frame.data, self.transport).is_err() {
                problem = Some(Condition::INCORRECT_AMOUNT);
            }
        }
        let solicited = pdu.ttt != Ttt::NONE;
        let whole = sequence.received == sequence.end - sequence.start;
        if pdu.is_final {
            task.sequences.remove(at);
            if sequence.lossy {
                // RFC 7143 §13.19: with sequences in order, the target may ask again
                // for the last one alone, that is, before it asks for further data.
                task.to_request.clear();
            }
            if solicited && !sequence.lossy && !whole && task.failure.is_none() {
                problem = problem.or(Some(Condition::INCORRECT_AMOUNT));
            }
        } else if solicited && whole {
            // RFC 7143 §11.7.1: the last PDU of a sequence has the F bit.
            task.sequences.remove(at);
            problem = problem.or(Some(Condition::INCORRECT_AMOUNT));
        } else {
            task.sequences[at] = sequence;
        }
        if let Some(condition) = problem {
            task.fail(Failure::Check(condition));
        }
        true
    }
}
