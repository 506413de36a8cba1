//! The answer to an R2T by RDMA Read (RFC 7145 §7.3.6): the memory that was
//! read, in place of Data-Out PDUs.

use super::Session;
use super::events::ConnHandle;
use super::task::{Condition, Failure, Phase};
use crate::pdu::{Itt, R2t};
use crate::time::Timestamp;
use bytes::Bytes;

/// All data that an R2T requested.
#[derive(Clone, Debug)]
pub enum Solicited {
    /// Only the requested data.
    Part(Bytes),
    /// Everything from the first byte of the command's data to the end of the
    /// requested range: the unsolicited data was copied in front.
    Front(Bytes),
}

impl Session {
    /// Handles the data that an R2T of a connection requested.
    pub fn handle_solicited(
        &mut self,
        handle: ConnHandle,
        r2t: &R2t,
        data: Solicited,
        now: Timestamp,
    ) {
        self.now = self.now.max(now);
        if self.ended {
            return;
        }
        if let Some(conn) = self.conn(handle) {
            conn.last_heard = now;
        }
        if self.place_solicited(handle, r2t, data) {
            self.pump(r2t.itt);
        }
        self.progress();
    }

    /// False if the task has ended in the meantime.
    fn place_solicited(&mut self, handle: ConnHandle, r2t: &R2t, data: Solicited) -> bool {
        let Some(task) = self.tasks.get_mut(&r2t.itt) else { return false };
        if task.conn != handle || task.phase != Phase::Collecting {
            return false;
        }
        let Some(at) = task.sequences.iter().position(|s| s.ttt == r2t.ttt) else { return false };
        let sequence = task.sequences.remove(at);
        let wanted = (sequence.end - sequence.start) as usize;
        let placed = match data {
            Solicited::Part(data) => {
                let (start, transport) = (sequence.start, self.transport);
                data.len() == wanted && task.gather.insert(start, vec![data], transport).is_ok()
            }
            Solicited::Front(data) => {
                data.len() == sequence.end as usize && task.gather.replace_front(data)
            }
        };
        if !placed {
            task.fail(Failure::Check(Condition::INCORRECT_AMOUNT));
        }
        true
    }

    /// True if a task with this tag is unfinished.
    #[must_use]
    pub fn has_task(&self, itt: Itt) -> bool {
        self.tasks.contains_key(&itt)
    }
}
