//! An initiator with error recovery: at level 0 by a new session, at level 1 by
//! SNACK, retry and recovery R2Ts, at level 2 by moving tasks to another
//! connection (RFC 7143 §7). Recovery starts after a short silence, so that
//! each step can be observed.

mod link;
mod receive;
mod repair;

use crate::{Done, LoginScript};
use bytes::Bytes;
use link::Link;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use zgate_iscsi::login::Operational;
use zgate_iscsi::names::{Cid, Tsih};
use zgate_iscsi::pdu::{
    Cdb, DataOut, Frame, Itt, Lun, RejectReason, ScsiCommand, TaskAttribute, Ttt,
};
use zgate_iscsi::serial::Sn;

/// Silence after which recovery starts.
const PATIENCE: Duration = Duration::from_millis(150);
/// Number of silences after which level 0 gives up its session.
const SILENCES: u32 = 6;
/// Timeout of a command, including recovery.
const LONGEST: Duration = Duration::from_secs(40);

#[derive(Debug)]
enum Arrival {
    Pdu(usize, Box<Frame>),
    Lost(usize),
}

/// Replacement of a lost connection at level 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// A login with the same CID, which implies the logout of the old one (RFC
    /// 7143 §6.3.4).
    SameCid,
    /// Another connection, new if there is none, on which the lost one is
    /// logged out for recovery (RFC 7143 §11.14.1).
    Logout,
}

/// Counters of recovery actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Data SNACKs for Data-In.
    pub data_snacks: usize,
    /// Data/R2T SNACKs for R2Ts.
    pub r2t_snacks: usize,
    /// Status SNACKs.
    pub status_snacks: usize,
    /// Commands sent again with their CmdSN.
    pub retries: usize,
    /// Tasks reassigned.
    pub reassigned: usize,
    /// Reassignments the target refused, with its response.
    pub not_reassigned: Vec<u8>,
    /// New sessions.
    pub sessions: usize,
    /// New connections in an existing session.
    pub connections: usize,
    /// Commands that ended with a CRC error and were issued again.
    pub crc_failures: usize,
    /// Reasons of received Rejects.
    pub rejects: Vec<RejectReason>,
}

#[derive(Debug)]
struct Task {
    lun: Lun,
    cdb: Vec<u8>,
    read_bytes: u32,
    write: Bytes,
    cmd_sn: Sn,
    link: usize,
    read: Vec<u8>,
    /// Received DataSNs.
    data_sns: BTreeSet<u32>,
    /// Next expected R2TSN.
    next_r2t_sn: u32,
    /// The status, the sense data, and the number of Data-In PDUs.
    ended: Option<(u8, Bytes, u32)>,
    /// It was sent again after its connection was lost: if the first one had
    /// arrived, it must be reassigned.
    moved: bool,
    ticket: u64,
}

impl Task {
    /// The first missing Data-In and the length of the gap, if `upto` PDUs are
    /// known to exist.
    fn missing_data(&self, upto: u32) -> Option<(u32, u32)> {
        let first = (0..upto).find(|sn| !self.data_sns.contains(sn))?;
        let count = (first..upto).take_while(|sn| !self.data_sns.contains(sn)).count();
        Some((first, count as u32))
    }

    /// The next expected DataSN: all before it were received.
    fn exp_data_sn(&self) -> u32 {
        (0..).find(|sn| !self.data_sns.contains(sn)).unwrap_or(0)
    }
}

/// A sequence of Data-Out PDUs.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    lun: Lun,
    itt: Itt,
    ttt: Ttt,
    exp_stat_sn: Sn,
    start: usize,
    end: usize,
}

