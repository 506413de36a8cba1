//! An initiator: one connection, blocking, with its own runtime.

use crate::link::{Arrived, Link, Memory};
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::runtime::Runtime;
use zgate_iscsi::initiator::{Initiator, LoginOutcome, LoginScript, Notice};
use zgate_iscsi::iser::Message;
use zgate_iscsi::pdu::{Frame, Itt, Lun, Opcode, Outgoing, TaskFunction, TaskResult};
use zgate_iscsi::serial::Sn;

/// Timeout of an answer of the target.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time after which posted work has been sent.
const TO_SEND: Duration = Duration::from_millis(200);

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Done {
    /// SCSI status.
    pub status: u8,
    /// Sense data.
    pub sense: Bytes,
    /// Contents of the memory advertised for reading.
    pub data: Bytes,
    /// The key invalidated by the response.
    pub invalidated: Option<u32>,
    /// The key that the command advertised, for either direction.
    pub key: Option<u32>,
}

#[derive(Debug, Default)]
struct Lent {
    write: Option<Memory>,
    read: Option<Memory>,
}

/// The connection.
#[derive(Debug)]
pub struct Client {
    /// Link of the fabric.
    pub link: Link,
    initiator: Initiator,
    /// Result of the login.
    pub outcome: LoginOutcome,
    lent: HashMap<Itt, Lent>,
    /// Answered functions.
    pub answered: Vec<(Itt, TaskResult)>,
    runtime: Runtime,
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn frame(arrived: &Arrived) -> io::Result<Frame> {
    let message = Message::decode(&arrived.message)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    let data = Bytes::copy_from_slice(message.data);
    let data = if data.is_empty() { Vec::new() } else { vec![data] };
    Ok(Frame::new(message.bhs, Bytes::copy_from_slice(message.ahs), data))
}

async fn receive(link: &mut Link) -> io::Result<Arrived> {
    let arrived = tokio::time::timeout(PATIENCE, link.receive()).await?;
    arrived.ok_or_else(gone)
}

/// The keys Linux sends in the operational stage of a normal session.
#[must_use]
pub fn as_linux(script: LoginScript) -> LoginScript {
    let keys = [
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("DefaultTime2Wait", "2"),
        ("DefaultTime2Retain", "0"),
        ("IFMarker", "No"),
        ("OFMarker", "No"),
        ("ErrorRecoveryLevel", "0"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
        ("MaxConnections", "1"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("RDMAExtensions", "Yes"),
        ("TargetRecvDataSegmentLength", "8192"),
        ("InitiatorRecvDataSegmentLength", "262144"),
    ];
    keys.iter().fold(script, |script, (key, value)| script.with(key, value))
}

impl Client {
    /// Connects and logs in. The status of a refused login is in
    /// [`LoginOutcome::status`].
    ///
    /// # Errors
    /// The error of the connection.
    pub fn login(to: SocketAddr, script: &LoginScript, private_data: &[u8]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut link = runtime.block_on(Link::connect(to, private_data))?;
        let outcome = script.run(|pdu| {
            link.send(pdu, None, None).ok()?;
            frame(&runtime.block_on(receive(&mut link)).ok()?).ok()
        });
        let outcome = outcome.ok_or_else(gone)?;
        let mut initiator = Initiator::new(&outcome);
        let mut params = initiator.params().clone();
        let length = |key: &str| {
            let answer = outcome.answers.iter().find(|(known, _)| known == key);
            answer.and_then(|(_, value)| value.parse().ok())
        };
        params.target_recv_bytes = length("TargetRecvDataSegmentLength").unwrap_or(8192);
        initiator.set_params(params);
        let (lent, answered) = (HashMap::new(), Vec::new());
        Ok(Self { link, initiator, outcome, lent, answered, runtime })
    }

    /// Negotiated parameters.
    #[must_use]
    pub fn params(&self) -> &zgate_iscsi::login::Operational {
        self.initiator.params()
    }

    /// The session's numbers and tags.
    pub fn numbers(&mut self) -> &mut Initiator {
        &mut self.initiator
    }

    /// Starts a command; its read data, and its write data beyond the immediate
    /// data, are transferred through advertised memory.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn start(
        &mut self,
        lun: Lun,
        cdb: &[u8],
        read_bytes: u32,
        write: &[u8],
    ) -> io::Result<Itt> {
        let itt = self.initiator.command(lun, cdb, read_bytes, Bytes::copy_from_slice(write));
        while let Some(pdu) = self.initiator.poll_transmit() {
            let sent = pdu.data_bytes();
            let mut lent = Lent::default();
            if pdu.bhs.opcode() == Opcode::SCSI_COMMAND {
                if read_bytes > 0 {
                    lent.read = Some(self.link.room(read_bytes as usize)?);
                }
                // Like Linux: starts after the unsolicited data.
                if sent < write.len() {
                    lent.write = Some(self.link.lend(&write[sent..])?);
                }
            }
            self.link.send(pdu, lent.write.as_ref(), lent.read.as_ref())?;
            self.lent.insert(itt, lent);
        }
        Ok(itt)
    }

    /// Starts a task management function.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn function(&mut self, function: TaskFunction, lun: Lun, of: Itt) -> io::Result<Itt> {
        let sn: Sn = self.initiator.cmd_sn;
        let itt = self.initiator.function(function, lun, of, sn);
        self.flush()?;
        Ok(itt)
    }

    /// Sends any PDU.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn send(&mut self, pdu: Outgoing) -> io::Result<()> {
        self.initiator.send(pdu);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(pdu) = self.initiator.poll_transmit() {
            self.link.send(pdu, None, None)?;
        }
        Ok(())
    }

