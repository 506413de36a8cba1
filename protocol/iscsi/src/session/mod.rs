//! A session in full feature phase: all its connections and tasks.
//!
//! Call [`Session::handle_pdu`], [`Session::handle_closed`] and
//! [`Session::handle_timeout`]; answer [`Event`]s; send the PDUs from
//! [`Session::poll_transmit`] for each connection.

mod command;
mod complete;
mod connection;
mod data_out;
mod dispatch;
mod events;
mod gather;
mod lifecycle;
mod logout;
mod nop;
mod notify;
mod read;
mod reception;
mod solicit;
mod solicited;
mod task;
mod text_exchange;
mod window;

pub(crate) use connection::{Connection, Retained, payload_bytes};
pub use events::{
    CloseReason, Command, Completion, ConnHandle, ConnectionInfo, EndReason, Event, FunctionTag,
    SendTargets, SenseFormat, SessionConfig, TaskTag, TextTag,
};
pub(crate) use task::{Phase, Sequence, Task};

pub use lifecycle::AttachError;
pub use solicited::Solicited;

use crate::directory::SessionKey;
use crate::limits::{DISCOVERY_SESSION_TIMEOUT, MAX_COMMAND_WINDOW};
use crate::login::{LoggedIn, Operational, Transport};
use crate::names::Tsih;
use crate::pdu::{Itt, Outgoing, TaskAttribute, Ttt};
use crate::recovery::Lost;
use crate::serial::Sn;
use crate::time::Timestamp;
use crate::tmf::Function;
use logout::PendingLogout;
use std::collections::{BTreeMap, VecDeque};
use window::Window;

/// A session.
#[derive(Debug)]
pub struct Session {
    pub(crate) key: SessionKey,
    pub(crate) tsih: Tsih,
    pub(crate) params: Operational,
    pub(crate) transport: Transport,
    pub(crate) config: SessionConfig,
    pub(crate) sense_format: Option<Box<dyn SenseFormat>>,
    pub(crate) window: Window,
    pub(crate) conns: Vec<Connection>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) tasks: BTreeMap<Itt, Task>,
    /// Tasks that occupy a place in the command window.
    pub(crate) counted_tasks: u32,
    pub(crate) immediate_tasks: usize,
    /// Unfinished tasks with the ORDERED attribute.
    pub(crate) ordered_tasks: usize,
    /// The initiator uses ORDERED tasks.
    pub(crate) has_seen_ordered: bool,
    /// A task ended that others may have waited for.
    pub(crate) unblocked: bool,
    /// Delivered commands that were aborted, modulo 2^32.
    pub(crate) aborts: u32,
    /// Memory reserved for the data of writes that the owner has not begun, in bytes.
    pub(crate) reserved_bytes: u64,
    /// Memory of the data of writes that were not delivered yet, in bytes.
    pub(crate) gathering_bytes: u64,
    /// Memory that writes may reserve beyond that, in bytes.
    pub(crate) memory_room_bytes: u64,
    /// Writes that wait for memory, in order of arrival.
    pub(crate) starved: VecDeque<Itt>,
    pub(crate) functions: Vec<Function>,
    pub(crate) logouts: Vec<PendingLogout>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) next_handle: u32,
    pub(crate) next_serial: u32,
    pub(crate) next_ttt: u32,
    pub(crate) ended: bool,
    /// Time at which a discovery session ends.
    pub(crate) expiry: Option<Timestamp>,
    pub(crate) now: Timestamp,
}

impl Session {
    /// The session that a leading login created. Attach its connection next.
    #[must_use]
    pub fn new(login: &LoggedIn, tsih: Tsih, config: SessionConfig, now: Timestamp) -> Self {
        let params = login.params.clone();
        Self {
            key: login.key.clone(),
            tsih,
            params,
            transport: login.transport,
            config,
            sense_format: None,
            window: Window::new(login.cmd_sn, login.command_window.clamp(1, MAX_COMMAND_WINDOW)),
            conns: Vec::new(),
            lost: Vec::new(),
            tasks: BTreeMap::new(),
            counted_tasks: 0,
            immediate_tasks: 0,
            ordered_tasks: 0,
            has_seen_ordered: false,
            unblocked: false,
            aborts: 0,
            reserved_bytes: 0,
            gathering_bytes: 0,
            memory_room_bytes: u64::MAX,
            starved: VecDeque::new(),
            functions: Vec::new(),
            logouts: Vec::new(),
            events: VecDeque::new(),
            next_handle: 0,
            next_serial: 0,
            next_ttt: 0,
            ended: false,
            expiry: login.key.target.is_none().then(|| now.after(DISCOVERY_SESSION_TIMEOUT)),
            now,
        }
    }

    /// Identification of the session.
    #[must_use]
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Its handle.
    #[must_use]
    pub fn tsih(&self) -> Tsih {
        self.tsih
    }

    /// Parameters negotiated by the leading connection.
    #[must_use]
    pub fn params(&self) -> &Operational {
        &self.params
    }

