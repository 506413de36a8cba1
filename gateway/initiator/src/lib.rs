//! An iSCSI initiator on a blocking TCP socket, for the demo, tests and load generators.
//! One connection, one thread; commands may be pipelined.

use bytes::{Bytes, BytesMut};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zgate_iscsi::framing::{Decoder, Digests, Encoder};
use zgate_iscsi::initiator::{Initiator, LoginOutcome, Notice};
use zgate_iscsi::pdu::{Frame, Itt, Outgoing, TaskFunction, TaskResult};
use zgate_store::Payload;

pub use zgate_iscsi::initiator::LoginScript;
pub use zgate_iscsi::names::{Cid, Isid, Tsih};
pub use zgate_iscsi::pdu::{self, Lun};

/// Longest data segment accepted, in bytes.
pub const MAX_DATA_BYTES: u32 = 1 << 24;
/// Bytes received at once.
const RECEIVE_BYTES: usize = 1 << 20;

/// A finished command.
#[derive(Clone, Debug)]
pub struct Done {
    /// Task tag of the command.
    pub itt: Itt,
    /// SCSI status; 0 is GOOD.
    pub status: u8,
    /// Sense data.
    pub sense: Bytes,
    /// Data read.
    pub data: Bytes,
}

impl Done {
    /// Returns whether the command was not executed because of a unit attention (CHECK CONDITION
    /// with that sense key, in fixed format): it is to be repeated.
    #[must_use]
    pub fn is_unit_attention(&self) -> bool {
        self.status == 2 && self.sense.get(2).is_some_and(|key| key & 15 == 6)
    }
}

/// A connection that has logged in.
pub struct Stream {
    /// Socket of the connection.
    pub socket: TcpStream,
    /// Encoder of PDUs, with the negotiated digests.
    pub encoder: Encoder,
    /// Decoder of PDUs.
    pub decoder: Decoder,
    buffer: BytesMut,
}

impl Stream {
    /// Connects and logs in.
    ///
    /// # Errors
    /// As [`Session::login`].
    pub fn login(address: SocketAddr, script: &LoginScript) -> io::Result<(Self, LoginOutcome)> {
        Self::login_over(TcpStream::connect(address)?, script)
    }

