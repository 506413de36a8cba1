//! TASK REASSIGN: moves a task to another connection (RFC 7143 §7.2.2,
//! §11.5.1).

use crate::pdu::{Itt, Outgoing, TaskRequest, TaskResult};
use crate::session::{ConnHandle, Phase, Session};

impl Session {
    pub(crate) fn reassign(&mut self, handle: ConnHandle, request: TaskRequest) {
        let itt = request.referenced;
        if self.params.error_recovery_level < 2 {
            self.task_response(handle, request.itt, TaskResult::REASSIGNMENT_NOT_SUPPORTED);
            return;
        }
        match self.tasks.get(&itt) {
            Some(task) if task.phase != Phase::Aborting && task.orphaned => {
                self.task_response(handle, request.itt, TaskResult::COMPLETE);
                self.resume(handle, itt, request.exp_data_sn);
            }
            Some(task) if task.phase != Phase::Aborting => {
                self.task_response(handle, request.itt, TaskResult::TASK_STILL_ALLEGIANT);
            }
            _ => self.reassign_status(handle, request),
        }
    }

    /// Continues a task on its new connection.
    fn resume(&mut self, handle: ConnHandle, itt: Itt, exp_data_sn: u32) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        task.conn = handle;
        task.orphaned = false;
        // RFC 7143 §11.5.6: for writes it is the R2TSN that the initiator
        // expects next.
        if task.command.write && !task.command.read {
            task.next_r2t_sn = task.next_r2t_sn.min(exp_data_sn);
        }
        if let Some(completion) = task.finished.take() {
            if let Some(task) = self.remove_task(itt) {
                self.send_result(&task, completion, 0);
            }
        } else {
            self.pump(itt);
        }
    }

    /// Reassigns a completed task whose status was lost with its connection:
    /// data and status are sent again, with a StatSN of the new connection.
    fn reassign_status(&mut self, handle: ConnHandle, request: TaskRequest) {
        let itt = request.referenced;
        let found = self.lost.iter_mut().find_map(|lost| {
            let at = lost.retained.iter().position(|retained| retained.itt == itt)?;
            lost.retained.remove(at)
        });
        let Some(mut retained) = found else {
            self.task_response(handle, request.itt, TaskResult::TASK_DOES_NOT_EXIST);
            return;
        };
        self.task_response(handle, request.itt, TaskResult::COMPLETE);
        let Some(conn) = self.conn(handle) else { return };
        let stat_sn = conn.take_stat_sn();
        let mut pdus: Vec<Outgoing> = Vec::new();
        let mut status = retained.pdu;
        status.bhs.put_u32(24, stat_sn.0);
        if let Some(log) = &mut retained.read {
            // With a new segment length, a DataSN would refer to other data.
            let same = log.segment_bytes == conn.params.initiator_recv_bytes;
            log.segment_bytes = conn.params.initiator_recv_bytes;
            if let Some(collapsed) = &mut log.collapsed {
                collapsed.stat_sn = stat_sn;
            }
            let first = if same { request.exp_data_sn } else { 0 };
            let count = log.cut(first..u32::MAX, |pdu| pdus.push(pdu));
            if log.collapsed.is_some() {
                match pdus.pop() {
                    Some(last) => status = last,
                    // All data arrived, the status did not.
                    None => {
                        log.cut(count.saturating_sub(1)..u32::MAX, |pdu| status = pdu);
                    }
                }
            }
        }
        pdus.into_iter().for_each(|pdu| conn.send(pdu));
        conn.send_status(stat_sn, itt, status, retained.read);
    }
}
