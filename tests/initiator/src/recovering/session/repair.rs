//! Recovery of missing PDUs.

use super::{PendingLogout, RecoveringSession, Rejoin, SILENCES, Task};
use bytes::Bytes;
use std::collections::BTreeSet;
use zgate_iscsi::names::Cid;
use zgate_iscsi::pdu::{
    Itt, LogoutReason, LogoutRequest, Lun, NopOut, Snack, SnackKind, TaskFunction, TaskRequest, Ttt,
};
use zgate_iscsi::serial::Sn;

impl RecoveringSession {
    /// Nothing has come for a while: recovers.
    pub fn silence(&mut self) {
        self.silences += 1;
        if self.level() == 0 {
            if !self.tasks.is_empty() && self.silences >= SILENCES {
                self.begin_again();
            }
            return;
        }
        for number in self.carriers.iter().map(|carrier| carrier.number).collect::<Vec<_>>() {
            self.ask_for_statuses(number);
        }
        // The response may be among the statuses that were just asked for.
        if self.silences > 1 {
            self.repeat_logouts();
        }
        for itt in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.repair_task(Itt(itt));
        }
        // The answer contains the StatSN: a lost status leaves a gap before it.
        if !self.tasks.is_empty() || !self.functions.is_empty() {
            for number in self.carriers.iter().map(|carrier| carrier.number).collect::<Vec<_>>() {
                self.ping(number);
            }
        }
    }

    fn ask_for_statuses(&mut self, number: usize) {
        let Some(link) = self.link(number) else { return };
        if let Some((begin_run, run_length)) = link.missing_statuses() {
            let exp_stat_sn = link.exp_stat_sn;
            let (kind, itt, ttt) = (SnackKind::Status, Itt::NONE, Ttt::NONE);
            let snack = Snack { kind, lun: Lun(0), itt, ttt, exp_stat_sn, begin_run, run_length };
            link.send(snack.encode());
            self.repairs.status_snacks += 1;
        }
    }

    fn ping(&mut self, number: usize) {
        let (itt, cmd_sn) = (self.tag(), self.cmd_sn);
        let Some(link) = self.link(number) else { return };
        let exp_stat_sn = link.exp_stat_sn;
        let ping =
            NopOut { immediate: true, lun: Lun(0), itt, ttt: Ttt::NONE, cmd_sn, exp_stat_sn };
        link.send(ping.encode(Bytes::new()));
    }

    fn repair_task(&mut self, itt: Itt) {
        let exp_cmd_sn = self.exp_cmd_sn;
        let Some(task) = self.tasks.get(&itt.0) else { return };
        let number = task.link;
        if !task.cmd_sn.before(exp_cmd_sn) {
            // The answer to a ping may still show that it arrived. RFC 7143
            // §7.2.1: the same command with the same CmdSN.
            if self.silences > 1 {
                self.repairs.retries += 1;
                self.send_command(itt);
            }
            return;
        }
        if self.functions.values().any(|under_way| *under_way == itt) {
            self.repeat_reassign(itt, number);
            return;
        }
        if task.moved {
            self.reassign_one(itt, number);
            return;
        }
        let (begin_run, run_length, is_r2t) = match &task.ended {
            Some((_, _, count)) => match task.missing_data(*count) {
                Some((begin, count)) => (begin, count, false),
                None => return,
            },
            // A gap between received Data-In PDUs is certainly a loss.
            None if task.read_bytes > 0 => {
                let upto = task.data_sns.last().map_or(0, |last| last + 1);
                match task.missing_data(upto) {
                    Some((begin, count)) => (begin, count, false),
                    None => (upto, 0, false),
                }
            }
            None if !task.write.is_empty() => (task.next_r2t_sn, 0, true),
            None => return,
        };
        match is_r2t {
            true => self.repairs.r2t_snacks += 1,
            false => self.repairs.data_snacks += 1,
        }
        let Some(link) = self.link(number) else { return };
        let exp_stat_sn = link.exp_stat_sn;
        let (kind, ttt) = (SnackKind::DataOrR2t, Ttt::NONE);
        let snack = Snack { kind, lun: Lun(0), itt, ttt, exp_stat_sn, begin_run, run_length };
        link.send(snack.encode());
    }

    /// Reinstates the session with the same name and ISID (RFC 7143 §6.3.5);
    /// unanswered commands are issued again once it has logged in.
    pub fn begin_again(&mut self) {
        self.repairs.sessions += 1;
        self.silences = 0;
        self.lead();
    }

    /// Forgets a command: it is not issued again.
    pub fn give_up(&mut self, ticket: u64) {
        self.tasks.retain(|_, task| task.ticket != ticket);
    }

    /// Issues a command again as a new one.
    pub(super) fn give_anew(&mut self, task: Task) {
        let itt = self.tag();
        let known = self.carriers.iter().any(|carrier| carrier.number == task.link);
        let first = self.carriers.first().map_or(0, |carrier| carrier.number);
        let fresh = Task {
            cmd_sn: self.cmd_sn,
            link: if known { task.link } else { first },
            read: Vec::new(),
            data_sns: BTreeSet::new(),
            next_r2t_sn: 0,
            ended: None,
            moved: false,
            ..task
        };
        self.cmd_sn = self.cmd_sn.next();
        self.tasks.insert(itt.0, fresh);
        self.send_command(itt);
    }

    /// A connection is lost.
    pub fn lost(&mut self, number: usize) {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.number == number) else {
            return;
        };
        let gone = self.carriers.remove(at);
        self.closed.push(number);
        if self.level() < 2 {
            return self.begin_again();
        }
        self.repairs.connections += 1;
        match self.rejoin {
            Rejoin::SameCid => self.want(gone.cid, false, Some((number, gone.cid))),
            Rejoin::Logout if self.carriers.is_empty() => {
                self.want(Cid(gone.cid.0 + 1), false, Some((number, gone.cid)));
            }
            Rejoin::Logout => self.log_out_all(number, gone.cid),
        }
    }

    /// Logs a lost connection out, and those again whose logout was requested
    /// on it.
    pub(super) fn log_out_all(&mut self, number: usize, cid: Cid) {
        self.log_out(number, cid);
        let unanswered: Vec<_> =
            self.logouts.values().filter(|one| one.by == number).copied().collect();
        self.logouts.retain(|_, one| one.by != number);
        unanswered.into_iter().for_each(|one| self.log_out(one.lost, one.cid));
    }

    fn log_out(&mut self, lost: usize, cid: Cid) {
        let (itt, cmd_sn) = (self.tag(), self.cmd_sn);
        let Some(link) = self.carriers.first_mut() else { return };
        let exp_stat_sn = link.exp_stat_sn;
        let reason = LogoutReason::REMOVE_FOR_RECOVERY;
        let request = LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn };
        let by = link.number;
        link.send(request.encode());
        self.logouts.insert(itt.0, PendingLogout { lost, cid, by });
    }

    /// Requests the unanswered logouts again: as immediate requests they leave no gap
    /// in CmdSN, and are lost without a trace. One that the target has executed may be
    /// repeated: it answers that the connection is closed, or that there is none.
    fn repeat_logouts(&mut self) {
        if self.carriers.is_empty() {
            return; // the login of the next connection repeats them
        }
        for logout in std::mem::take(&mut self.logouts).into_values() {
            self.log_out(logout.lost, logout.cid);
        }
    }

    /// Moves the tasks of a lost connection (RFC 7143 §7.2.2); commands that
    /// never arrived are sent again.
    pub(super) fn reassign(&mut self, lost: usize, heir: usize) {
        let moved: Vec<_> =
            self.tasks.iter().filter(|(_, task)| task.link == lost).map(|(itt, _)| *itt).collect();
        // Functions requested on the lost connection will not be answered.
        self.functions.retain(|_, itt| !moved.contains(&itt.0));
        for itt in moved {
            let exp_cmd_sn = self.exp_cmd_sn;
            let Some(task) = self.tasks.get_mut(&itt) else { continue };
            task.link = heir;
            // The status has a StatSN of the new connection.
            task.ended = None;
            if task.cmd_sn.before(exp_cmd_sn) {
                self.reassign_one(Itt(itt), heir);
            } else {
                task.moved = true;
                self.repairs.retries += 1;
                self.send_command(Itt(itt));
            }
        }
    }

    /// A reassignment is not answered: as an immediate request it leaves no gap
    /// in CmdSN, and is lost without a trace. If the target has executed it,
    /// the task is allegiant to this connection already.
    fn repeat_reassign(&mut self, itt: Itt, number: usize) {
        if self.silences < 2 {
            return;
        }
        self.functions.retain(|_, under_way| *under_way != itt);
        if let Some(task) = self.tasks.get_mut(&itt.0) {
            task.moved = true;
        }
        self.reassign_one(itt, number);
    }

    fn reassign_one(&mut self, itt: Itt, heir: usize) {
        if self.functions.values().any(|under_way| *under_way == itt) {
            return;
        }
        let (own, cmd_sn) = (self.tag(), self.cmd_sn);
        let Some(task) = self.tasks.get_mut(&itt.0) else { return };
        let is_write = !task.write.is_empty();
        let exp_data_sn = if is_write { task.next_r2t_sn } else { task.exp_data_sn() };
        // PDUs that will be sent again must not count as received.
        task.data_sns.retain(|sn| *sn < exp_data_sn);
        let lun = task.lun;
        let Some(link) = self.carriers.iter_mut().find(|carrier| carrier.number == heir) else {
            return;
        };
        let request = TaskRequest {
            immediate: true,
            function: TaskFunction::TASK_REASSIGN,
            lun,
            itt: own,
            referenced: itt,
            cmd_sn,
            exp_stat_sn: link.exp_stat_sn,
            ref_cmd_sn: Sn(0),
            exp_data_sn,
        };
        link.send(request.encode());
        self.functions.insert(own.0, itt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_iscsi::initiator::{LoginOutcome, LoginScript};
    use zgate_iscsi::login::Operational;
    use zgate_iscsi::names::Tsih;
    use zgate_iscsi::pdu::{Bhs, Frame, LogoutResponse, LogoutResult, Opcode};

    /// Answers the login that the session wants next.
    fn log_in(session: &mut RecoveringSession) {
        let (number, script) = session.next_login().expect("a connection is wanted");
        let params =
            Operational { error_recovery_level: 2, max_connections: 2, ..Operational::default() };
        let outcome = LoginOutcome {
            status: (0, 0),
            tsih: Tsih(1),
            params,
            cmd_sn: script.cmd_sn,
            exp_cmd_sn: script.cmd_sn,
            max_cmd_sn: Sn(100),
            exp_stat_sn: Sn(1),
            answers: Vec::new(),
        };
        session.logged_in(number, outcome);
    }

    /// Takes what the session sends, and returns the PDUs of one kind.
    fn sent(session: &mut RecoveringSession, opcode: Opcode) -> Vec<(usize, Bhs)> {
        let all = std::iter::from_fn(|| session.poll_transmit());
        all.map(|(link, pdu)| (link, pdu.bhs)).filter(|(_, bhs)| bhs.opcode() == opcode).collect()
    }

    #[test]
    fn a_logout_that_is_lost_is_requested_again() {
        let script = LoginScript::normal("iqn.2026-01.test:initiator", "iqn.2026-01.test:target");
        let mut session = RecoveringSession::new(script, Rejoin::Logout);
        log_in(&mut session);
        session.join(1);
        log_in(&mut session);
        session.start(0, Lun(0), &[0x2a], 0, Bytes::from_static(&[1; 512]));
        assert_eq!(sent(&mut session, Opcode::SCSI_COMMAND).len(), 1);
        session.lost(0);
        assert_eq!(sent(&mut session, Opcode::LOGOUT_REQUEST).len(), 1, "this one is lost");
        session.silence();
        assert!(sent(&mut session, Opcode::LOGOUT_REQUEST).is_empty(), "the answer may come");
        session.silence();
        let again = sent(&mut session, Opcode::LOGOUT_REQUEST);
        let [(1, request)] = again[..] else { panic!("one more logout: {again:?}") };
        let request = LogoutRequest::parse(&request);
        assert_eq!(request.cid, Cid(0));
        let answer = LogoutResponse {
            result: LogoutResult::CLOSED,
            itt: request.itt,
            stat_sn: Sn(1),
            time2wait_seconds: 2,
            time2retain_seconds: 20,
        };
        let mut answer = answer.encode();
        // ExpCmdSN: the command had arrived.
        answer.bhs.put_u32(28, 2);
        answer.bhs.put_u32(32, 100);
        let frame = Frame::new(answer.bhs, Bytes::new(), Vec::new());
        session.receive(1, &frame).expect("the connection is logged out");
        let moved = sent(&mut session, Opcode::TASK_REQUEST);
        assert!(matches!(moved[..], [(1, _)]), "the task moves: {moved:?}");
    }
}
