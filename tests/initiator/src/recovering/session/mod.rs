//! The session of a recovering initiator without sockets and clock: PDUs and
//! silences go in, PDUs and wishes for connections come out.

mod carrier;
mod receive;
mod repair;

use crate::Done;
use bytes::Bytes;
use carrier::Carrier;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zgate_iscsi::initiator::{LoginOutcome, LoginScript};
use zgate_iscsi::login::Operational;
use zgate_iscsi::names::{Cid, Tsih};
use zgate_iscsi::pdu::{
    Cdb, DataOut, Itt, Lun, Outgoing, RejectReason, ScsiCommand, TaskAttribute, Ttt,
};
use zgate_iscsi::serial::Sn;

/// Number of silences after which level 0 gives up its session.
const SILENCES: u32 = 6;

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
fn send_sequence(link: &mut Carrier, sequence: Sequence, write: &Bytes, chunk: usize) {
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

/// A connection that the session needs.
#[derive(Clone, Debug)]
struct Wanted {
    number: usize,
    cid: Cid,
    /// It leads a new session.
    leads: bool,
    /// The connection that it replaces.
    replaces: Option<(usize, Cid)>,
}

/// A session with error recovery.
#[derive(Debug)]
pub struct RecoveringSession {
    script: LoginScript,
    params: Operational,
    tsih: Tsih,
    rejoin: Rejoin,
    carriers: Vec<Carrier>,
    next_link: usize,
    wanted: VecDeque<Wanted>,
    /// Connections to be closed.
    closed: Vec<usize>,
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
    silences: u32,
    /// Task attribute of commands.
    pub attribute: TaskAttribute,
    /// Largest data segment sent, in bytes.
    pub chunk_bytes: usize,
    /// Counters of recovery actions.
    pub repairs: Repairs,
}

impl RecoveringSession {
    /// A session that needs its first connection.
    #[must_use]
    pub fn new(script: LoginScript, rejoin: Rejoin) -> Self {
        let mut session = Self {
            params: Operational::default(),
            tsih: Tsih(0),
            rejoin,
            carriers: Vec::new(),
            next_link: 0,
            wanted: VecDeque::new(),
            closed: Vec::new(),
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
            silences: 0,
            attribute: TaskAttribute::Simple,
            chunk_bytes: 8192,
            repairs: Repairs::default(),
        };
        session.lead();
        session
    }

    /// The negotiated error recovery level.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.params.error_recovery_level
    }

    /// Number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.carriers.len()
    }

    /// The negotiated MaxConnections.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.params.max_connections
    }

    /// Returns whether commands or functions are unanswered.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.tasks.is_empty() || !self.functions.is_empty()
    }

    /// Number of silences since the last progress.
    #[must_use]
    pub fn silences(&self) -> u32 {
        self.silences
    }

    /// Counts silences from now on.
    pub fn listen_anew(&mut self) {
        self.silences = 0;
    }

    /// Replaces the session by a new one.
    fn lead(&mut self) {
        self.closed.extend(self.carriers.drain(..).map(|carrier| carrier.number));
        self.functions.clear();
        self.logouts.clear();
        self.wanted.clear();
        let cid = self.script.cid;
        self.want(cid, true, None);
    }

    /// Adds a connection to the session.
    pub fn join(&mut self, cid: u16) {
        self.want(Cid(cid), false, None);
    }

    fn want(&mut self, cid: Cid, leads: bool, replaces: Option<(usize, Cid)>) {
        let number = self.next_link;
        self.next_link += 1;
        self.wanted.push_back(Wanted { number, cid, leads, replaces });
    }

    /// The next login: the number of its connection, and its script. It is over
    /// with [`Self::logged_in`] or [`Self::login_failed`].
    #[must_use]
    pub fn next_login(&self) -> Option<(usize, LoginScript)> {
        let wanted = self.wanted.front()?;
        let mut script = self.script.clone();
        if !wanted.leads {
            script.cid = wanted.cid;
            script.tsih = self.tsih;
            script.cmd_sn = self.cmd_sn;
            let own = |key: &str| key.ends_with("Digest") || key == "MaxRecvDataSegmentLength";
            script.operational.retain(|(key, _)| own(key));
        }
        Some((wanted.number, script))
    }

    /// A login has succeeded.
    pub fn logged_in(&mut self, number: usize, outcome: LoginOutcome) {
        let is_wanted = self.wanted.front().is_some_and(|wanted| wanted.number == number);
        if !is_wanted {
            // It was for a session that is gone.
            return self.closed.push(number);
        }
        let Some(wanted) = self.wanted.pop_front() else { return };
        self.carriers.push(Carrier::new(number, wanted.cid, outcome.exp_stat_sn));
        if wanted.leads {
            self.params = outcome.params;
            self.tsih = outcome.tsih;
            self.cmd_sn = outcome.cmd_sn;
            self.exp_cmd_sn = outcome.cmd_sn;
            self.max_cmd_sn = outcome.max_cmd_sn;
            for (_, task) in std::mem::take(&mut self.tasks) {
                self.give_anew(task);
            }
            return;
        }
        if outcome.exp_cmd_sn.after(self.exp_cmd_sn) {
            self.exp_cmd_sn = outcome.exp_cmd_sn;
        }
        if let Some((lost, cid)) = wanted.replaces {
            match self.rejoin {
                Rejoin::SameCid => self.reassign(lost, number),
                Rejoin::Logout => self.log_out_all(lost, cid),
            }
        }
    }

    /// A login has failed: the session is replaced by a new one.
    pub fn login_failed(&mut self, number: usize) {
        if self.wanted.front().is_some_and(|wanted| wanted.number == number) {
            self.begin_again();
        }
    }

    /// Connections that are to be closed.
    pub fn take_closed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.closed)
    }

    /// The next PDU, and the number of its connection.
    pub fn poll_transmit(&mut self) -> Option<(usize, Outgoing)> {
        self.carriers
            .iter_mut()
            .find_map(|carrier| Some((carrier.number, carrier.out.pop_front()?)))
    }

    /// The next finished command, by the name that [`Self::start`] gave it.
    pub fn poll_done(&mut self) -> Option<(u64, Done)> {
        self.done.pop_front()
    }

    fn tag(&mut self) -> Itt {
        self.next_itt += 1;
        Itt(self.next_itt)
    }

    /// Starts a command on the `connection`th of the open connections; returns
    /// its name. `None`: the window is closed, or there is no session now.
    pub fn start(
        &mut self,
        connection: usize,
        lun: Lun,
        cdb: &[u8],
        read_bytes: u32,
        write: Bytes,
    ) -> Option<u64> {
        if self.cmd_sn.after(self.max_cmd_sn) || self.carriers.is_empty() {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let at = connection.min(self.carriers.len().saturating_sub(1));
        let link = self.carriers.get(at).map_or(0, |carrier| carrier.number);
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
        Some(ticket)
    }

    /// Sends or resends a command.
    fn send_command(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get(&itt.0) else { return };
        let Some(link) = self.carriers.iter_mut().find(|link| link.number == task.link) else {
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
}
