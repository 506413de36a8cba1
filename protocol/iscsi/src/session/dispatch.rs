//! Handling of a received PDU: acknowledgement, numbering, and dispatch to its
//! handler.

use super::Session;
use super::connection::ConnState;
use super::events::{CloseReason, ConnHandle, Event};
use super::window::{Delivery, OutOfOrder};
use crate::limits::MAX_EARLY_BYTES;
use crate::pdu::{Frame, Itt, Opcode, Reject, RejectReason, ScsiCommand, TaskRequest, TextRequest};
use crate::time::Timestamp;
use bytes::Bytes;

impl Session {
    /// Handles a PDU received on a connection.
    pub fn handle_pdu(&mut self, handle: ConnHandle, frame: Frame, now: Timestamp) {
        self.now = self.now.max(now);
        let now = self.now;
        if self.ended {
            return;
        }
        let Some(conn) = self.conn(handle) else { return };
        conn.last_heard = now;
        conn.ping = None;
        let opcode = frame.bhs.opcode();
        conn.acknowledge(frame.bhs.exp_sn());
        if conn.state == ConnState::Open && self.is_within_bounds(handle) {
            self.dispatch(handle, opcode, frame);
        }
        self.progress();
        self.solicit_acknowledgements();
    }

    fn dispatch(&mut self, handle: ConnHandle, opcode: Opcode, frame: Frame) {
        // RFC 7143 §4.3: a discovery session carries text and logout only.
        let discovery_only = [Opcode::TEXT_REQUEST, Opcode::LOGOUT_REQUEST, Opcode::NOP_OUT];
        if self.is_discovery() && !discovery_only.contains(&opcode) {
            self.reject(handle, &frame, RejectReason::PROTOCOL_ERROR);
            return;
        }
        match opcode {
            Opcode::DATA_OUT => self.data_out(handle, frame),
            Opcode::SNACK => self.snack(handle, &frame),
            Opcode::SCSI_COMMAND
            | Opcode::TASK_REQUEST
            | Opcode::TEXT_REQUEST
            | Opcode::LOGOUT_REQUEST
            | Opcode::NOP_OUT => self.numbered(handle, frame),
            Opcode::LOGIN_REQUEST => {
                // RFC 7143 §6.3: no login request after the login phase.
                self.reject(handle, &frame, RejectReason::PROTOCOL_ERROR);
                self.cut_off(handle, CloseReason::Protocol);
            }
            _ => self.reject(handle, &frame, RejectReason::COMMAND_NOT_SUPPORTED),
        }
    }

    /// PDUs that carry a CmdSN.
    fn numbered(&mut self, handle: ConnHandle, frame: Frame) {
        let opcode = frame.bhs.opcode();
        if !frame.data_digest_ok && opcode != Opcode::SCSI_COMMAND {
            // RFC 7143 §7.8: the PDU is discarded, so its CmdSN stays open.
            self.reject(handle, &frame, RejectReason::DATA_DIGEST_ERROR);
            return;
        }
        if frame.bhs.is_immediate() {
            self.execute(handle, frame);
            return;
        }
        if opcode == Opcode::NOP_OUT && frame.bhs.itt() == Itt::NONE {
            // RFC 7143 §11.18.1: such a NOP-Out must be immediate.
            self.reject(handle, &frame, RejectReason::PROTOCOL_ERROR);
            return;
        }
        let sn = frame.bhs.sn();
        let delivery = self.window.delivery(sn);
        if needs_data(opcode) && !self.has_data(&frame, delivery) {
            // Not received: see `execute_next`.
            self.reject(handle, &frame, without_data(&frame));
            return;
        }
        match delivery {
            // RFC 7143 §4.2.2.1: silently ignored.
            Delivery::Ignore => tracing::debug!(%sn, "CmdSN outside the window or repeated"),
            Delivery::Now => {
                self.window.advance();
                self.execute_next(handle, frame);
                self.drain_early();
            }
            Delivery::Later if opcode == Opcode::SCSI_COMMAND => {
                if let Some(task) = self.scsi_command(handle, frame, false) {
                    self.window.keep(sn, OutOfOrder::Command(task));
                }
            }
            Delivery::Later => self.keep_early(handle, frame),
        }
    }

    /// True unless the data of a PDU was thrown away, or finds no room until the PDU's turn.
    fn has_data(&self, frame: &Frame, delivery: Delivery) -> bool {
        let has_room = || self.window.early_bytes() + frame.data_bytes() <= MAX_EARLY_BYTES;
        match delivery {
            // Not looked at.
            Delivery::Ignore => true,
            Delivery::Now => !frame.lacks_data(),
            Delivery::Later => !frame.lacks_data() && has_room(),
        }
    }

