//! Task management (RFC 7143 §4.2.3, §11.5-6; RFC 7144 §6).

mod progress;

use crate::limits::{FUNCTION_DATA_TIMEOUT, MAX_TASK_MANAGEMENT};
use crate::pdu::{Itt, Lun, RejectReason, TaskFunction, TaskRequest, TaskResponse, TaskResult};
use crate::serial::Sn;
use crate::session::{ConnHandle, Event, FunctionTag, Session, Task, TaskTag};
use crate::time::Timestamp;
use std::time::Duration;

/// State of a function.
#[derive(Debug)]
enum Step {
    /// Waits for earlier commands and for data under way
    /// (RFC 7143 §4.2.3.3 a, b).
    Gathering,
    /// Passed to the owner for execution (c).
    Announced,
    /// Waits for the affected tasks to end.
    Draining(TaskResult),
    /// Waits for the acknowledgement of the statuses sent before (d).
    Fenced(TaskResult, Vec<(ConnHandle, Sn)>),
}

/// A function in progress.
#[derive(Debug)]
pub(crate) struct Function {
    tag: FunctionTag,
    conn: ConnHandle,
    request: TaskRequest,
    affected: Vec<TaskTag>,
    step: Step,
    /// Time by which the data under way must have come, then the aborted tasks have ended.
    /// `None`: that data is no longer waited for.
    deadline: Option<Timestamp>,
}

impl Function {
    pub(crate) fn itt(&self) -> Itt {
        self.request.itt
    }

    /// True if the function waits for aborted tasks to end.
    fn awaits_tasks(&self) -> bool {
        matches!(self.step, Step::Announced | Step::Draining(_))
    }

    /// True if its deadline has passed.
    fn is_late(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Goes on after a time in which no data was read.
    pub(crate) fn resume_after_hold(&mut self, held: Duration) {
        if matches!(self.step, Step::Gathering) {
            self.deadline = self.deadline.map(|deadline| deadline.after(held));
        }
    }

    /// True if the function ends this task.
    fn covers(&self, task: &Task) -> bool {
        // Immediate commands are ordered by arrival only.
        let earlier = match task.command.immediate {
            true => Sn(task.tag.serial).before(Sn(self.tag.0)),
            false => task.command.cmd_sn.before(self.request.cmd_sn),
        };
        earlier
            && scope(self.request.function, self.request.lun)
                .is_some_and(|scope| scope.contains(task))
    }
}

/// Tasks of the session that a multi-task function ends.
#[derive(Clone, Copy)]
enum Scope {
    Unit(Lun),
    Everything,
}

impl Scope {
    fn contains(self, task: &Task) -> bool {
        match self {
            Self::Unit(lun) => task.command.lun == lun,
            Self::Everything => true,
        }
    }
}

/// The scope of the functions that may end several tasks.
fn scope(function: TaskFunction, lun: Lun) -> Option<Scope> {
    match function {
        TaskFunction::ABORT_TASK_SET | TaskFunction::CLEAR_TASK_SET | TaskFunction::LUN_RESET => {
            Some(Scope::Unit(lun))
        }
        TaskFunction::TARGET_WARM_RESET
        | TaskFunction::TARGET_COLD_RESET
        | TaskFunction::I_T_NEXUS_RESET => Some(Scope::Everything),
        _ => None,
    }
}

fn is_target_reset(function: TaskFunction) -> bool {
    matches!(function, TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET)
}

impl Session {
    /// Takes a task management request.
    ///
    /// # Errors
    /// The reason to reject it.
    pub(crate) fn task_request(
        &mut self,
        handle: ConnHandle,
        request: TaskRequest,
    ) -> Result<(), RejectReason> {
        if request.itt == Itt::NONE {
            return Err(RejectReason::INVALID_FIELD);
        }
        let in_use = |f: &Function| f.request.itt == request.itt;
        if self.tasks.contains_key(&request.itt) || self.functions.iter().any(in_use) {
            return Err(RejectReason::TASK_IN_PROGRESS);
        }
        if self.functions.len() >= MAX_TASK_MANAGEMENT {
            return Err(RejectReason::TOO_MANY_IMMEDIATE);
        }
        let extended = self.params.protocol_level >= 2;
        match request.function {
            TaskFunction::ABORT_TASK => self.abort_one(handle, request),
            TaskFunction::TASK_REASSIGN => self.reassign(handle, request),
            TaskFunction::QUERY_TASK if extended => {
                let known = self
                    .tasks
                    .get(&request.referenced)
                    .is_some_and(|t| t.command.lun == request.lun);
                self.task_response(handle, request.itt, found(known));
            }
            TaskFunction::QUERY_TASK_SET if extended => {
                let known = self.tasks.values().any(|task| task.command.lun == request.lun);
                self.task_response(handle, request.itt, found(known));
            }
            TaskFunction::QUERY_ASYNC_EVENT if extended => {
                self.start(handle, request, Step::Gathering, Vec::new())
            }
            TaskFunction::I_T_NEXUS_RESET if !extended => {
                self.task_response(handle, request.itt, TaskResult::NOT_SUPPORTED);
            }
            function if scope(function, request.lun).is_some() => self.start_many(handle, request),
            // CLEAR ACA among them: NormACA is not supported.
            _ => self.task_response(handle, request.itt, TaskResult::NOT_SUPPORTED),
        }
        Ok(())
    }