    /// True if this is a discovery session.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.key.target.is_none()
    }

    /// Number of unfinished tasks.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// ExpCmdSN and MaxCmdSN, for the login of a joining connection.
    #[must_use]
    pub fn window(&self) -> (Sn, Sn) {
        (self.window.expected(), self.window.max())
    }

    /// The part of the command window that each connection has if all have the same: a number
    /// of commands.
    #[must_use]
    pub fn window_per_connection(&self) -> usize {
        (self.window.depth() as usize / self.conns.len().max(1)).max(1)
    }

    /// The open connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionInfo> {
        self.conns.iter().map(|conn| ConnectionInfo {
            handle: conn.handle,
            cid: conn.cid,
            params: conn.params.clone(),
            unacknowledged: conn.unacknowledged(),
        })
    }

    /// True if Data-In for this connection must be in memory: it is written by
    /// RDMA, has a digest, may be requested again, or leaves in many small PDUs;
    /// or an ORDERED write may follow a read and must not change its data.
    #[must_use]
    pub fn needs_memory(&self, conn: ConnHandle) -> bool {
        self.transport == Transport::Iser
            || self.params.error_recovery_level > 0
            || self.has_seen_ordered
            || self.conns.iter().any(|c| c.handle == conn && c.sends_bytes_only())
    }

    /// True if [`Self::poll_transmit`] has a PDU for a connection.
    #[must_use]
    pub fn has_transmit(&self, conn: ConnHandle) -> bool {
        self.conns.iter().any(|c| c.handle == conn && !c.is_idle())
    }

    /// Bytes queued for a connection.
    #[must_use]
    pub fn queued_bytes(&self, conn: ConnHandle) -> usize {
        self.conns.iter().find(|c| c.handle == conn).map_or(0, Connection::queued_bytes)
    }

    /// Memory that the data of undelivered writes occupies, or may occupy at
    /// any moment because it was solicited; in bytes.
    #[must_use]
    pub fn gathering_bytes(&self) -> u64 {
        self.gathering_bytes
    }

    /// Sets the memory that may be solicited beyond [`Self::gathering_bytes`]. The oldest
    /// write may always have its memory; others wait for the end of a write that has it.
    /// Without room the command window does not move while commands are unfinished.
    pub fn set_memory_room(&mut self, bytes: u64) {
        self.memory_room_bytes = bytes;
    }

    /// Sets what tells the format of sense data; without it, all of it is in fixed format.
    pub fn set_sense_format(&mut self, format: Box<dyn SenseFormat>) {
        self.sense_format = Some(format);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next PDU to send on a connection.
    pub fn poll_transmit(&mut self, conn: ConnHandle) -> Option<Outgoing> {
        let mut pdu = self.conn(conn)?.pop()?;
        // Commands carry unsolicited data. Without memory the window does not
        // move until the present commands have ended.
        let is_short = self.memory_room_bytes == 0 && self.counted_tasks > 0;
        let occupied = match is_short {
            true => self.window.depth(),
            false => self.counted_tasks.saturating_add(self.places_of_retained()),
        };
        let max = self.window.advertise(occupied);
        pdu.bhs.put_u32(28, self.window.expected().0);
        pdu.bhs.put_u32(32, max.0);
        Some(pdu)
    }

    /// Places of the command window that unacknowledged statuses take: never more than a
    /// half. Were the window closed by them alone, the initiator would have nothing to send
    /// that could acknowledge them.
    fn places_of_retained(&self) -> u32 {
        if self.params.error_recovery_level == 0 {
            return 0;
        }
        let retained: u32 = self.conns.iter().map(|conn| conn.retained.len() as u32).sum();
        retained.min(self.window.depth() / 2)
    }

    /// Longest data segment of a PDU other than Data-In on a connection.
    pub(crate) fn control_data_bytes(&self, conn: ConnHandle) -> usize {
        let declared = self.conns.iter().find(|c| c.handle == conn);
        let declared = declared.map_or(0, |conn| conn.params.initiator_recv_bytes);
        self.transport.control_data_bytes(declared, self.is_discovery()) as usize
    }

    pub(crate) fn conn(&mut self, handle: ConnHandle) -> Option<&mut Connection> {
        self.conns.iter_mut().find(|conn| conn.handle == handle)
    }

    pub(crate) fn fresh_serial(&mut self) -> u32 {
        self.next_serial = self.next_serial.wrapping_add(1);
        self.next_serial
    }

    pub(crate) fn fresh_ttt(&mut self) -> Ttt {
        self.next_ttt = self.next_ttt.wrapping_add(1);
        if Ttt(self.next_ttt) == Ttt::NONE {
            self.next_ttt = 0;
        }
        Ttt(self.next_ttt)
    }

    /// Removes a task from the table.
    pub(crate) fn remove_task(&mut self, itt: Itt) -> Option<Task> {
        let task = self.tasks.remove(&itt)?;
        self.reserved_bytes -= task.reserved_bytes;
        self.gathering_bytes -= task.counted_bytes;
        self.unblocked |= self.ordered_tasks > 0;
        self.ordered_tasks -= usize::from(task.command.attribute == TaskAttribute::Ordered);
        if task.command.immediate {
            self.immediate_tasks -= 1;
        } else if task.is_counted() {
            self.counted_tasks -= 1;
        }
        Some(task)
    }
}
