//! SNACK: requests for retransmission (RFC 7143 §11.16).

use crate::pdu::{
    Frame, Itt, Outgoing, R2t, RejectReason, ScsiResponse, ServiceResponse, Snack, SnackKind, Ttt,
};
use crate::serial::Sn;
use crate::session::{ConnHandle, Retained, Session};
use std::ops::Range;

impl Session {
    /// Takes a SNACK.
    pub(crate) fn snack(&mut self, handle: ConnHandle, frame: &Frame) {
        let Ok(pdu) = Snack::parse(&frame.bhs) else {
            self.reject(handle, frame, RejectReason::INVALID_FIELD);
            return;
        };
        if self.params.error_recovery_level == 0 {
            // RFC 7143 §11.16: no SNACK at level 0.
            self.reject(handle, frame, RejectReason::PROTOCOL_ERROR);
            return;
        }
        if pdu.kind != SnackKind::DataAck && self.conn(handle).is_some_and(|c| c.resends_enough()) {
            // It asks again and again, and reads nothing.
            self.reject(handle, frame, RejectReason::SNACK_REJECT);
            return;
        }
        let answered = match pdu.kind {
            SnackKind::Status => self.resend_statuses(handle, pdu),
            SnackKind::DataOrR2t => self
                .request_again_from(handle, pdu)
                .or_else(|| self.resend_r2ts(handle, pdu))
                .or_else(|| self.resend_data(handle, pdu)),
            SnackKind::ResegmentData => self.resegment(handle, pdu),
            SnackKind::DataAck => {
                if self.acknowledge_data(handle, pdu).is_none() {
                    self.reject(handle, frame, RejectReason::INVALID_DATA_ACK);
                }
                return;
            }
        };
        if answered.is_none() {
            self.reject(handle, frame, RejectReason::SNACK_REJECT);
        }
    }

    fn retained(&mut self, handle: ConnHandle, itt: Itt) -> Option<&mut Retained> {
        self.conn(handle)?.retained.iter_mut().find(|retained| retained.itt == itt)
    }

    fn send_all(&mut self, handle: ConnHandle, pdus: Vec<Outgoing>) -> Option<()> {
        let conn = self.conn(handle)?;
        pdus.into_iter().for_each(|pdu| conn.resend(pdu));
        Some(())
    }

    /// RFC 7143 §11.16.1: statuses, from BegRun on; all that are
    /// unacknowledged when BegRun is 0.
    fn resend_statuses(&mut self, handle: ConnHandle, pdu: Snack) -> Option<()> {
        let conn = self.conn(handle)?;
        let wanted = |sn: Sn| match (pdu.begin_run, pdu.run_length) {
            (0, 0) => true,
            (begin, 0) => !sn.before(Sn(begin)),
            (begin, length) => !sn.before(Sn(begin)) && sn.before(Sn(begin).plus(length)),
        };
        let again: Vec<_> = conn
            .retained
            .iter()
            .filter(|r| wanted(r.stat_sn))
            .map(|retained| retained.pdu.clone())
            .collect();
        if again.is_empty() && pdu.run_length != 0 {
            return None;
        }
        self.send_all(handle, again)
    }

    fn resend_r2ts(&mut self, handle: ConnHandle, pdu: Snack) -> Option<()> {
        let task = self.tasks.get(&pdu.itt).filter(|task| task.conn == handle)?;
        let run = run(pdu);
        let (lun, itt) = (task.command.lun, pdu.itt);
        let wanted = |s: &&crate::session::Sequence| s.ttt != Ttt::NONE && run.contains(&s.r2t_sn);
        let sequences: Vec<_> = task.sequences.iter().filter(wanted).copied().collect();
        if sequences.is_empty() {
            return None;
        }
        let conn = self.conn(handle)?;
        let stat_sn = conn.stat_sn;
        for s in sequences {
            let desired_bytes = s.end - s.start;
            let (ttt, r2t_sn, offset) = (s.ttt, s.r2t_sn, s.start);
            conn.resend(R2t { lun, itt, ttt, stat_sn, r2t_sn, offset, desired_bytes }.encode());
        }
        Some(())
    }

    fn resend_data(&mut self, handle: ConnHandle, pdu: Snack) -> Option<()> {
        let conn = self.conn(handle)?;
        let segment_bytes = conn.params.initiator_recv_bytes;
        let log = self.retained(handle, pdu.itt)?.read.as_ref()?;
        // RFC 7143 §11.16: after a change of the segment length, only R-Data is
        // possible; acknowledged data is not sent again.
        if log.segment_bytes != segment_bytes || pdu.begin_run < log.acknowledged {
            return None;
        }
        let mut pdus = Vec::new();
        let count = log.cut(run(pdu), |pdu| pdus.push(pdu));
        if pdu.begin_run >= count
            || u64::from(pdu.begin_run) + u64::from(pdu.run_length) > u64::from(count)
        {
            return None;
        }
        self.send_all(handle, pdus)
    }

    /// RFC 7143 §11.16.3: all data again in segments of the present length,
    /// then a SCSI Response with the SNACK's tag.
    fn resegment(&mut self, handle: ConnHandle, pdu: Snack) -> Option<()> {
        let segment_bytes = self.conn(handle)?.params.initiator_recv_bytes;
        if pdu.begin_run != 0 || pdu.run_length != 0 {
            return None;
        }
        let retained = self.retained(handle, pdu.itt)?;
        let stat_sn = retained.stat_sn;
        let log = retained.read.as_mut().filter(|log| log.acknowledged == 0)?;
        log.segment_bytes = segment_bytes;
        let collapsed = log.collapsed.take();
        let mut pdus = Vec::new();
        let count = log.cut(0..u32::MAX, |pdu| pdus.push(pdu));
        let mut response = match collapsed {
            Some(c) => ScsiResponse {
                response: ServiceResponse::COMPLETED,
                status: c.status,
                itt: pdu.itt,
                snack_tag: 0,
                stat_sn,
                exp_data_sn: count,
                bidirectional: crate::pdu::Residual::None,
                residual: c.residual,
            }
            .encode(&[]),
            None => retained.pdu.clone(),
        };
        response.bhs.put_u32(20, pdu.ttt.0);
        response.bhs.put_u32(36, count);
        retained.pdu = response.clone();
        pdus.push(response);
        self.send_all(handle, pdus)
    }

    /// RFC 7143 §11.16.1: everything before BegRun has arrived.
    fn acknowledge_data(&mut self, handle: ConnHandle, pdu: Snack) -> Option<()> {
        let Some(retained) = self.retained(handle, pdu.itt) else {
            // The status was acknowledged before the data: nothing to record.
            return Some(());
        };
        let log = retained.read.as_mut()?;
        if log.acknowledge != Some(pdu.ttt) || pdu.run_length != 0 {
            return None;
        }
        let count = log.cut(0..0, |_| ());
        if pdu.begin_run > count || pdu.begin_run < log.acknowledged {
            return None;
        }
        log.acknowledged = pdu.begin_run;
        Some(())
    }
}

fn run(pdu: Snack) -> Range<u32> {
    let end =
        if pdu.run_length == 0 { u32::MAX } else { pdu.begin_run.saturating_add(pdu.run_length) };
    pdu.begin_run..end
}
