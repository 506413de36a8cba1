//! Asynchronous messages of the target (RFC 7143 §11.9).

use super::Session;
use super::connection::ConnState;
use super::events::{CloseReason, ConnHandle, Event};
use crate::pdu::{AsyncEvent, AsyncMessage, Itt, Lun};
use bytes::{BufMut, Bytes, BytesMut};

impl Session {
    /// Asks the initiator to log out a connection, and to reconnect if it wants
    /// to; disconnects it after [`super::SessionConfig::logout_timeout`].
    pub fn request_logout(&mut self, handle: ConnHandle) {
        let seconds = u16::try_from(self.config.logout_timeout.as_secs()).unwrap_or(u16::MAX);
        let deadline = self.now.after(self.config.logout_timeout);
        if let Some(conn) = self.conn(handle) {
            conn.logout_deadline = Some(deadline);
            self.notify(
                handle,
                AsyncEvent::LOGOUT_REQUESTED,
                Lun(0),
                [0, 0, seconds],
                Bytes::new(),
            );
        }
    }

    /// Asks for logout on every connection.
    pub fn request_logout_all(&mut self) {
        let all: Vec<_> = self.conns.iter().map(|c| c.handle).collect();
        all.into_iter().for_each(|handle| self.request_logout(handle));
    }

    /// Announces that a connection is dropped, and drops it.
    pub fn drop_connection(&mut self, handle: ConnHandle) {
        let Some(cid) = self.conn(handle).map(|conn| conn.cid) else { return };
        let parameters = [cid.0, self.time2wait(), self.time2retain()];
        self.notify(handle, AsyncEvent::DROPS_CONNECTION, Lun(0), parameters, Bytes::new());
        self.events.push_back(Event::Close(handle, CloseReason::Dropped));
        if let Some(conn) = self.conn(handle) {
            conn.state = ConnState::Closing;
        }
    }

    /// Announces that all connections are dropped, and drops them.
    pub fn drop_all_connections(&mut self) {
        let parameters = [0, self.time2wait(), self.time2retain()];
        for handle in self.conns.iter().map(|c| c.handle).collect::<Vec<_>>() {
            self.notify(
                handle,
                AsyncEvent::DROPS_ALL_CONNECTIONS,
                Lun(0),
                parameters,
                Bytes::new(),
            );
            self.events.push_back(Event::Close(handle, CloseReason::Dropped));
            if let Some(conn) = self.conn(handle) {
                conn.state = ConnState::Closing;
            }
        }
    }

    /// Asks the initiator to renegotiate on a connection.
    pub fn request_negotiation(&mut self, handle: ConnHandle) {
        self.notify(handle, AsyncEvent::NEGOTIATION_REQUESTED, Lun(0), [0, 0, 3], Bytes::new());
    }

    /// Reports a SCSI event of a logical unit with its sense data.
    pub fn scsi_event(&mut self, lun: Lun, sense: &[u8]) {
        let Some(handle) = self.conns.first().map(|conn| conn.handle) else { return };
        let mut data = BytesMut::with_capacity(2 + sense.len());
        data.put_u16(sense.len() as u16);
        data.put_slice(sense);
        self.notify(handle, AsyncEvent::SCSI, lun, [0; 3], data.freeze());
    }

    fn notify(
        &mut self,
        handle: ConnHandle,
        event: AsyncEvent,
        lun: Lun,
        parameters: [u16; 3],
        data: Bytes,
    ) {
        if let Some(conn) = self.conn(handle) {
            let stat_sn = conn.take_stat_sn();
            let pdu = AsyncMessage { event, vendor_code: 0, lun, stat_sn, parameters }.encode(data);
            conn.send_status(stat_sn, Itt::NONE, pdu, None);
        }
    }

    pub(super) fn time2wait(&self) -> u16 {
        u16::try_from(self.params.time2wait_seconds).unwrap_or(u16::MAX)
    }

    pub(super) fn time2retain(&self) -> u16 {
        u16::try_from(self.params.time2retain_seconds).unwrap_or(u16::MAX)
    }
}
