//! Attaching and losing connections, ending tasks and the session.

use super::Session;
use super::connection::{ConnState, Connection};
use super::events::{CloseReason, ConnHandle, EndReason, Event, TaskTag};
use super::task::{Failure, Phase, Task};
use crate::limits::MAX_CONNECTIONS_PER_SESSION;
use crate::login::{LoggedIn, Operational};
use crate::pdu::{Itt, Lun, Outgoing};
use crate::time::Timestamp;

/// The session cannot take the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// The session has the most connections it may have.
    #[error("too many connections")]
    TooMany,
    /// The connection uses another transport than the session's connections.
    #[error("the transport differs from that of the session")]
    OtherTransport,
}

impl Session {
    /// Adds a connection that has logged in. A connection with the same CID is
    /// replaced (RFC 7143 §6.3.4). Look at [`Self::has_leftovers`] before the last login
    /// response.
    ///
    /// # Errors
    /// See [`AttachError`]: close the connection.
    pub fn attach(&mut self, login: &LoggedIn, now: Timestamp) -> Result<ConnHandle, AttachError> {
        self.now = self.now.max(now);
        if self.ended {
            return Err(AttachError::Ended);
        }
        // RFC 7145 §5.1: RDMAExtensions is the same on all connections.
        if login.transport != self.transport {
            return Err(AttachError::OtherTransport);
        }
        if let Some(old) =
            self.conns.iter().find(|conn| conn.cid == login.cid).map(|conn| conn.handle)
        {
            self.events.push_back(Event::Close(old, CloseReason::Reinstated));
            self.lose_connection(old);
        }
        if self.conns.len() >= MAX_CONNECTIONS_PER_SESSION {
            return Err(AttachError::TooMany);
        }
        let handle = ConnHandle(self.next_handle);
        self.next_handle += 1;
        // Session-wide values come from the leading connection.
        let params = Operational {
            header_digest: login.params.header_digest,
            data_digest: login.params.data_digest,
            initiator_recv_bytes: login.params.initiator_recv_bytes,
            target_recv_bytes: login.params.target_recv_bytes,
            ..self.params.clone()
        };
        self.conns.push(Connection::new(handle, login.cid, params, login.stat_sn, self.now));
        self.progress();
        Ok(handle)
    }

    /// Sets the session's window in a login response of a joining connection.
    pub fn stamp(&self, response: &mut Outgoing) {
        response.bhs.put_u32(28, self.window.expected().0);
        response.bhs.put_u32(32, self.window.max().0);
    }

    /// Handles the loss of a connection's transport, for any reason.
    pub fn handle_closed(&mut self, handle: ConnHandle, now: Timestamp) {
        self.now = self.now.max(now);
        if !self.ended {
            self.connection_failed(handle);
            self.progress();
        }
    }

    /// Ends the session, because a new one replaces it or the target is
    /// removed: tasks are aborted, connections closed. With
    /// [`CloseReason::Dropped`] the initiator is told (RFC 7143 §11.9.1).
    pub fn terminate(&mut self, reason: CloseReason) {
        if self.ended {
            return;
        }
        self.abort_where(|_| true);
        if reason == CloseReason::Dropped {
            self.drop_all_connections();
        } else {
            for conn in &self.conns {
                self.events.push_back(Event::Close(conn.handle, reason));
            }
        }
        self.end(EndReason::Terminated);
    }

    pub(crate) fn connection_failed(&mut self, handle: ConnHandle) {
        self.lose_connection(handle);
        if self.conns.is_empty() && self.lost.is_empty() && !self.ended {
            self.end(EndReason::ConnectionLost);
        }
    }

    /// Removes a connection. Its tasks wait for recovery at error recovery
    /// level 2, and end otherwise (RFC 7143 §7.2) or if they are not to be kept: the
    /// initiator then counts them as ended, and writes again (§13.16).
    fn lose_connection(&mut self, handle: ConnHandle) {
        let Some(at) = self.conns.iter().position(|conn| conn.handle == handle) else { return };
        let conn = self.conns.remove(at);
        self.window.drop_connection(handle);
        self.forget_functions(handle);
        // A logout whose response cannot be sent is complete.
        self.logouts.retain(|logout| !logout.is_from(handle));
        if self.keeps_tasks() && !conn.is_logged_out() && !self.is_discovery() {
            self.keep_for_recovery(conn);
        } else {
            self.abort_where(|task| task.conn == handle);
        }
        self.drain_early();
    }

