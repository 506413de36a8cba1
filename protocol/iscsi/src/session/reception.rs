//! Sequence reception timeout (RFC 7143 §7.1.4.1). At error recovery level 1 and above a side
//! may drop a PDU with a damaged header: the initiator an R2T, something in between the last
//! Data-Out of a sequence. No later DataSN shows that gap; time does, and the target asks
//! for the rest (§7.9, recovery R2T). If it was the R2T that was lost, the initiator waits
//! for that R2TSN and asks for it by SNACK: the requests begin again from there.

use super::Session;
use super::events::ConnHandle;
use super::task::{Condition, Failure, Phase, Task};
use crate::limits::{MAX_SEQUENCE_TIMEOUTS, SEQUENCE_RECEPTION_TIMEOUT};
use crate::login::Transport;
use crate::pdu::{Itt, Snack, Ttt};
use crate::time::Timestamp;

impl Task {
    /// Waits for Data-Out of a sequence.
    fn awaits_data(&self) -> bool {
        self.phase == Phase::Collecting && !self.orphaned && !self.sequences.is_empty()
    }

    /// Time at which its sequences count as lost. Without a look at the clock since the
    /// last data, the next look is due.
    fn reception_deadline(&self, now: Timestamp) -> Timestamp {
        let wait = SEQUENCE_RECEPTION_TIMEOUT * (1 << self.silences.min(MAX_SEQUENCE_TIMEOUTS));
        self.quiet_since.map_or(now, |since| since.after(wait))
    }
}

impl Session {
    /// At level 0 nothing is dropped: a damaged header ends its connection. RDMA Reads
    /// are not lost while their connection lives.
    fn may_lose_data(&self) -> bool {
        self.params.error_recovery_level >= 1 && self.transport == Transport::Tcp
    }

    /// Times at which sequences count as lost.
    pub(super) fn reception_deadlines(&self) -> impl Iterator<Item = Timestamp> {
        let tasks = self.may_lose_data().then(|| self.tasks.values());
        let waiting = tasks.into_iter().flatten().filter(|task| task.awaits_data());
        waiting.map(|task| task.reception_deadline(self.now))
    }

    /// Gives up sequences that nothing arrives for, and asks for the rest of their data.
    pub(super) fn expire_receptions(&mut self) {
        if !self.may_lose_data() {
            return;
        }
        let now = self.now;
        let mut silent: Vec<Itt> = Vec::new();
        for (itt, task) in self.tasks.iter_mut().filter(|(_, task)| task.awaits_data()) {
            if task.quiet_since.is_none() {
                task.quiet_since = Some(now);
            } else if task.reception_deadline(now) <= now {
                silent.push(*itt);
            }
        }
        for itt in silent {
            self.reception_timed_out(itt);
        }
    }

    fn reception_timed_out(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        tracing::debug!(itt = itt.0, silences = task.silences, "Data-Out is missing");
        task.silences += 1;
        task.quiet_since = None;
        // What still comes for them belongs to no sequence, and is dropped.
        for sequence in std::mem::take(&mut task.sequences) {
            let is_silent = sequence.next_data_sn == 0 && !sequence.lossy;
            if sequence.ttt != Ttt::NONE && is_silent {
                task.given_up_r2t_sns.push(sequence.r2t_sn);
            }
        }
        task.to_request.clear();
        if task.silences > MAX_SEQUENCE_TIMEOUTS {
            task.fail(Failure::Check(Condition::CRC));
        }
        self.pump(itt);
    }

    /// The initiator has not received this R2T (RFC 7143 §11.16.1), which was given up
    /// meanwhile. It takes R2Ts in the order of their R2TSNs only, and does nothing about
    /// those that have replaced it: their numbers are used again, from this one on. `None`:
    /// the R2T was not given up.
    pub(crate) fn request_again_from(&mut self, handle: ConnHandle, snack: Snack) -> Option<()> {
        let (itt, r2t_sn) = (snack.itt, snack.begin_run);
        let is_asked = |task: &&mut Task| task.conn == handle && task.awaits_data();
        let task = self.tasks.get_mut(&itt).filter(is_asked)?;
        if !task.given_up_r2t_sns.contains(&r2t_sn) {
            return None;
        }
        // Once: the next SNACK is about an R2T that is under way.
        task.given_up_r2t_sns.retain(|given_up| *given_up < r2t_sn);
        task.sequences.clear();
        task.to_request = task.gather.missing(0, task.gathered_bytes()).into();
        task.next_r2t_sn = r2t_sn;
        task.quiet_since = None;
        self.pump(itt);
        Some(())
    }
}
