//! An initiator with error recovery: at level 0 by a new session, at level 1 by
//! SNACK, retry and recovery R2Ts, at level 2 by moving tasks to another
//! connection (RFC 7143 §7). Recovery starts after a short silence, so that
//! each step can be observed.

mod link;
mod session;

use crate::{Done, LoginScript};
use bytes::Bytes;
use link::Link;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use zgate_iscsi::pdu::{Frame, Lun};

pub use session::{RecoveringSession, Rejoin, Repairs};

/// Silence after which recovery starts.
const PATIENCE: Duration = Duration::from_millis(150);
/// Timeout of a command, including recovery.
const LONGEST: Duration = Duration::from_secs(40);

#[derive(Debug)]
enum Arrival {
    Pdu(usize, Box<Frame>),
    Lost(usize),
}

/// A session with error recovery, over TCP.
#[derive(Debug)]
pub struct Recovering {
    address: SocketAddr,
    session: RecoveringSession,
    links: Vec<Link>,
    arrivals: Receiver<Arrival>,
    sender: Sender<Arrival>,
}

impl Deref for Recovering {
    type Target = RecoveringSession;

    fn deref(&self) -> &RecoveringSession {
        &self.session
    }
}

impl DerefMut for Recovering {
    fn deref_mut(&mut self) -> &mut RecoveringSession {
        &mut self.session
    }
}

impl Recovering {
    /// Logs in with `script`.
    ///
    /// # Errors
    /// The error of the login.
    pub fn login(address: SocketAddr, script: LoginScript, rejoin: Rejoin) -> io::Result<Self> {
        let (sender, arrivals) = mpsc::channel();
        let session = RecoveringSession::new(script, rejoin);
        let mut whole = Self { address, session, links: Vec::new(), arrivals, sender };
        whole.carry()?;
        Ok(whole)
    }

    /// Closes, opens and fills connections as the session wants it.
    fn carry(&mut self) -> io::Result<()> {
        loop {
            for number in self.session.take_closed() {
                self.links.iter().filter(|link| link.number == number).for_each(Link::close);
                self.links.retain(|link| link.number != number);
            }
            while let Some((number, pdu)) = self.session.poll_transmit() {
                if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
                    link.send(pdu);
                }
            }
            let Some((number, script)) = self.session.next_login() else { return Ok(()) };
            let (link, outcome) = Link::login(self.address, &script, number, &self.sender)?;
            self.links.push(link);
            self.session.logged_in(number, outcome);
        }
    }

    /// Adds a connection to the session.
    ///
    /// # Errors
    /// The error of the login.
    pub fn join(&mut self, cid: u16) -> io::Result<()> {
        self.session.join(cid);
        self.carry()
    }

    /// Starts a command on the `connection`th of the open connections; returns
    /// the name by which [`Self::wait`] reports it. Waits while the window is
    /// closed.
    ///
    /// # Errors
    /// The error of a failed recovery.
    pub fn start(
        &mut self,
        connection: usize,
        lun: Lun,
        cdb: &[u8],
        read_bytes: u32,
        write: Bytes,
    ) -> io::Result<u64> {
        let deadline = Instant::now() + LONGEST;
        loop {
            let started = self.session.start(connection, lun, cdb, read_bytes, write.clone());
            match started {
                Some(ticket) => return self.carry().map(|()| ticket),
                None => self.step(deadline)?,
            }
        }
    }

    /// Waits for a command to end.
    ///
    /// # Errors
    /// The error of a failed recovery.
    pub fn wait(&mut self) -> io::Result<(u64, Done)> {
        let deadline = Instant::now() + LONGEST;
        loop {
            if let Some(done) = self.session.poll_done() {
                return Ok(done);
            }
            self.step(deadline)?;
        }
    }

    /// Runs one command on the first connection.
    ///
    /// # Errors
    /// The error of a failed recovery, and any status except GOOD.
    pub fn run(
        &mut self,
        lun: Lun,
        cdb: &[u8],
        read_bytes: u32,
        write: Bytes,
    ) -> io::Result<Bytes> {
        let ticket = self.start(0, lun, cdb, read_bytes, write)?;
        let (ended, done) = self.wait()?;
        match (ended == ticket, done.status) {
            (true, 0) => Ok(done.data),
            _ => {
                Err(io::Error::other(format!("status {:#x}, sense {:?}", done.status, done.sense)))
            }
        }
    }

    /// Receives and recovers until there was no traffic for a while, so that
    /// all effects of the last commands are complete.
    ///
    /// # Errors
    /// The error of a failed recovery.
    pub fn settle(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + LONGEST;
        self.session.listen_anew();
        while self.session.silences() < 3 {
            self.step(deadline)?;
        }
        Ok(())
    }

    /// Handles a received PDU, or starts recovery after a silence.
    fn step(&mut self, deadline: Instant) -> io::Result<()> {
        if Instant::now() > deadline {
            let repairs = &self.session.repairs;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("after {repairs:?}")));
        }
        match self.arrivals.recv_timeout(PATIENCE) {
            // The answer to a ping does not count as activity.
            Ok(Arrival::Pdu(link, frame)) => self.session.receive(link, &frame)?,
            Ok(Arrival::Lost(link)) => self.session.lost(link),
            Err(RecvTimeoutError::Timeout) => self.session.silence(),
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::NotConnected.into()),
        }
        self.carry()
    }
}