/// Sends a sequence in PDUs of up to `chunk` bytes (RFC 7143 §11.7).
fn send_sequence(link: &mut Link, sequence: Sequence, write: &Bytes, chunk: usize) {
    let Sequence { lun, itt, ttt, exp_stat_sn, start, end } = sequence;
    let (mut at, mut data_sn) = (start, 0);
    while at < end {
        let next = end.min(at + chunk);
        let (is_final, offset) = (next == end, at as u32);
        let pdu = DataOut { is_final, lun, itt, ttt, exp_stat_sn, data_sn, offset };
        link.send(pdu.encode(write.get(at..next).map(Bytes::copy_from_slice).unwrap_or_default()));
        (at, data_sn) = (next, data_sn + 1);
    }
}

/// A lost connection that is being logged out.
#[derive(Clone, Copy, Debug)]
struct PendingLogout {
    lost: usize,
    cid: Cid,
    by: usize,
}

/// A session with error recovery.
#[derive(Debug)]
pub struct Recovering {
    address: SocketAddr,
    script: LoginScript,
    params: Operational,
    tsih: Tsih,
    rejoin: Rejoin,
    links: Vec<Link>,
    next_link: usize,
    cmd_sn: Sn,
    exp_cmd_sn: Sn,
    max_cmd_sn: Sn,
    next_itt: u32,
    next_ticket: u64,
    tasks: BTreeMap<u32, Task>,
    /// Task management requests in progress: their tag and the task's.
    functions: BTreeMap<u32, Itt>,
    /// Logouts for recovery in progress.
    logouts: BTreeMap<u32, PendingLogout>,
    done: VecDeque<(u64, Done)>,
    arrivals: Receiver<Arrival>,
    sender: Sender<Arrival>,
    silences: u32,
    /// Task attribute of commands.
    pub attribute: TaskAttribute,
    /// Largest data segment sent, in bytes.
    pub chunk_bytes: usize,
    /// Counters of recovery actions.
    pub repairs: Repairs,
}

impl Recovering {
    /// Logs in with `script`.
    ///
    /// # Errors
    /// The error of the login.
    pub fn login(address: SocketAddr, script: LoginScript, rejoin: Rejoin) -> io::Result<Self> {
        let (sender, arrivals) = mpsc::channel();
        let mut session = Self {
            address,
            params: Operational::default(),
            tsih: Tsih(0),
            rejoin,
            links: Vec::new(),
            next_link: 0,
            cmd_sn: script.cmd_sn,
            exp_cmd_sn: script.cmd_sn,
            max_cmd_sn: script.cmd_sn,
            script,
            next_itt: 1,
            next_ticket: 0,
            tasks: BTreeMap::new(),
            functions: BTreeMap::new(),
            logouts: BTreeMap::new(),
            done: VecDeque::new(),
            arrivals,
            sender,
            silences: 0,
            attribute: TaskAttribute::Simple,
            chunk_bytes: 8192,
            repairs: Repairs::default(),
        };
        session.lead()?;
        Ok(session)
    }

