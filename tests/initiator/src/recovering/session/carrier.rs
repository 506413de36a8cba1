//! One connection of a recovering session: what is to be sent, and the received
//! statuses.

use std::collections::{BTreeMap, VecDeque};
use zgate_iscsi::names::Cid;
use zgate_iscsi::pdu::{Itt, Outgoing};
use zgate_iscsi::serial::Sn;

#[derive(Debug)]
pub(super) struct Carrier {
    /// Never reused.
    pub(super) number: usize,
    pub(super) cid: Cid,
    pub(super) out: VecDeque<Outgoing>,
    /// ExpStatSN: all statuses before it are acknowledged.
    pub(super) exp_stat_sn: Sn,
    /// Statuses received and not acknowledged: after a gap, or of tasks whose
    /// data is incomplete (RFC 7143 §4.2.2.2 forbids their acknowledgement).
    statuses: BTreeMap<u32, Option<Itt>>,
    /// The highest StatSN known to be used by the target, plus one.
    pub(super) next_stat_sn: Sn,
}

impl Carrier {
    /// A connection that has logged in.
    pub(super) fn new(number: usize, cid: Cid, exp_stat_sn: Sn) -> Self {
        Self {
            number,
            cid,
            out: VecDeque::new(),
            exp_stat_sn,
            statuses: BTreeMap::new(),
            next_stat_sn: exp_stat_sn,
        }
    }

    pub(super) fn send(&mut self, pdu: Outgoing) {
        self.out.push_back(pdu);
    }

    /// Records a received status: `waits` names a task whose data is
    /// incomplete. Returns false for a repeated status.
    pub(super) fn status(&mut self, stat_sn: Sn, waits: Option<Itt>) -> bool {
        self.given_out(stat_sn.next());
        if stat_sn.before(self.exp_stat_sn) {
            return false;
        }
        let fresh = self.statuses.insert(stat_sn.0, waits).is_none();
        self.acknowledge();
        fresh
    }

    /// Records the StatSN that the target uses next.
    pub(super) fn given_out(&mut self, next: Sn) {
        if next.after(self.next_stat_sn) {
            self.next_stat_sn = next;
        }
    }

    /// Records that the data of a task is complete.
    pub(super) fn complete(&mut self, itt: Itt) {
        for waits in self.statuses.values_mut().filter(|waits| **waits == Some(itt)) {
            *waits = None;
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        while self.statuses.get(&self.exp_stat_sn.0) == Some(&None) {
            self.statuses.remove(&self.exp_stat_sn.0);
            self.exp_stat_sn = self.exp_stat_sn.next();
        }
    }

    /// The first gap in the statuses: start and length.
    pub(super) fn missing_statuses(&self) -> Option<(u32, u32)> {
        let mut from = self.exp_stat_sn;
        while self.statuses.contains_key(&from.0) {
            from = from.next();
        }
        let mut count = 0;
        while from.plus(count).before(self.next_stat_sn)
            && !self.statuses.contains_key(&from.plus(count).0)
        {
            count += 1;
        }
        (count > 0).then_some((from.0, count))
    }
}
