//! Error recovery levels 1 and 2 (RFC 7143 §7). Damaged and lost Data-Out is
//! recovered where data is gathered; this module handles the retransmissions
//! that the initiator requests, and the state kept after the loss of a
//! connection.

mod reassign;
mod snack;

use crate::limits::MAX_CONNECTIONS_PER_SESSION;
use crate::names::Cid;
use crate::session::{ConnHandle, Connection, Phase, Retained, Session, payload_bytes};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// A connection that failed and may be recovered.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) handle: ConnHandle,
    pub(crate) cid: Cid,
    /// Statuses not known to have arrived.
    pub(crate) retained: VecDeque<Retained>,
    /// Time at which its tasks are given up.
    pub(crate) deadline: Timestamp,
}

impl Session {
    /// True if the tasks of a connection outlast it.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.params.error_recovery_level >= 2 && self.params.time2retain_seconds > 0
    }

    /// Suspends the tasks of a failed connection for Time2Wait plus
    /// Time2Retain (RFC 7143 §7.5).
    pub(crate) fn keep_for_recovery(&mut self, mut conn: Connection) {
        // Answers may have come on top of data that filled the bound: the oldest statuses go,
        // as on a live connection, and not the connection.
        while conn.retained_bytes > self.config.max_retained_bytes {
            conn.forget_oldest();
        }
        let deadline = self.recovery_deadline();
        for task in self.tasks.values_mut().filter(|task| task.conn == conn.handle) {
            match task.phase {
                Phase::Aborting => {}
                Phase::Collecting | Phase::Delivered => {
                    task.orphaned = true;
                    task.sequences.clear();
                    task.to_request.clear();
                }
            }
        }
        if self.lost.len() >= MAX_CONNECTIONS_PER_SESSION {
            self.give_up(0);
        }
        self.lost.push(Lost {
            handle: conn.handle,
            cid: conn.cid,
            retained: conn.retained,
            deadline,
        });
        self.trim_retained();
    }

    /// Time until which tasks are kept that are suspended now.
    fn recovery_deadline(&self) -> Timestamp {
        let seconds =
            u64::from(self.params.time2wait_seconds) + u64::from(self.params.time2retain_seconds);
        self.now.after(Duration::from_secs(seconds))
    }

    /// Removes failed connections for recovery; false if there are none with this CID.
    /// Their tasks are kept from now on for as long as the response to the logout says
    /// (RFC 7143 §11.15.3-4): the initiator may have noticed the failure later.
    pub(crate) fn remove_lost(&mut self, cid: Cid) -> bool {
        let deadline = self.recovery_deadline();
        let mut is_lost = false;
        for lost in self.lost.iter_mut().filter(|lost| lost.cid == cid) {
            lost.deadline = deadline;
            is_lost = true;
        }
        is_lost
    }

    /// Keeps the unacknowledged data within its bound: failed connections are
    /// given up first, then the oldest statuses. A later request for them is
    /// refused, like a request for acknowledged data (RFC 7143 §11.16: SNACK
    /// Reject).
    pub(crate) fn trim_retained(&mut self) {
        let most = self.config.max_retained_bytes;
        while self.kept_for_recovery_bytes() + self.live_retained_bytes() > most
            && !self.lost.is_empty()
        {
            self.give_up(0);
        }
        while self.live_retained_bytes() > most {
            let fullest = self.conns.iter_mut().max_by_key(|conn| conn.retained_bytes);
            let Some(conn) = fullest else { return };
            tracing::debug!(cid = conn.cid.0, "an initiator does not acknowledge what it reads");
            conn.forget_oldest();
        }
    }

    fn live_retained_bytes(&self) -> u64 {
        self.conns.iter().map(|conn| conn.retained_bytes).sum()
    }

    /// Bytes retained for connections that may be recovered.
    fn kept_for_recovery_bytes(&self) -> u64 {
        if self.lost.is_empty() {
            return 0;
        }
        let retained = self.lost.iter().flat_map(|lost| &lost.retained);
        let finished = self.tasks.values().filter_map(|task| task.finished.as_ref());
        retained.map(Retained::data_bytes).sum::<u64>()
            + finished.map(|completion| payload_bytes(&completion.data_in)).sum::<u64>()
    }

    /// Gives up failed connections whose recovery time has expired.
    pub(crate) fn expire_lost(&mut self) {
        let now = self.now;
        while let Some(at) = self.lost.iter().position(|lost| lost.deadline <= now) {
            self.give_up(at);
        }
        if self.conns.is_empty() && self.lost.is_empty() {
            self.end(crate::session::EndReason::ConnectionLost);
        }
    }

    /// Gives up the failed connections with this CID; false if there are none. There are
    /// several if one that was reinstated has failed again.
    pub(crate) fn forget_lost(&mut self, cid: Cid) -> bool {
        let before = self.lost.len();
        while let Some(at) = self.lost.iter().position(|lost| lost.cid == cid) {
            self.give_up(at);
        }
        self.lost.len() < before
    }

    fn give_up(&mut self, at: usize) {
        let lost = self.lost.remove(at);
        self.abort_where(|task| task.orphaned && task.conn == lost.handle);
    }
}
