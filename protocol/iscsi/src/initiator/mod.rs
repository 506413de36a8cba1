//! A small initiator: logs in, numbers commands, moves data. For tests and
//! proxies; performs no error recovery itself, but lets its user send any PDU.

mod login;

pub use login::{LoginOutcome, LoginScript};

use crate::login::Operational;
use crate::pdu::{
    Bhs, Cdb, DataIn, DataOut, Frame, Itt, Lun, NopIn, NopOut, Opcode, Outgoing, R2t, Residual,
    ScsiCommand, ScsiResponse, TaskAttribute, TaskFunction, TaskRequest, TaskResponse, TaskResult,
    Ttt,
};
use crate::serial::Sn;
use bytes::{Bytes, BytesMut};
use std::collections::{HashMap, VecDeque};

/// An event that the initiator reports.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A command ended.
    Done {
        /// Its tag.
        itt: Itt,
        /// SCSI status.
        status: u8,
        /// Sense data.
        sense: Bytes,
        /// Data read.
        data: Bytes,
        /// Residual.
        residual: Residual,
    },
    /// A task management function ended.
    Function(Itt, TaskResult),
    /// Any other PDU from the target.
    Other(Frame),
}

#[derive(Debug)]
struct Open {
    lun: Lun,
    write: Bytes,
    read: BytesMut,
}

/// One connection's initiator.
#[derive(Debug)]
pub struct Initiator {
    params: Operational,
    /// CmdSN of the next command.
    pub cmd_sn: Sn,
    /// Last received MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    next_itt: u32,
    open: HashMap<Itt, Open>,
    out: VecDeque<Outgoing>,
    notices: VecDeque<Notice>,
    /// Answer R2Ts and pings automatically.
    pub automatic: bool,
}

impl Initiator {
    /// An initiator in full feature phase.
    #[must_use]
    pub fn new(outcome: &LoginOutcome) -> Self {
        Self {
            params: outcome.params.clone(),
            cmd_sn: outcome.cmd_sn,
            max_cmd_sn: outcome.max_cmd_sn,
            exp_stat_sn: outcome.exp_stat_sn,
            next_itt: 1,
            open: HashMap::new(),
            out: VecDeque::new(),
            notices: VecDeque::new(),
            automatic: true,
        }
    }

    /// The negotiated parameters, as known to the initiator.
    #[must_use]
    pub fn params(&self) -> &Operational {
        &self.params
    }

    /// Replaces the negotiated parameters: a joining connection takes
    /// session-wide values from the leading one.
    pub fn set_params(&mut self, params: Operational) {
        self.params = params;
    }

    /// Sets the tag of the next task: connections of one session share the
    /// tags.
    pub fn start_tags_at(&mut self, itt: Itt) {
        self.next_itt = itt.0;
    }

