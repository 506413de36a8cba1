//! NOP-Out, NOP-In and liveness (RFC 7143 §11.18-19, §4.8.2).

use super::Session;
use super::connection::ConnState;
use super::dispatch::without_data;
use super::events::{CloseReason, ConnHandle, Event};
use crate::limits::MAX_PING_BYTES;
use crate::pdu::{Frame, Itt, Lun, NopIn, NopOut, RejectReason, Ttt};
use crate::time::Timestamp;
use bytes::Bytes;
use std::time::Duration;

impl Session {
    /// Takes a NOP-Out.
    ///
    /// # Errors
    /// The reason to reject it.
    pub(super) fn nop_out(
        &mut self,
        handle: ConnHandle,
        frame: &Frame,
    ) -> Result<(), RejectReason> {
        let pdu = NopOut::parse(&frame.bhs);
        // Without a task tag, it answers a ping of the target or only
        // acknowledges.
        if pdu.itt == Itt::NONE {
            return Ok(());
        }
        if frame.lacks_data() {
            return Err(without_data(frame));
        }
        // RFC 7143 §11.19: all of the data that the initiator receives in one segment.
        let echoed = frame.data_bytes().min(self.control_data_bytes(handle));
        let Some(conn) = self.conn(handle) else { return Ok(()) };
        if echoed > MAX_PING_BYTES && !conn.has_room_for_answer(echoed) {
            return Err(without_data(frame));
        }
        // A copy: a part of it would keep the whole receive buffer until the peer reads.
        let ping = Bytes::copy_from_slice(&frame.contiguous_data()[..echoed]);
        let stat_sn = conn.take_stat_sn();
        let answer = NopIn { lun: Lun(0), itt: pdu.itt, ttt: Ttt::NONE, stat_sn }.encode(ping);
        conn.send_status(stat_sn, pdu.itt, answer, None);
        self.trim_retained();
        Ok(())
    }

    /// Sends a ping, unless one is outstanding. The ping also requests the
    /// acknowledgement of statuses.
    pub(crate) fn ping(&mut self, handle: ConnHandle) {
        let (ttt, now) = (self.fresh_ttt(), self.now);
        let Some(conn) = self.conn(handle) else { return };
        if conn.ping.is_none() && conn.state == ConnState::Open {
            conn.ping = Some((ttt, now));
            let stat_sn = conn.stat_sn;
            conn.send(NopIn { lun: Lun(0), itt: Itt::NONE, ttt, stat_sn }.encode(Bytes::new()));
        }
    }

    /// Requests acknowledgements: unacknowledged statuses retained for recovery
    /// would close the command window.
    pub(super) fn solicit_acknowledgements(&mut self) {
        if self.params.error_recovery_level == 0 {
            return;
        }
        let half = (self.window.depth() as usize / 2).max(1);
        let waiting: Vec<_> =
            self.conns.iter().filter(|c| c.retained.len() >= half).map(|c| c.handle).collect();
        waiting.into_iter().for_each(|handle| self.ping(handle));
    }

    /// Latest time for the next call of [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.ended {
            return None;
        }
        let pings = self.conns.iter().filter_map(|conn| match conn.ping {
            Some((_, sent)) => Some(sent.after(self.config.ping_timeout)),
            None if self.config.ping_after.is_zero() => None,
            None => Some(conn.last_heard.after(self.config.ping_after)),
        });
        let logouts = self.conns.iter().filter_map(|conn| conn.logout_deadline);
        let lost = self.lost.iter().map(|lost| lost.deadline);
        let ends = pings.chain(logouts).chain(lost).chain(self.function_deadlines());
        ends.chain(self.reception_deadlines()).chain(self.expiry).min()
    }

    /// Goes on after a time, `held`, in which nothing was read and timeouts were not
    /// handled: every connection counts as heard now, and no initiator is later than
    /// before with what is waited for.
    pub fn resume_after_hold(&mut self, held: Duration, now: Timestamp) {
        self.now = self.now.max(now);
        for conn in &mut self.conns {
            // The answer to a ping was not read, either.
            (conn.last_heard, conn.ping) = (self.now, None);
            conn.logout_deadline = conn.logout_deadline.map(|at| at.after(held));
        }
        for lost in &mut self.lost {
            lost.deadline = lost.deadline.after(held);
        }
        for task in self.tasks.values_mut() {
            task.quiet_since = None;
        }
        self.functions.iter_mut().for_each(|function| function.resume_after_hold(held));
        self.expiry = self.expiry.map(|at| at.after(held));
    }

    /// Handles all timeouts up to `now`.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        let now = self.now;
        if self.ended {
            return;
        }
        if self.expiry.is_some_and(|at| at <= now) {
            self.terminate(CloseReason::Dropped);
            return;
        }
        let (config, mut quiet, mut dead) = (self.config.clone(), Vec::new(), Vec::new());
        for conn in &self.conns {
            match conn.ping {
                _ if conn.logout_deadline.is_some_and(|at| at <= now) => {
                    dead.push((conn.handle, CloseReason::Dropped))
                }
                Some((_, sent)) if sent.after(config.ping_timeout) <= now => {
                    dead.push((conn.handle, CloseReason::Silent));
                }
                None if !config.ping_after.is_zero()
                    && conn.last_heard.after(config.ping_after) <= now =>
                {
                    quiet.push(conn.handle);
                }
                _ => {}
            }
        }
        for handle in quiet {
            self.ping(handle);
            // A connection that is closing is not pinged: check again later.
            if let Some(conn) = self.conn(handle)
                && conn.ping.is_none()
            {
                conn.last_heard = now;
            }
        }
        for (handle, reason) in dead {
            self.events.push_back(Event::Close(handle, reason));
            self.connection_failed(handle);
        }
        self.expire_lost();
        self.expire_functions();
        self.expire_receptions();
        self.progress();
    }
}
