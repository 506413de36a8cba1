//! The steps of RFC 7143 §4.2.3.3, in order.

use super::{Function, Step, is_target_reset, scope};
use crate::pdu::{TaskFunction, Ttt};
use crate::session::{CloseReason, EndReason, Event, Phase, Session};

impl Session {
    /// Advances every function as far as possible.
    pub(crate) fn progress_functions(&mut self) {
        let mut at = 0;
        while at < self.functions.len() {
            if !self.progress_function(at) {
                at += 1;
            }
            if self.ended {
                return;
            }
        }
    }

    /// Returns true if the function is complete and removed.
    fn progress_function(&mut self, at: usize) -> bool {
        let Some(function) = self.functions.get(at) else { return false };
        match &function.step {
            Step::Gathering if self.has_gathered(function) => {
                self.announce(at);
                false
            }
            Step::Draining(result) => {
                let result = *result;
                let alive = |tag: &crate::session::TaskTag| {
                    self.tasks.get(&tag.itt).is_some_and(|t| t.tag == *tag)
                };
                if function.affected.iter().any(alive) {
                    return false;
                }
                let fence = match scope(function.request.function, function.request.lun) {
                    Some(_) => self.conns.iter().map(|conn| (conn.handle, conn.stat_sn)).collect(),
                    None => Vec::new(),
                };
                if let Some(function) = self.functions.get_mut(at) {
                    function.step = Step::Fenced(result, fence);
                }
                self.progress_function(at)
            }
            Step::Fenced(result, fence) => {
                let result = *result;
                let open = |(handle, sn): &&(crate::session::ConnHandle, crate::serial::Sn)| {
                    self.conns
                        .iter()
                        .any(|conn| conn.handle == *handle && conn.acknowledged.before(*sn))
                };
                let unacknowledged: Vec<_> =
                    fence.iter().filter(open).map(|(handle, _)| *handle).collect();
                if !unacknowledged.is_empty() {
                    // RFC 7143 §4.2.3.3 d: a NOP-In may request it.
                    unacknowledged.into_iter().for_each(|handle| self.ping(handle));
                    return false;
                }
                let function = self.functions.remove(at);
                self.task_response(function.conn, function.request.itt, result);
                if function.request.function == TaskFunction::TARGET_COLD_RESET {
                    // RFC 7143 §11.5.1: all sessions and connections end.
                    for conn in &self.conns {
                        self.events.push_back(Event::Close(conn.handle, CloseReason::Dropped));
                    }
                    self.end(EndReason::ColdReset);
                }
                true
            }
            Step::Gathering | Step::Announced => false,
        }
    }

    /// True if all earlier commands and all solicited data have arrived. A
    /// reset of the whole target waits for no command, and none waits for data for long:
    /// see docs/spec-exceptions/iscsi-function-data.md. Data that comes later is for no task.
    fn has_gathered(&self, function: &Function) -> bool {
        let request = &function.request;
        let commands_came =
            is_target_reset(request.function) || !self.window.expected().before(request.cmd_sn);
        let answers = |task: &crate::session::Task| {
            // A task whose connection is closed will get no more data.
            task.phase == Phase::Collecting
                && !task.orphaned
                && task.sequences.iter().any(|sequence| sequence.ttt != Ttt::NONE)
        };
        let waits_for_data = function.deadline.is_some()
            && self.tasks.values().any(|task| function.covers(task) && answers(task));
        commands_came && !waits_for_data
    }
}
