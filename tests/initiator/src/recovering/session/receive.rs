//! Handling of the target's PDUs.

use super::{RecoveringSession, Sequence, carrier::Carrier, send_sequence};
use crate::Done;
use bytes::Bytes;
use std::io;
use zgate_iscsi::pdu::{
    DataIn, Frame, Itt, LogoutResponse, LogoutResult, NopIn, NopOut, Opcode, R2t, Reject,
    ScsiResponse, TaskResponse, TaskResult, Ttt,
};
use zgate_iscsi::serial::Sn;

/// CHECK CONDITION.
const CHECK_CONDITION: u8 = 2;
/// Sense key UNIT ATTENTION.
const UNIT_ATTENTION: u8 = 6;
/// Protocol service CRC error (RFC 7143 §11.4.7.2).
const CRC_ERROR: [u8; 2] = [0x47, 0x05];

impl RecoveringSession {
    /// Takes a PDU of a connection.
    ///
    /// # Errors
    /// The target refuses to log a lost connection out.
    pub fn receive(&mut self, number: usize, frame: &Frame) -> io::Result<()> {
        if self.link(number).is_none() {
            return Ok(()); // of a connection that was given up
        }
        let bhs = frame.bhs;
        if !frame.data_digest_ok {
            // RFC 7143 §7.8: discarded; the gap is recovered later.
            if self.level() == 0 {
                self.begin_again();
            }
            return Ok(());
        }
        if bhs.max_cmd_sn().after(self.max_cmd_sn) {
            self.max_cmd_sn = bhs.max_cmd_sn();
        }
        if bhs.exp_sn().after(self.exp_cmd_sn) {
            self.exp_cmd_sn = bhs.exp_sn();
        }
        match bhs.opcode() {
            Opcode::DATA_IN => self.data_in(number, frame),
            Opcode::SCSI_RESPONSE => self.response(number, frame),
            Opcode::R2T => self.r2t(number, R2t::parse(&bhs)),
            Opcode::NOP_IN => self.nop_in(number, frame),
            Opcode::TASK_RESPONSE => self.task_response(number, TaskResponse::parse(&bhs)),
            Opcode::LOGOUT_RESPONSE => return self.logout_response(number, frame),
            Opcode::REJECT => {
                if self.status(number, bhs.sn(), None) && self.repairs.rejects.len() < 16 {
                    self.repairs.rejects.push(Reject::parse(&bhs).reason);
                }
            }
            _ => {
                self.status(number, bhs.sn(), None);
            }
        }
        Ok(())
    }

    pub(super) fn link(&mut self, number: usize) -> Option<&mut Carrier> {
        self.carriers.iter_mut().find(|carrier| carrier.number == number)
    }

    fn status(&mut self, number: usize, stat_sn: Sn, waits: Option<Itt>) -> bool {
        self.link(number).is_some_and(|link| link.status(stat_sn, waits))
    }

    fn data_in(&mut self, number: usize, frame: &Frame) {
        let pdu = DataIn::parse(&frame.bhs);
        if let Some(task) = self.tasks.get_mut(&pdu.itt.0) {
            if task.data_sns.insert(pdu.data_sn) {
                self.silences = 0;
                let (start, data) = (pdu.offset as usize, frame.contiguous_data());
                if task.read.len() < start + data.len() {
                    task.read.resize(start + data.len(), 0);
                }
                task.read[start..start + data.len()].copy_from_slice(&data);
            }
            if let Some((status, _, _)) = pdu.status {
                task.ended = Some((status, Bytes::new(), pdu.data_sn + 1));
            }
        }
        self.ended(number, pdu.itt, pdu.status.map(|(_, stat_sn, _)| stat_sn));
    }

    fn response(&mut self, number: usize, frame: &Frame) {
        let pdu = ScsiResponse::parse(&frame.bhs);
        if let Some(task) = self.tasks.get_mut(&pdu.itt.0) {
            let data = if task.read_bytes > 0 { pdu.exp_data_sn } else { 0 };
            let sense = ScsiResponse::sense(&frame.contiguous_data());
            task.ended = Some((pdu.status, sense, data));
        }
        self.ended(number, pdu.itt, Some(pdu.stat_sn));
    }