    /// Logs in over a connection.
    ///
    /// # Errors
    /// As [`Session::login`].
    pub fn login_over(socket: TcpStream, script: &LoginScript) -> io::Result<(Self, LoginOutcome)> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut stream = Self {
            socket,
            encoder: Encoder::new(),
            decoder: Decoder::new(MAX_DATA_BYTES),
            buffer: BytesMut::new(),
        };
        let mut lost = None;
        let outcome: Option<LoginOutcome> = script.run(|pdu| {
            let mut raw = Vec::new();
            let exchanged = stream
                .send(pdu, &mut raw)
                .and_then(|()| stream.socket.write_all(&raw))
                .and_then(|()| stream.receive());
            exchanged.map_err(|error| lost = Some(error)).ok()
        });
        let Some(outcome) = outcome else {
            return Err(lost.unwrap_or_else(|| io::Error::other("the login response is malformed")));
        };
        if outcome.status != (0, 0) {
            let (class, detail) = outcome.status;
            let reason = format!("login refused: {class:02x}{detail:02x}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        let digests =
            Digests { header: outcome.params.header_digest, data: outcome.params.data_digest };
        stream.encoder.configure(digests);
        stream.decoder.configure(digests, MAX_DATA_BYTES);
        Ok((stream, outcome))
    }

    fn send(&mut self, pdu: Outgoing, into: &mut Vec<u8>) -> io::Result<()> {
        let mut pieces = Vec::new();
        let encoded = self.encoder.encode(pdu, &mut pieces);
        encoded.map_err(|error| io::Error::other(format!("{error:?}")))?;
        for piece in pieces {
            let Payload::Bytes(bytes) = piece else {
                return Err(io::Error::other("an initiator sends memory"));
            };
            into.extend_from_slice(&bytes);
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Frame> {
        loop {
            let polled = self.decoder.poll();
            if let Some(frame) = polled.map_err(|error| io::Error::other(format!("{error:?}")))? {
                return Ok(frame);
            }
            self.buffer.resize(RECEIVE_BYTES, 0);
            let count = match self.socket.read(&mut self.buffer) {
                // A signal interrupts a read that has a time limit.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.decoder.feed(self.buffer.split_to(count).freeze());
        }
    }
}

/// A session in full feature phase.
pub struct Session {
    stream: Stream,
    /// Protocol state.
    pub initiator: Initiator,
    outgoing: Vec<u8>,
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    /// If there is no connection; [`io::ErrorKind::PermissionDenied`] with
    /// status class and detail if the target refuses.
    pub fn login(address: SocketAddr, script: &LoginScript) -> io::Result<Self> {
        let (stream, outcome) = Stream::login(address, script)?;
        Ok(Self { stream, initiator: Initiator::new(&outcome), outgoing: Vec::new() })
    }

    /// Starts a command; [`Self::flush`] sends it.
    pub fn start(&mut self, lun: Lun, cdb: &[u8], read_bytes: u32, write: Bytes) -> Itt {
        self.initiator.command(lun, cdb, read_bytes, write)
    }

    /// Sends the started commands.
    ///
    /// # Errors
    /// The connection's error.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(pdu) = self.initiator.poll_transmit() {
            self.stream.send(pdu, &mut self.outgoing)?;
        }
        let sent = self.stream.socket.write_all(&self.outgoing);
        self.outgoing.clear();
        sent
    }

    /// Waits for the end of the next command.
    ///
    /// # Errors
    /// The connection's error.
    pub fn wait(&mut self) -> io::Result<Done> {
        loop {
            while let Some(notice) = self.initiator.poll_notice() {
                if let Notice::Done { itt, status, sense, data, .. } = notice {
                    return Ok(Done { itt, status, sense, data });
                }
            }
            self.flush()?;
            let frame = self.stream.receive()?;
            self.initiator.handle_pdu(frame);
        }
    }

    /// Sends a task management function.
    ///
    /// # Errors
    /// The connection's error.
    pub fn function(&mut self, function: TaskFunction, lun: Lun, of: Itt) -> io::Result<Itt> {
        let next = self.initiator.cmd_sn;
        let itt = self.initiator.function(function, lun, of, next);
        self.flush()?;
        Ok(itt)
    }

    /// Waits for the response to a task management function. Commands that end
    /// before it are dropped.
    ///
    /// # Errors
    /// The connection's error.
    pub fn function_result(&mut self, itt: Itt) -> io::Result<TaskResult> {
        loop {
            while let Some(notice) = self.initiator.poll_notice() {
                if let Notice::Function(of, result) = notice
                    && of == itt
                {
                    return Ok(result);
                }
            }
            self.flush()?;
            let frame = self.stream.receive()?;
            self.initiator.handle_pdu(frame);
        }
    }

    /// Waits for a PDU that is neither a response to a command nor to a function. Those that
    /// come before it are dropped.
    ///
    /// # Errors
    /// The connection's error.
    pub fn other(&mut self) -> io::Result<Frame> {
        loop {
            while let Some(notice) = self.initiator.poll_notice() {
                if let Notice::Other(frame) = notice {
                    return Ok(frame);
                }
            }
            self.flush()?;
            let frame = self.stream.receive()?;
            self.initiator.handle_pdu(frame);
        }
    }

    /// Runs one command. A unit attention is consumed, and the command
    /// repeated.
    ///
    /// # Errors
    /// The connection's error, and any SCSI status other than GOOD.
    pub fn run(
        &mut self,
        lun: Lun,
        cdb: &[u8],
        read_bytes: u32,
        write: &Bytes,
    ) -> io::Result<Bytes> {
        for _ in 0..4 {
            self.start(lun, cdb, read_bytes, write.clone());
            let done = self.wait()?;
            if !done.is_unit_attention() {
                return match done.status {
                    0 => Ok(done.data),
                    status => {
                        let sense = &done.sense;
                        Err(io::Error::other(format!("status {status:#x}, sense {sense:?}")))
                    }
                };
            }
        }
        Err(io::Error::other("unit attentions without end"))
    }
}

/// Builds READ(16).
#[must_use]
pub fn read16(lba: u64, blocks: u32) -> [u8; 16] {
    transfer16(0x88, 0, lba, blocks)
}

/// Builds WRITE(16), with FUA if `fua` is set.
#[must_use]
pub fn write16(lba: u64, blocks: u32, fua: bool) -> [u8; 16] {
    transfer16(0x8a, if fua { 0x08 } else { 0 }, lba, blocks)
}

/// Builds SYNCHRONIZE CACHE(16) of the whole disk.
#[must_use]
pub fn synchronize16() -> [u8; 16] {
    transfer16(0x91, 0, 0, 0)
}

fn transfer16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