    fn start(
        &mut self,
        conn: ConnHandle,
        request: TaskRequest,
        step: Step,
        affected: Vec<TaskTag>,
    ) {
        let tag = FunctionTag(self.fresh_serial());
        let patience = match step {
            Step::Gathering => FUNCTION_DATA_TIMEOUT,
            _ => self.config.function_timeout,
        };
        let deadline = Some(self.now.after(patience));
        self.functions.push(Function { tag, conn, request, affected, step, deadline });
    }

    /// RFC 7143 §11.5.1, ABORT TASK.
    fn abort_one(&mut self, handle: ConnHandle, request: TaskRequest) {
        let referenced =
            self.tasks.get(&request.referenced).filter(|task| task.command.lun == request.lun);
        let Some(task) = referenced else {
            // A command that has not arrived yet is counted as received, and
            // will never be executed.
            let coming = self.window.is_awaited(request.ref_cmd_sn)
                && request.ref_cmd_sn.before(request.cmd_sn);
            let result =
                if coming { TaskResult::COMPLETE } else { TaskResult::TASK_DOES_NOT_EXIST };
            if coming {
                self.window.plug(request.ref_cmd_sn);
                self.drain_early();
            }
            self.task_response(handle, request.itt, result);
            return;
        };
        let (tag, early) = (task.tag, (!task.ordered).then_some(task.command.cmd_sn));
        if let Some(cmd_sn) = early {
            self.window.plug(cmd_sn);
        }
        if self.abort_task(request.referenced, true) {
            self.start(handle, request, Step::Draining(TaskResult::COMPLETE), vec![tag]);
        } else {
            self.task_response(handle, request.itt, TaskResult::COMPLETE);
        }
    }

    fn start_many(&mut self, handle: ConnHandle, request: TaskRequest) {
        // RFC 7143 §4.2.3.3 b: commands that have not arrived yet can be
        // counted as received if the whole target is reset.
        self.start(handle, request, Step::Gathering, Vec::new());
        let Some(function) = self.functions.last() else { return };
        for task in self.tasks.values_mut() {
            task.doomed |= function.covers(task);
        }
        if is_target_reset(request.function) {
            for i in 0..self.window.depth() {
                let sn = self.window.expected().plus(i);
                if sn.before(request.cmd_sn) && self.window.is_awaited(sn) {
                    self.window.plug(sn);
                }
            }
            self.drain_early();
        }
    }

    /// True if a function in progress ends a task that has just arrived.
    pub(crate) fn is_doomed(&self, task: &Task) -> bool {
        let gathering = |f: &&Function| matches!(f.step, Step::Gathering);
        self.functions.iter().filter(gathering).any(|f| f.covers(task))
    }

