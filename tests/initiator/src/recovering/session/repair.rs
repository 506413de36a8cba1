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