    /// Checks whether a task is complete, and records its status if there is
    /// one.
    fn ended(&mut self, number: usize, itt: Itt, stat_sn: Option<Sn>) {
        let whole = self.tasks.get(&itt.0).is_none_or(|task| {
            task.ended.as_ref().is_some_and(|(_, _, count)| task.missing_data(*count).is_none())
        });
        if let Some(stat_sn) = stat_sn {
            self.status(number, stat_sn, (!whole).then_some(itt));
            self.silences = 0;
        }
        if whole && let Some(task) = self.tasks.remove(&itt.0) {
            if let Some(link) = self.link(number) {
                link.complete(itt);
            }
            let (status, sense, _) = task.ended.clone().unwrap_or_default();
            let key = sense.get(2).map_or(0, |key| key & 15);
            let crc = sense.get(12..14) == Some(&CRC_ERROR[..]);
            if status == CHECK_CONDITION && (key == UNIT_ATTENTION || crc) {
                self.repairs.crc_failures += usize::from(crc);
                self.give_anew(task);
                return;
            }
            let data = Bytes::from(task.read);
            self.done.push_back((task.ticket, Done { itt, status, sense, data }));
        }
    }

    /// Sends the data that an R2T requests; a repeated R2T is ignored.
    fn r2t(&mut self, number: usize, r2t: R2t) {
        let chunk = self.chunk_bytes.min(self.params.target_recv_bytes as usize);
        let Some(task) = self.tasks.get_mut(&r2t.itt.0).filter(|task| task.link == number) else {
            return;
        };
        // RFC 7143 §11.8.1: R2TSNs are in order; a gap is recovered first.
        if r2t.r2t_sn != task.next_r2t_sn {
            return;
        }
        self.silences = 0;
        task.next_r2t_sn += 1;
        let end = (r2t.offset + r2t.desired_bytes) as usize;
        let (lun, write) = (task.lun, task.write.clone());
        let Some(link) = self.link(number) else { return };
        link.given_out(r2t.stat_sn);
        let (itt, ttt, exp_stat_sn) = (r2t.itt, r2t.ttt, link.exp_stat_sn);
        let sequence = Sequence { lun, itt, ttt, exp_stat_sn, start: r2t.offset as usize, end };
        send_sequence(link, sequence, &write, chunk);
    }

    fn nop_in(&mut self, number: usize, frame: &Frame) {
        let (bhs, cmd_sn) = (frame.bhs, self.cmd_sn);
        if bhs.itt() != Itt::NONE {
            self.status(number, bhs.sn(), None);
            return;
        }
        let Some(link) = self.link(number) else { return };
        link.given_out(bhs.sn());
        if bhs.ttt() != Ttt::NONE {
            let NopIn { lun, ttt, .. } = NopIn::parse(&bhs);
            let exp_stat_sn = link.exp_stat_sn;
            let pong = NopOut { immediate: true, lun, itt: Itt::NONE, ttt, cmd_sn, exp_stat_sn };
            link.send(pong.encode(Bytes::new()));
        }
    }

    fn task_response(&mut self, number: usize, pdu: TaskResponse) {
        self.status(number, pdu.stat_sn, None);
        let Some(itt) = self.functions.remove(&pdu.itt.0) else { return };
        self.silences = 0;
        let Some(task) = self.tasks.get_mut(&itt.0) else { return };
        let moved = std::mem::take(&mut task.moved);
        match pdu.result {
            TaskResult::COMPLETE => self.repairs.reassigned += 1,
            // The repeated command was the first to arrive.
            TaskResult::TASK_STILL_ALLEGIANT if moved => {}
            result => self.repairs.not_reassigned.push(result.0),
        }
    }

    fn logout_response(&mut self, number: usize, frame: &Frame) -> io::Result<()> {
        let pdu = LogoutResponse::parse(&frame.bhs);
        self.status(number, pdu.stat_sn, None);
        match self.logouts.remove(&pdu.itt.0) {
            // An earlier logout, whose response was lost, was executed.
            Some(pending)
                if matches!(pdu.result, LogoutResult::CLOSED | LogoutResult::CID_NOT_FOUND) =>
            {
                self.reassign(pending.lost, number);
                Ok(())
            }
            Some(_) => Err(io::Error::other(format!("logout for recovery: {:?}", pdu.result))),
            None => Ok(()),
        }
    }
}
