//! Results: Data-In, status, residuals (RFC 7143 §11.4, §11.7).

use super::Session;
use super::events::{Completion, TaskTag};
use super::read::{Collapsed, ReadLog, truncate};
use super::task::{Failure, Phase, Task};
use crate::login::Transport;
use crate::pdu::{Itt, Residual, ScsiResponse, ServiceResponse};
use bytes::Bytes;
use zgate_store::Payload;

/// SCSI status CHECK CONDITION.
const CHECK_CONDITION: u8 = 0x02;

impl Session {
    /// Reports the result of a command. A result for a task that no longer
    /// exists is dropped.
    pub fn complete(&mut self, tag: TaskTag, completion: Completion) {
        let Some(task) = self.tasks.get_mut(&tag.itt).filter(|task| task.tag == tag) else {
            return;
        };
        match task.phase {
            Phase::Collecting => return,
            Phase::Delivered if task.orphaned => {
                // RFC 7143 §7.2.2: retained until the task is reassigned.
                task.finished = Some(completion);
                self.trim_retained();
                return;
            }
            Phase::Delivered => {
                if let Some(task) = self.remove_task(tag.itt) {
                    self.send_result(&task, completion, 0);
                }
            }
            Phase::Aborting => {
                if let Some(task) = self.remove_task(tag.itt)
                    && task.answers_late
                {
                    self.send_result(&task, completion, 0);
                }
            }
        }
        self.progress();
    }

    /// Ends a task that was not delivered to the owner.
    pub(super) fn respond_failure(&mut self, itt: Itt, failure: Failure) {
        let Some(task) = self.remove_task(itt) else { return };
        let (status, sense) = match failure {
            Failure::Check(condition) => {
                let (lun, format) = (task.command.lun, &self.sense_format);
                let is_descriptor = format.as_ref().is_some_and(|told| told.is_descriptor(lun));
                (CHECK_CONDITION, condition.sense(is_descriptor))
            }
            Failure::Status(status) => (status, Bytes::new()),
        };
        self.send_result(&task, Completion { status, sense, ..Completion::default() }, 0);
    }

    /// Sends a result, leaving out Data-In before `first_data_sn`.
    pub(crate) fn send_result(&mut self, task: &Task, completion: Completion, first_data_sn: u32) {
        let Completion { status, sense, mut data_in, wanted_bytes } = completion;
        let read_bytes = task.read_bytes();
        let offered: u64 = data_in.iter().map(|p| p.len() as u64).sum();
        truncate(&mut data_in, read_bytes as usize);
        let (wanted, expected) = match task.command.write {
            true => (u64::from(task.write_bytes()), task.write_bytes()),
            false => (offered, read_bytes),
        };
        let residual = Residual::between(wanted_bytes.unwrap_or(wanted), expected);
        let bidirectional = match task.is_bidirectional() {
            true => Residual::between(offered, read_bytes),
            false => Residual::None,
        };
        let erl = self.params.error_recovery_level;
        let burst_bytes = self.params.max_burst_bytes;
        let transport = self.transport;
        let sense_bytes = self.control_data_bytes(task.conn).saturating_sub(2);
        let acknowledge = (erl >= 1 && !data_in.is_empty()).then(|| self.fresh_ttt());
        let Some(conn) = self.conn(task.conn) else { return };
        let stat_sn = conn.take_stat_sn();
        let has_data = data_in.iter().any(|p: &Payload| !p.is_empty());
        // RFC 7143 §11.7.3: the status is sent with the data only if it needs
        // no sense data. On iSER it is a separate message (RFC 7145 §7.3.2).
        let collapses = has_data
            && transport == Transport::Tcp
            && status == 0
            && sense.is_empty()
            && !task.is_bidirectional();
        let segment_bytes = match transport {
            Transport::Tcp => conn.params.initiator_recv_bytes,
            // One RDMA Write per burst.
            Transport::Iser => burst_bytes,
        };
        let log = has_data.then(|| ReadLog {
            itt: task.tag.itt,
            lun: task.command.lun,
            data: data_in,
            segment_bytes,
            burst_bytes,
            acknowledge,
            collapsed: collapses.then_some(Collapsed { status, stat_sn, residual }),
            acknowledged: 0,
        });
        let mut pdus = Vec::new();
        let count =
            log.as_ref().map_or(0, |log| log.cut(first_data_sn..u32::MAX, |pdu| pdus.push(pdu)));
        if !collapses || pdus.is_empty() {
            let response = ScsiResponse {
                response: ServiceResponse::COMPLETED,
                status,
                itt: task.tag.itt,
                snack_tag: 0,
                stat_sn,
                exp_data_sn: count + task.next_r2t_sn,
                bidirectional,
                residual,
            };
            let sense = &sense[..sense.len().min(sense_bytes)];
            pdus.push(response.encode(sense));
        }
        let last = pdus.pop();
        pdus.into_iter().for_each(|pdu| conn.send(pdu));
        if let Some(last) = last {
            conn.send_status(stat_sn, task.tag.itt, last, log);
        }
        if acknowledge.is_some() {
            self.trim_retained();
        }
    }
}
