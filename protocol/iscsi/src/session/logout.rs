//! Logout (RFC 7143 §11.14-15).

use super::Session;
use super::connection::{ConnState, Connection};
use super::events::{CloseReason, ConnHandle, EndReason, Event};
use crate::limits::MAX_CONNECTIONS_PER_SESSION;
use crate::pdu::{
    Frame, Itt, LogoutReason, LogoutRequest, LogoutResponse, LogoutResult, RejectReason,
};

/// A logout that waits for tasks to end.
#[derive(Debug)]
pub(crate) struct PendingLogout {
    conn: ConnHandle,
    itt: Itt,
    closes: Closes,
}

/// Connections that a logout closes: it waits for their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closes {
    /// All connections.
    Session,
    One(ConnHandle),
    /// A connection that is gone already; the result to answer with.
    Gone(LogoutResult),
}

impl PendingLogout {
    pub(super) fn is_from(&self, handle: ConnHandle) -> bool {
        self.conn == handle
    }
}

impl Session {
    /// Takes a Logout Request.
    ///
    /// # Errors
    /// The reason to reject it.
    pub(super) fn logout_request(
        &mut self,
        handle: ConnHandle,
        frame: &Frame,
    ) -> Result<(), RejectReason> {
        let pdu = LogoutRequest::parse(&frame.bhs);
        // A connection that is being logged out already counts as closed.
        let is_named =
            |conn: &&Connection| conn.cid == pdu.cid && conn.state != ConnState::LoggedOut;
        let named = self.conns.iter().find(is_named).map(|conn| conn.handle);
        match self.effect_of(pdu.reason) {
            LogoutReason::CLOSE_SESSION => {
                self.abort_where(|_| true);
                let closes = Closes::Session;
                self.logouts.push(PendingLogout { conn: handle, itt: pdu.itt, closes });
                self.conns.iter_mut().for_each(|conn| conn.state = ConnState::LoggedOut);
            }
            LogoutReason::CLOSE_CONNECTION => match named {
                Some(closes) => {
                    self.abort_where(|task| task.conn == closes);
                    self.mark(closes, ConnState::LoggedOut);
                    let closes = Closes::One(closes);
                    self.logouts.push(PendingLogout { conn: handle, itt: pdu.itt, closes });
                }
                None if self.forget_lost(pdu.cid) => {
                    self.log_out_gone(handle, pdu.itt, LogoutResult::CLOSED)
                }
                None => self.log_out_gone(handle, pdu.itt, LogoutResult::CID_NOT_FOUND),
            },
            LogoutReason::REMOVE_FOR_RECOVERY => {
                let result = match named {
                    _ if self.params.error_recovery_level < 2 => {
                        LogoutResult::RECOVERY_NOT_SUPPORTED
                    }
                    None if !self.remove_lost(pdu.cid) => {
                        self.log_out_gone(handle, pdu.itt, LogoutResult::CID_NOT_FOUND);
                        return Ok(());
                    }
                    _ => LogoutResult::CLOSED,
                };
                self.logout_response(handle, pdu.itt, result);
                if let (LogoutResult::CLOSED, Some(removed)) = (result, named) {
                    self.events.push_back(Event::Close(removed, CloseReason::Logout));
                    match removed == handle {
                        // The response must be sent first.
                        true => self.mark(removed, ConnState::Closing),
                        false => self.connection_failed(removed),
                    }
                }
            }
            _ => return Err(RejectReason::INVALID_FIELD),
        }
        Ok(())
    }

    /// A removal for recovery closes the connection if its tasks are not kept: the initiator
    /// writes again after the answer, as after any other logout.
    fn effect_of(&self, reason: LogoutReason) -> LogoutReason {
        let recovers = self.params.error_recovery_level >= 2;
        match reason {
            LogoutReason::REMOVE_FOR_RECOVERY if recovers && !self.keeps_tasks() => {
                LogoutReason::CLOSE_CONNECTION
            }
            reason => reason,
        }
    }

    /// Answers the logout of a connection that is gone once the tasks that were aborted
    /// with such connections have ended: after the answer the initiator writes again what
    /// they wrote, and they must not write over it.
    fn log_out_gone(&mut self, handle: ConnHandle, itt: Itt, result: LogoutResult) {
        if self.logouts.len() >= MAX_CONNECTIONS_PER_SESSION {
            // It asks again and again.
            return self.logout_response(handle, itt, LogoutResult::CLEANUP_FAILED);
        }
        self.logouts.push(PendingLogout { conn: handle, itt, closes: Closes::Gone(result) });
    }

    fn mark(&mut self, handle: ConnHandle, state: ConnState) {
        if let Some(conn) = self.conn(handle) {
            conn.state = state;
        }
    }

    fn logout_response(&mut self, handle: ConnHandle, itt: Itt, result: LogoutResult) {
        let (time2wait_seconds, time2retain_seconds) = (self.time2wait(), self.time2retain());
        if let Some(conn) = self.conn(handle) {
            let stat_sn = conn.take_stat_sn();
            let pdu =
                LogoutResponse { result, itt, stat_sn, time2wait_seconds, time2retain_seconds };
            conn.send_status(stat_sn, itt, pdu.encode(), None);
        }
    }

    /// Answers the logouts whose tasks have ended.
    pub(super) fn progress_logouts(&mut self) {
        let waits = |session: &Self, logout: &PendingLogout| {
            session.tasks.values().any(|task| match logout.closes {
                Closes::Session => true,
                Closes::One(conn) => task.conn == conn,
                Closes::Gone(_) => session.is_left_over(task),
            })
        };
        while let Some(at) = self.logouts.iter().position(|logout| !waits(self, logout)) {
            let logout = self.logouts.remove(at);
            let result = match logout.closes {
                Closes::Session | Closes::One(_) => LogoutResult::CLOSED,
                Closes::Gone(result) => result,
            };
            self.logout_response(logout.conn, logout.itt, result);
            let closed = |handle: ConnHandle| match logout.closes {
                Closes::Session => true,
                Closes::One(conn) => conn == handle,
                Closes::Gone(_) => false,
            };
            let handles: Vec<_> =
                self.conns.iter().map(|c| c.handle).filter(|h| closed(*h)).collect();
            for handle in &handles {
                self.events.push_back(Event::Close(*handle, CloseReason::Logout));
            }
            let remaining = self.conns.len() - handles.len();
            if logout.closes == Closes::Session || (remaining == 0 && self.lost.is_empty()) {
                self.end(EndReason::Logout);
                return;
            }
        }
    }
}
