//! SCSI commands from their PDU to the owner: solicits and gathers the data
//! (RFC 7143 §4.2.5, §11.3, §11.8).

use super::Session;
use super::events::{Command, ConnHandle, Event, TaskTag};
use super::task::{Condition, Failure, Phase, Sequence, Task};
use crate::limits::{MAX_DATA_RECOVERIES, MAX_IMMEDIATE_TASKS};
use crate::pdu::{Frame, Itt, R2t, RejectReason, ScsiCommand, TaskAttribute, Ttt};

impl Session {
    /// Creates a task for a command; `None` if the command was rejected.
    pub(super) fn scsi_command(
        &mut self,
        handle: ConnHandle,
        frame: Frame,
        ordered: bool,
    ) -> Option<TaskTag> {
        let command = self.parse_command(handle, &frame)?;
        let itt = command.itt;
        if self.tasks.contains_key(&itt) || self.functions.iter().any(|f| f.itt() == itt) {
            // RFC 7143 §11.17.1: the tag is in use.
            self.reject(handle, &frame, RejectReason::TASK_IN_PROGRESS);
            return None;
        }
        if command.immediate && self.immediate_tasks >= MAX_IMMEDIATE_TASKS {
            self.reject(handle, &frame, RejectReason::TOO_MANY_IMMEDIATE);
            return None;
        }
        let tag = TaskTag { itt, serial: self.fresh_serial() };
        let mut task = Task::new(tag, handle, command, ordered);
        task.doomed = self.is_doomed(&task);
        if !frame.data_digest_ok {
            self.reject(handle, &frame, RejectReason::DATA_DIGEST_ERROR);
        }
        self.take_immediate_data(&mut task, frame);
        self.immediate_tasks += usize::from(task.command.immediate);
        if task.command.attribute == TaskAttribute::Ordered {
            self.ordered_tasks += 1;
            self.has_seen_ordered = true;
        }
        self.counted_tasks += u32::from(task.is_counted());
        self.tasks.insert(itt, task);
        self.pump(itt);
        Some(tag)
    }

    fn take_immediate_data(&self, task: &mut Task, frame: Frame) {
        let len = frame.data_bytes() as u32;
        let limit = self.params.first_burst_bytes.min(task.write_bytes());
        if frame.lacks_data() {
            task.fail(Failure::NO_MEMORY);
        } else if len > 0 {
            if !task.command.write || !self.params.immediate_data {
                task.fail(Failure::Check(Condition::UNEXPECTED_UNSOLICITED));
            } else if len > limit {
                task.fail(Failure::Check(Condition::INCORRECT_AMOUNT));
            } else if !frame.data_digest_ok {
                // RFC 7143 §7.8: request the data again, or end with a CRC
                // error.
                if self.params.error_recovery_level == 0 {
                    task.fail(Failure::Check(Condition::CRC));
                }
            } else if task.gather.insert(0, frame.data, self.transport).is_err() {
                task.fail(Failure::Check(Condition::INCORRECT_AMOUNT));
            }
        }
        let ScsiCommand { is_final, write, .. } = task.command;
        if write && !is_final && task.write_bytes() > 0 {
            // RFC 7143 §11.3.1: unsolicited Data-Out follows.
            if self.params.initial_r2t {
                task.fail(Failure::Check(Condition::UNEXPECTED_UNSOLICITED));
            }
            task.sequences.push(Sequence::new(Ttt::NONE, 0, len.min(limit), limit));
        }
    }

    /// Advances a task as far as possible: solicits data, delivers the command,
    /// or fails it.
    pub(crate) fn pump(&mut self, itt: Itt) {
        self.pump_task(itt);
        self.count_gathering(itt);
    }

    fn pump_task(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        if task.phase != Phase::Collecting || !task.ordered || task.orphaned {
            return;
        }
        if let Some(failure) = task.failure {
            // RFC 7143 §7.8: wait for the F bit of every sequence first.
            if task.sequences.is_empty() {
                self.respond_failure(itt, failure);
            }
            return;
        }
        if task.doomed {
            return;
        }
        if task.gather.is_complete() && task.sequences.is_empty() {
            if self.ordered_tasks == 0 || !self.is_blocked(itt) {
                self.deliver(itt);
            }
            return;
        }
        if task.sequences.iter().any(|s| s.ttt == Ttt::NONE) {
            return;
        }
        if task.sequences.is_empty() && task.to_request.is_empty() {
            if task.next_r2t_sn > 0 {
                task.recoveries += 1;
                if task.recoveries > MAX_DATA_RECOVERIES {
                    task.fail(Failure::Check(Condition::CRC));
                    self.respond_failure(itt, Failure::Check(Condition::CRC));
                    return;
                }
            }
            task.to_request = task.gather.missing(0, task.gathered_bytes()).into();
        }
        if self.reserve(itt) {
            self.solicit(itt);
        }
    }

    /// Sends R2Ts up to MaxOutstandingR2T.
    fn solicit(&mut self, itt: Itt) {
        loop {
            let ttt = self.fresh_ttt();
            let Some(task) = self.tasks.get_mut(&itt) else { return };
            if task.sequences.len() >= self.params.outstanding_r2ts() as usize {
                return;
            }
            let Some((offset, len)) = task.to_request.pop_front() else { return };
            let desired_bytes = len.min(self.params.max_burst_bytes);
            if desired_bytes < len {
                task.to_request.push_front((offset + desired_bytes, len - desired_bytes));
            }
            let r2t_sn = task.next_r2t_sn;
            task.next_r2t_sn += 1;
            task.sequences.push(Sequence::new(ttt, r2t_sn, offset, offset + desired_bytes));
            task.quiet_since = None;
            let (handle, lun) = (task.conn, task.command.lun);
            if let Some(conn) = self.conn(handle) {
                let stat_sn = conn.stat_sn;
                conn.send(R2t { lun, itt, ttt, stat_sn, r2t_sn, offset, desired_bytes }.encode());
            }
        }
    }

    /// True if an ORDERED task must end before this one.
    fn is_blocked(&self, itt: Itt) -> bool {
        let Some(task) = self.tasks.get(&itt) else { return false };
        self.tasks.values().any(|other| other.tag != task.tag && task.is_behind(other))
    }

    /// Retries the tasks that were complete but blocked.
    pub(crate) fn pump_unblocked(&mut self) {
        while std::mem::take(&mut self.unblocked) {
            let waiting =
                |task: &&Task| task.phase == Phase::Collecting && task.gather.is_complete();
            let mut tags: Vec<_> =
                self.tasks.values().filter(waiting).map(|task| task.tag).collect();
            tags.sort_by_key(|tag| tag.serial);
            tags.into_iter().for_each(|tag| self.pump(tag.itt));
        }
    }

    fn deliver(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        task.phase = Phase::Delivered;
        let command = &task.command;
        let mut event = Command {
            task: task.tag,
            conn: task.conn,
            lun: command.lun,
            cdb: command.cdb.clone(),
            attribute: command.attribute,
            immediate: command.immediate,
            cmd_sn: command.cmd_sn,
            expected_read_bytes: task.read_bytes(),
            expected_write_bytes: task.write_bytes(),
            copied_bytes: task.gather.copied_bytes(),
            data_out: task.gather.take(),
            needs_memory: false,
            holds_memory: task.reserved_bytes > 0,
        };
        event.needs_memory = self.needs_memory(event.conn);
        self.events.push_back(Event::Command(Box::new(event)));
    }
}