    /// True if commands run that were aborted, and their connection is gone. What they
    /// write may land behind what the initiator writes next: a connection that logs in
    /// has its last response when they have ended.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.tasks.values().any(|task| self.is_left_over(task))
    }

    pub(super) fn is_left_over(&self, task: &Task) -> bool {
        task.phase == Phase::Aborting && !self.conns.iter().any(|conn| conn.handle == task.conn)
    }

    /// Aborts tasks without an answer to the initiator.
    pub(crate) fn abort_where(&mut self, affected: impl Fn(&Task) -> bool) {
        let tags: Vec<_> =
            self.tasks.values().filter(|task| affected(task)).map(|task| task.tag).collect();
        for tag in tags {
            self.abort_task(tag.itt, true);
        }
    }

    /// Aborts one task. Returns true if it was delivered to the owner, which
    /// must end it.
    pub(crate) fn abort_task(&mut self, itt: Itt, tell: bool) -> bool {
        let Some(task) = self.tasks.get_mut(&itt) else { return false };
        match task.phase {
            // Its result exists already, and waits for a connection.
            Phase::Delivered if task.finished.is_some() => {
                self.remove_task(itt);
                false
            }
            Phase::Delivered => {
                task.phase = Phase::Aborting;
                task.orphaned = false;
                self.aborts = self.aborts.wrapping_add(1);
                let tag = task.tag;
                if tell {
                    self.events.push_back(Event::Abort(tag));
                }
                true
            }
            Phase::Aborting => {
                task.answers_late = false;
                true
            }
            Phase::Collecting => {
                self.remove_task(itt);
                false
            }
        }
    }

    /// True if the result of a delivered command is no longer wanted: the
    /// command was aborted, or the session has ended. A command that has not
    /// taken effect yet must then not take effect.
    #[must_use]
    pub fn is_aborted(&self, tag: TaskTag) -> bool {
        let task = self.tasks.get(&tag.itt).filter(|task| task.tag == tag);
        task.is_none_or(|task| task.phase != Phase::Delivered)
    }

    /// Number of delivered commands that were aborted, modulo 2^32: as long as it stays the
    /// same, so does [`Self::is_aborted`] of those that were not completed.
    #[must_use]
    pub fn aborts(&self) -> u32 {
        self.aborts
    }

    /// Ends the tasks of a logical unit, or all tasks, because of another
    /// initiator's task management function. With a status (TASK ABORTED, if
    /// the control mode page's TAS bit is set) undelivered tasks are answered
    /// with it, and the owner completes delivered ones with it; without, all
    /// end silently.
    pub fn abort_tasks(&mut self, lun: Option<Lun>, status: Option<u8>) {
        let matches = |task: &Task| lun.is_none_or(|lun| task.command.lun == lun);
        let Some(status) = status else {
            self.abort_where(matches);
            self.progress();
            return;
        };
        let waiting = |task: &&Task| matches(task) && task.phase == Phase::Collecting;
        let tags: Vec<_> = self.tasks.values().filter(waiting).map(|task| task.tag).collect();
        for tag in tags {
            if let Some(task) = self.tasks.get_mut(&tag.itt) {
                task.fail(Failure::Status(status));
            }
            self.pump(tag.itt);
        }
        self.progress();
    }

    pub(crate) fn end(&mut self, reason: EndReason) {
        if !std::mem::replace(&mut self.ended, true) {
            // Nothing of the session continues, and no connection is left for a
            // message.
            self.abort_where(|_| true);
            self.lost.clear();
            self.functions.clear();
            self.events.push_back(Event::Ended(reason));
        }
    }

    /// True if [`Event::Ended`] was issued.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }
}

impl Connection {
    fn is_logged_out(&self) -> bool {
        self.state == ConnState::LoggedOut
    }
}