    /// Keeps a PDU that is no SCSI command until its CmdSN is the next one. Its data is
    /// copied, since a part of a receive buffer would keep the whole one.
    fn keep_early(&mut self, handle: ConnHandle, mut frame: Frame) {
        let is_kept = needs_data(frame.bhs.opcode()) && frame.data_bytes() > 0;
        frame.data = match is_kept {
            true => vec![Bytes::copy_from_slice(&frame.contiguous_data())],
            false => Vec::new(),
        };
        self.window.keep(frame.bhs.sn(), OutOfOrder::Pdu(handle, Box::new(frame)));
    }

    /// Executes the PDUs whose CmdSN has become the next one.
    pub(crate) fn drain_early(&mut self) {
        while !self.ended
            && let Some(pdu) = self.window.pop_ready()
        {
            match pdu {
                OutOfOrder::Command(tag) => {
                    if let Some(task) = self.tasks.get_mut(&tag.itt).filter(|task| task.tag == tag)
                        && !std::mem::replace(&mut task.ordered, true)
                    {
                        self.counted_tasks += 1;
                        self.pump(tag.itt);
                    }
                }
                OutOfOrder::Pdu(handle, frame) => self.execute_next(handle, *frame),
                OutOfOrder::Void => {}
            }
        }
    }

    /// Executes the PDU whose CmdSN has just been counted as received. RFC 7143 §7.3: a
    /// rejected PDU is not received, so its CmdSN stays open until the initiator sends a PDU
    /// with that number again, or aborts its task.
    fn execute_next(&mut self, handle: ConnHandle, frame: Frame) {
        if !self.execute(handle, frame) {
            self.window.reopen();
        }
    }

    /// Executes a PDU. Returns false if it was rejected.
    fn execute(&mut self, handle: ConnHandle, frame: Frame) -> bool {
        let taken = match frame.bhs.opcode() {
            Opcode::SCSI_COMMAND => return self.scsi_command(handle, frame, true).is_some(),
            Opcode::TASK_REQUEST => self.task_request(handle, TaskRequest::parse(&frame.bhs)),
            Opcode::TEXT_REQUEST => {
                self.text_request(handle, TextRequest::parse(&frame.bhs), &frame)
            }
            Opcode::LOGOUT_REQUEST => self.logout_request(handle, &frame),
            _ => self.nop_out(handle, &frame),
        };
        if let Err(reason) = taken {
            self.reject(handle, &frame, reason);
        }
        taken.is_ok()
    }

    /// Answers a PDU with Reject.
    pub(crate) fn reject(&mut self, handle: ConnHandle, frame: &Frame, reason: RejectReason) {
        self.reject_data(handle, frame, reason, 0);
    }

    /// Answers a Data SNACK with Reject and the next DataSN or R2TSN.
    pub(crate) fn reject_data(
        &mut self,
        handle: ConnHandle,
        frame: &Frame,
        reason: RejectReason,
        data_sn: u32,
    ) {
        let opcode = frame.bhs.opcode().0;
        tracing::debug!(opcode, reason = reason.0, "iSCSI PDU rejected");
        if let Some(conn) = self.conn(handle) {
            let stat_sn = conn.take_stat_sn();
            let pdu = Reject { reason, stat_sn, data_sn }.encode(&frame.bhs);
            conn.send_status(stat_sn, Itt::NONE, pdu, None);
        }
    }

    /// Cuts off a peer that sends without reading or acknowledging.
    fn is_within_bounds(&mut self, handle: ConnHandle) -> bool {
        if self.conn(handle).is_none_or(|conn| conn.is_overrun()) {
            self.cut_off(handle, CloseReason::Overrun);
            return false;
        }
        true
    }

    /// Closes a connection at once and treats it as failed.
    pub(crate) fn cut_off(&mut self, handle: ConnHandle, reason: CloseReason) {
        self.events.push_back(Event::Close(handle, reason));
        self.connection_failed(handle);
    }

    /// Advances everything that may have been waiting.
    pub(crate) fn progress(&mut self) {
        self.pump_unblocked();
        self.feed_starved();
        self.progress_functions();
        self.progress_logouts();
    }

    /// The parsed command of a frame; sends a Reject if it is malformed.
    pub(super) fn parse_command(
        &mut self,
        handle: ConnHandle,
        frame: &Frame,
    ) -> Option<ScsiCommand> {
        match ScsiCommand::parse(frame) {
            Ok(command) if command.itt != Itt::NONE => Some(command),
            _ => {
                self.reject(handle, frame, RejectReason::INVALID_FIELD);
                None
            }
        }
    }
}

/// The reason to reject a PDU for whose data there was no memory: the initiator may send it
/// again. RFC 7143 §4.2.2.1 has immediate PDUs rejected for want of resources, and §11.17.1
/// others.
pub(super) fn without_data(frame: &Frame) -> RejectReason {
    match frame.bhs.is_immediate() {
        true => RejectReason::TOO_MANY_IMMEDIATE,
        false => RejectReason::LONG_OPERATION,
    }
}

/// True for PDUs that are useless without their data: that of functions and logouts, which
/// have none, is ignored.
fn needs_data(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::NOP_OUT | Opcode::TEXT_REQUEST)
}