    /// Reports that the owner has carried out [`Event::Function`].
    pub fn function_done(&mut self, tag: FunctionTag, result: TaskResult) {
        if let Some(function) = self.functions.iter_mut().find(|f| f.tag == tag)
            && matches!(function.step, Step::Announced)
        {
            function.step = Step::Draining(result);
            if result == TaskResult::REJECTED {
                let affected = function.affected.clone();
                self.answer_late(&affected);
            }
            self.progress();
        }
    }

    /// Times at which functions no longer wait for data, or are given up.
    pub(crate) fn function_deadlines(&self) -> impl Iterator<Item = Timestamp> {
        let waits = |function: &&Function| !matches!(function.step, Step::Fenced(..));
        self.functions.iter().filter(waits).filter_map(|function| function.deadline)
    }

    /// Has functions wait no longer for data that has not come in time, and rejects those
    /// whose tasks have not ended in time: the tasks may still write, so that "complete"
    /// would be untrue (RFC 7143 §11.6.1).
    pub(crate) fn expire_functions(&mut self) {
        let now = self.now;
        for function in self.functions.iter_mut().filter(|function| function.is_late(now)) {
            if matches!(function.step, Step::Gathering) {
                function.deadline = None;
            }
        }
        let is_late = |function: &Function| function.awaits_tasks() && function.is_late(now);
        while let Some(at) = self.functions.iter().position(is_late) {
            let function = self.functions.remove(at);
            self.task_response(function.conn, function.request.itt, TaskResult::REJECTED);
            self.answer_late(&function.affected);
        }
    }

    /// A rejected function leaves its tasks to their initiator, which waits for
    /// their results, unless another function aborts them as well.
    fn answer_late(&mut self, affected: &[TaskTag]) {
        for tag in affected {
            let aborts = |f: &Function| f.awaits_tasks() && f.affected.contains(tag);
            let others = self.functions.iter().filter(|f| aborts(f)).count();
            let rejected =
                |f: &Function| aborts(f) && matches!(f.step, Step::Draining(TaskResult::REJECTED));
            let alike = self.functions.iter().filter(|f| rejected(f)).count();
            if let Some(task) = self.tasks.get_mut(&tag.itt).filter(|task| task.tag == *tag) {
                task.answers_late = others == alike;
            }
        }
    }

    /// Removes the functions of a closed connection.
    pub(crate) fn forget_functions(&mut self, handle: ConnHandle) {
        self.functions.retain(|f| f.conn != handle);
        let functions = std::mem::take(&mut self.functions);
        for task in self.tasks.values_mut() {
            task.doomed =
                functions.iter().any(|f| matches!(f.step, Step::Gathering) && f.covers(task));
        }
        self.functions = functions;
        let waiting: Vec<_> = self.tasks.keys().copied().collect();
        waiting.into_iter().for_each(|itt| self.pump(itt));
    }

    pub(crate) fn task_response(&mut self, handle: ConnHandle, itt: Itt, result: TaskResult) {
        if let Some(conn) = self.conn(handle) {
            let stat_sn = conn.take_stat_sn();
            conn.send_status(stat_sn, itt, TaskResponse { result, itt, stat_sn }.encode(), None);
        }
    }

    fn announce(&mut self, at: usize) {
        let Some(function) = self.functions.get(at) else { return };
        let (tag, request) = (function.tag, function.request);
        let covered: Vec<_> =
            self.tasks.values().filter(|task| function.covers(task)).map(|task| task.tag).collect();
        let affected: Vec<_> =
            covered.into_iter().filter(|task| self.abort_task(task.itt, false)).collect();
        if let Some(function) = self.functions.get_mut(at) {
            function.affected.clone_from(&affected);
            function.step = Step::Announced;
            function.deadline = Some(self.now.after(self.config.function_timeout));
        }
        let (function, lun) = (request.function, request.lun);
        self.events.push_back(Event::Function { tag, function, lun, affected });
    }
}

/// RFC 7144 §6.2: "succeeded" if it exists, "complete" if not.
fn found(known: bool) -> TaskResult {
    if known { TaskResult::SUCCEEDED } else { TaskResult::COMPLETE }
}