    /// The negotiated error recovery level.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.params.error_recovery_level
    }

    /// Number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// The negotiated MaxConnections.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.params.max_connections
    }

    /// Replaces the session by a new one.
    fn lead(&mut self) -> io::Result<()> {
        self.links.iter().for_each(Link::close);
        self.links.clear();
        self.functions.clear();
        self.logouts.clear();
        let number = self.next_link;
        self.next_link += 1;
        let (link, outcome) = Link::login(self.address, &self.script, number, &self.sender)?;
        self.links.push(link);
        self.params = outcome.params;
        self.tsih = outcome.tsih;
        self.cmd_sn = outcome.cmd_sn;
        self.exp_cmd_sn = outcome.cmd_sn;
        self.max_cmd_sn = outcome.max_cmd_sn;
        Ok(())
    }

    /// Adds a connection to the session; returns the index of the new link.
    ///
    /// # Errors
    /// The error of the login.
    pub fn join(&mut self, cid: u16) -> io::Result<()> {
        let mut script = self.script.clone();
        script.cid = Cid(cid);
        script.tsih = self.tsih;
        script.cmd_sn = self.cmd_sn;
        let own = |key: &str| key.ends_with("Digest") || key == "MaxRecvDataSegmentLength";
        script.operational.retain(|(key, _)| own(key));
        let number = self.next_link;
        self.next_link += 1;
        let (link, outcome) = Link::login(self.address, &script, number, &self.sender)?;
        if outcome.exp_cmd_sn.after(self.exp_cmd_sn) {
            self.exp_cmd_sn = outcome.exp_cmd_sn;
        }
        self.links.push(link);
        Ok(())
    }

    fn tag(&mut self) -> Itt {
        self.next_itt += 1;
        Itt(self.next_itt)
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
        while self.cmd_sn.after(self.max_cmd_sn) {
            self.step(deadline)?;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let at = connection.min(self.links.len().saturating_sub(1));
        let link = self.links.get(at).map_or(0, |link| link.number);
        let task = Task {
            lun,
            cdb: cdb.to_vec(),
            read_bytes,
            write,
            cmd_sn: self.cmd_sn,
            link,
            read: Vec::new(),
            data_sns: BTreeSet::new(),
            next_r2t_sn: 0,
            ended: None,
            moved: false,
            ticket,
        };
        self.cmd_sn = self.cmd_sn.next();
        let itt = self.tag();
        self.tasks.insert(itt.0, task);
        self.send_command(itt);
        Ok(ticket)
    }

    /// Sends or resends a command.
    fn send_command(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get(&itt.0) else { return };
        let Some(link) = self.links.iter_mut().find(|link| link.number == task.link) else {
            return;
        };
        let immediate = match self.params.immediate_data {
            true => self.params.first_burst_bytes.min(self.params.target_recv_bytes) as usize,
            false => 0,
        };
        let immediate = immediate.min(self.chunk_bytes).min(task.write.len());
        let is_write = !task.write.is_empty();
        // RFC 7143 §4.2.5.2: without InitialR2T the first burst is sent
        // immediately.
        let burst = match self.params.initial_r2t {
            true => immediate,
            false => task.write.len().min(self.params.first_burst_bytes as usize),
        };
        let command = ScsiCommand {
            immediate: false,
            is_final: burst <= immediate,
            read: task.read_bytes > 0,
            write: is_write,
            attribute: self.attribute,
            lun: task.lun,
            itt,
            expected_bytes: if is_write { task.write.len() as u32 } else { task.read_bytes },
            cmd_sn: task.cmd_sn,
            exp_stat_sn: link.exp_stat_sn,
            cdb: Cdb::new(&task.cdb).unwrap_or_else(|| Cdb::new(&[]).expect("an empty CDB fits")),
            bidirectional_read_bytes: None,
        };
        link.send(command.encode(task.write.slice(..immediate)));
        let (lun, exp_stat_sn, write) = (task.lun, link.exp_stat_sn, task.write.clone());
        let sequence =
            Sequence { lun, itt, ttt: Ttt::NONE, exp_stat_sn, start: immediate, end: burst };
        send_sequence(link, sequence, &write, self.chunk_bytes);
    }

    /// Waits for a command to end.
    ///
    /// # Errors
    /// The error of a failed recovery.
    pub fn wait(&mut self) -> io::Result<(u64, Done)> {
        let deadline = Instant::now() + LONGEST;
        loop {
            if let Some(done) = self.done.pop_front() {
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
        self.silences = 0;
        while self.silences < 3 {
            self.step(deadline)?;
        }
        Ok(())
    }

    /// Handles a received PDU, or starts recovery after a silence.
    fn step(&mut self, deadline: Instant) -> io::Result<()> {
        if Instant::now() > deadline {
            let repairs = &self.repairs;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("after {repairs:?}")));
        }
        match self.arrivals.recv_timeout(PATIENCE) {
            Ok(Arrival::Pdu(link, frame)) => {
                // The answer to a ping does not count as activity.
                self.receive(link, &frame)
            }
            Ok(Arrival::Lost(link)) => self.lost(link),
            Err(RecvTimeoutError::Timeout) => {
                self.silences += 1;
                self.repair()
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