    /// The next PDU to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.out.pop_front()
    }

    /// The next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Queues any PDU.
    pub fn send(&mut self, pdu: Outgoing) {
        self.out.push_back(pdu);
    }

    /// A fresh task tag.
    pub fn tag(&mut self) -> Itt {
        let itt = Itt(self.next_itt);
        self.next_itt += 1;
        itt
    }

    /// The next CmdSN, counted as used.
    pub fn number(&mut self) -> Sn {
        let sn = self.cmd_sn;
        self.cmd_sn = sn.next();
        sn
    }

    /// Sends a command that reads up to `read_bytes`, or writes `write`, with
    /// as much immediate data as was negotiated.
    pub fn command(&mut self, lun: Lun, cdb: &[u8], read_bytes: u32, write: Bytes) -> Itt {
        let (itt, cmd_sn) = (self.tag(), self.number());
        let (is_read, is_write) = (read_bytes > 0, !write.is_empty());
        let limit = match self.params.immediate_data {
            true => self.params.first_burst_bytes.min(self.params.target_recv_bytes) as usize,
            false => 0,
        };
        let command = ScsiCommand {
            immediate: false,
            is_final: true,
            read: is_read,
            write: is_write,
            attribute: TaskAttribute::Simple,
            lun,
            itt,
            expected_bytes: if is_write { write.len() as u32 } else { read_bytes },
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: Cdb::new(cdb).unwrap_or_else(|| Cdb::new(&[]).expect("an empty CDB fits")),
            bidirectional_read_bytes: None,
        };
        let immediate = write.slice(..write.len().min(limit));
        self.open(itt, lun, write);
        self.out.push_back(command.encode(immediate));
        itt
    }

    /// Registers a command that the user sent.
    pub fn open(&mut self, itt: Itt, lun: Lun, write: Bytes) {
        self.open.insert(itt, Open { lun, write, read: BytesMut::new() });
    }

    /// Sends an immediate task management request.
    pub fn function(
        &mut self,
        function: TaskFunction,
        lun: Lun,
        referenced: Itt,
        ref_cmd_sn: Sn,
    ) -> Itt {
        let itt = self.tag();
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        let request = TaskRequest {
            immediate: true,
            function,
            lun,
            itt,
            referenced,
            cmd_sn,
            exp_stat_sn,
            ref_cmd_sn,
            exp_data_sn: 0,
        };
        self.out.push_back(request.encode());
        itt
    }

    /// Takes a PDU from the target.
    pub fn handle_pdu(&mut self, frame: Frame) {
        let bhs = frame.bhs;
        if bhs.max_cmd_sn().after(self.max_cmd_sn) {
            self.max_cmd_sn = bhs.max_cmd_sn();
        }
        if consumes_stat_sn(&bhs) && bhs.sn() == self.exp_stat_sn {
            self.exp_stat_sn = self.exp_stat_sn.next();
        }
        match bhs.opcode() {
            Opcode::SCSI_RESPONSE => {
                let pdu = ScsiResponse::parse(&bhs);
                let sense = ScsiResponse::sense(&frame.contiguous_data());
                self.done(pdu.itt, pdu.status, sense, pdu.residual);
            }
            Opcode::DATA_IN => {
                let pdu = DataIn::parse(&bhs);
                if let Some(open) = self.open.get_mut(&pdu.itt) {
                    let (start, data) = (pdu.offset as usize, frame.contiguous_data());
                    if open.read.len() < start + data.len() {
                        open.read.resize(start + data.len(), 0);
                    }
                    open.read[start..start + data.len()].copy_from_slice(&data);
                }
                if let Some((status, _, residual)) = pdu.status {
                    self.done(pdu.itt, status, Bytes::new(), residual);
                } else if pdu.acknowledge {
                    self.notices.push_back(Notice::Other(frame));
                }
            }
            Opcode::R2T if self.automatic => self.answer(R2t::parse(&bhs)),
            Opcode::NOP_IN if self.automatic && bhs.ttt() != Ttt::NONE => {
                let NopIn { lun, ttt, .. } = NopIn::parse(&bhs);
                let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
                let pong =
                    NopOut { immediate: true, lun, itt: Itt::NONE, ttt, cmd_sn, exp_stat_sn };
                self.out.push_back(pong.encode(Bytes::new()));
            }
            Opcode::TASK_RESPONSE => {
                let pdu = TaskResponse::parse(&bhs);
                self.notices.push_back(Notice::Function(pdu.itt, pdu.result));
            }
            _ => self.notices.push_back(Notice::Other(frame)),
        }
    }

    fn done(&mut self, itt: Itt, status: u8, sense: Bytes, residual: Residual) {
        let data = self.open.remove(&itt).map(|open| open.read.freeze()).unwrap_or_default();
        self.notices.push_back(Notice::Done { itt, status, sense, data, residual });
    }

    /// Sends the data that an R2T requests.
    pub fn answer(&mut self, r2t: R2t) {
        let Some(open) = self.open.get(&r2t.itt) else { return };
        let (lun, end) = (open.lun, (r2t.offset + r2t.desired_bytes) as usize);
        let mut at = r2t.offset as usize;
        let mut data_sn = 0;
        while at < end {
            let next = end.min(at + self.params.target_recv_bytes as usize);
            let pdu = DataOut {
                is_final: next == end,
                lun,
                itt: r2t.itt,
                ttt: r2t.ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                offset: at as u32,
            };
            let data = open.write.get(at..next).map(Bytes::copy_from_slice).unwrap_or_default();
            self.out.push_back(pdu.encode(data));
            data_sn += 1;
            at = next;
        }
    }
}

/// True if a response consumes a StatSN.
fn consumes_stat_sn(bhs: &Bhs) -> bool {
    match bhs.opcode() {
        Opcode::DATA_IN => bhs.flags() & 1 != 0,
        Opcode::R2T => false,
        Opcode::NOP_IN => bhs.itt() != Itt::NONE,
        _ => true,
    }
}