    /// Runs for this time, so that started work is sent.
    pub fn go_on(&mut self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Sends started work; from then on the device receives nothing, as if the
    /// machine had hung.
    pub fn hang(&mut self) {
        self.link.stop_taking();
        self.runtime.block_on(async { tokio::time::sleep(TO_SEND).await });
    }

    /// Its device goes on after [`Self::hang`].
    pub fn resume(&mut self) {
        self.link.take_again();
    }

    /// The next message after login, undecoded.
    ///
    /// # Errors
    /// The error of the connection, or a timeout.
    pub fn raw(&mut self) -> io::Result<Arrived> {
        self.runtime.block_on(receive(&mut self.link))
    }

    /// The next command that ends; functions that end before are recorded.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn wait(&mut self) -> io::Result<(Itt, Done)> {
        loop {
            let arrived = self.raw()?;
            let invalidated = arrived.invalidated;
            self.initiator.handle_pdu(frame(&arrived)?);
            self.flush()?;
            while let Some(notice) = self.initiator.poll_notice() {
                match notice {
                    Notice::Done { itt, status, sense, .. } => {
                        let lent = self.lent.remove(&itt).unwrap_or_default();
                        let key = lent.read.as_ref().or(lent.write.as_ref()).map(|m| m.rkey());
                        let data = lent.read.map(|m| m.withdraw().into_bytes());
                        let data = data.unwrap_or_default();
                        return Ok((itt, Done { status, sense, data, invalidated, key }));
                    }
                    Notice::Function(itt, result) => self.answered.push((itt, result)),
                    Notice::Other(_) => {}
                }
            }
        }
    }

    /// A PDU that is neither a response to a command nor to a function.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn other(&mut self) -> io::Result<Frame> {
        loop {
            let frame = frame(&self.raw()?)?;
            self.initiator.handle_pdu(frame);
            self.flush()?;
            while let Some(notice) = self.initiator.poll_notice() {
                match notice {
                    Notice::Other(frame) => return Ok(frame),
                    Notice::Function(itt, result) => self.answered.push((itt, result)),
                    Notice::Done { .. } => {}
                }
            }
        }
    }

    /// Waits for the answer to a function.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn function_result(&mut self, itt: Itt) -> io::Result<TaskResult> {
        loop {
            if let Some((_, result)) = self.answered.iter().find(|(known, _)| *known == itt) {
                return Ok(*result);
            }
            let frame = frame(&self.raw()?)?;
            self.initiator.handle_pdu(frame);
            while let Some(notice) = self.initiator.poll_notice() {
                if let Notice::Function(itt, result) = notice {
                    self.answered.push((itt, result));
                }
            }
        }
    }

    /// Runs one command; repeats it after a unit attention.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn run(&mut self, lun: Lun, cdb: &[u8], read_bytes: u32, write: &[u8]) -> io::Result<Done> {
        loop {
            self.start(lun, cdb, read_bytes, write)?;
            let (_, done) = self.wait()?;
            let is_attention = done.status == 2 && done.sense.get(2).is_some_and(|k| k & 15 == 6);
            if !is_attention {
                return Ok(done);
            }
        }
    }
}
