//! A bridge between an initiator on TCP and a target on iSER (RFC 7145 §3). The
//! bridge gathers write data with its own R2Ts before it forwards the command;
//! read data is taken from the memory advertised for it.

use crate::link::{Arrived, Link, Memory};
use crate::text::Agreed;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::iser::Message;
use zgate_iscsi::pdu::{
    DataIn, DataOut, FLAG_FINAL, Frame, Itt, LoginRequest, LoginResponse, Lun, Opcode, Outgoing,
    R2t, Residual, ScsiCommand, ScsiResponse, Stage, Ttt,
};
use zgate_iscsi::serial::Sn;
use zgate_store::Payload;

/// Longest data segment that an initiator may send, in bytes.
const MAX_SEGMENT_BYTES: u32 = 1 << 20;
/// Private data of a Linux initiator: it supports Send with Invalidate.
const PRIVATE_DATA: [u8; 4] = [0x80, 0, 0, 0];

/// A write whose solicited data is being gathered.
#[derive(Debug)]
struct Gathering {
    command: Outgoing,
    lun: Lun,
    /// Offset of the solicited data in the command's data.
    begins: u32,
    data: BytesMut,
    received: u32,
    asked: u32,
    ttt: Ttt,
    r2ts: u32,
    /// Unsolicited Data-Outs, which follow the command.
    behind: Vec<Outgoing>,
}

/// Memory advertised by a command.
#[derive(Debug, Default)]
struct Lent {
    write: Option<Memory>,
    read: Option<Memory>,
    expected_bytes: u32,
}

struct Bridge {
    link: Link,
    encoder: Encoder,
    out: Vec<Payload>,
    agreed: Agreed,
    full_feature: bool,
    gathering: HashMap<Itt, Gathering>,
    lent: HashMap<Itt, Lent>,
    next_ttt: u32,
    /// StatSN of the next status, last received ExpCmdSN and MaxCmdSN.
    stat_sn: Sn,
    window: (Sn, Sn),
}

/// Starts a bridge to a target, in a thread that runs until the process ends;
/// returns its address for initiators.
///
/// # Errors
/// Errors of the system.
pub fn start(target: SocketAddr) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("iser-bridge".into()).spawn(move || {
        // It ends with the process, or on an error of the listener.
        let _ = runtime.block_on(serve(listener, target));
    })?;
    Ok(address)
}

async fn serve(listener: std::net::TcpListener, target: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // The result is visible on both sides.
            let _ = carry(stream, target).await;
        });
    }
}

async fn carry(mut stream: TcpStream, target: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bridge = Bridge {
        link: Link::connect(target, &PRIVATE_DATA).await?,
        encoder: Encoder::new(),
        out: Vec::new(),
        agreed: Agreed::default(),
        full_feature: false,
        gathering: HashMap::new(),
        lent: HashMap::new(),
        next_ttt: 0x8000_0000,
        stat_sn: Sn(0),
        window: (Sn(0), Sn(0)),
    };
    let mut decoder = Decoder::new(MAX_SEGMENT_BYTES);
    let mut buffer = vec![0; 256 << 10];
    loop {
        tokio::select! {
            got = stream.read(&mut buffer) => {
                let got = got?;
                if got == 0 {
                    return Ok(());
                }
                decoder.feed(Bytes::copy_from_slice(&buffer[..got]));
                while let Some(frame) = decoder.poll().map_err(invalid)? {
                    bridge.heard_initiator(frame)?;
                }
            }
            arrived = bridge.link.receive() => match arrived {
                Some(arrived) => bridge.heard_target(&arrived)?,
                None => return Ok(()),
            },
        }
        for piece in bridge.out.drain(..) {
            if let Payload::Bytes(bytes) = piece {
                stream.write_all(&bytes).await?;
            }
        }
    }
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn outgoing(frame: Frame) -> Outgoing {
    let data = frame.data.into_iter().map(Payload::Bytes).collect();
    Outgoing { bhs: frame.bhs, ahs: frame.ahs, data }
}

impl Bridge {
    fn say(&mut self, pdu: Outgoing) -> io::Result<()> {
        self.encoder.encode(pdu, &mut self.out).map_err(invalid)
    }

    fn heard_initiator(&mut self, frame: Frame) -> io::Result<()> {
        match frame.bhs.opcode() {
            Opcode::LOGIN_REQUEST if !self.full_feature => {
                let request = LoginRequest::parse(&frame.bhs).map_err(invalid)?;
                let operational = request.current == Stage::Operational;
                let text = self.agreed.request(&frame.contiguous_data(), operational);
                self.link.send(Outgoing::with_bytes(frame.bhs, text), None, None)
            }
            Opcode::SCSI_COMMAND if self.full_feature => self.command(frame),
            Opcode::DATA_OUT if self.full_feature => self.data_out(frame),
            _ => self.link.send(outgoing(frame), None, None),
        }
    }

    /// Forwards a command, or begins to gather its write data.
    fn command(&mut self, frame: Frame) -> io::Result<()> {
        let Ok(command) = ScsiCommand::parse(&frame) else {
            return self.link.send(outgoing(frame), None, None);
        };
        let immediate = frame.data_bytes() as u32;
        // A command without the F bit is followed by the rest of the first
        // burst.
        let unsolicited =
            if command.is_final { immediate } else { self.agreed.first_burst_bytes.max(immediate) };
        let expected = command.expected_bytes;
        let pdu = outgoing(frame);
        if !command.write || unsolicited >= expected {
            let read = command.read && !command.write && expected > 0;
            let read = read.then(|| self.link.room(expected as usize)).transpose()?;
            return self.forward(
                command.itt,
                pdu,
                Lent { write: None, read, expected_bytes: expected },
            );
        }
        self.gathering.insert(
            command.itt,
            Gathering {
                command: pdu,
                lun: command.lun,
                begins: unsolicited,
                data: BytesMut::zeroed((expected - unsolicited) as usize),
                received: 0,
                asked: 0,
                ttt: Ttt::NONE,
                r2ts: 0,
                behind: Vec::new(),
            },
        );
        self.ask(command.itt)
    }

    fn forward(&mut self, itt: Itt, command: Outgoing, lent: Lent) -> io::Result<()> {
        self.link.send(command, lent.write.as_ref(), lent.read.as_ref())?;
        self.lent.insert(itt, lent);
        Ok(())
    }

    /// Requests the next burst of a write.
    fn ask(&mut self, itt: Itt) -> io::Result<()> {
        let Some(write) = self.gathering.get_mut(&itt) else { return Ok(()) };
        self.next_ttt += 1;
        write.ttt = Ttt(self.next_ttt);
        let left = write.data.len() as u32 - write.received;
        let desired_bytes = left.min(self.agreed.max_burst_bytes);
        write.asked = write.received + desired_bytes;
        let r2t = R2t {
            lun: write.lun,
            itt,
            ttt: write.ttt,
            stat_sn: self.stat_sn,
            r2t_sn: write.r2ts,
            offset: write.begins + write.received,
            desired_bytes,
        };
        write.r2ts += 1;
        let pdu = self.stamped(r2t.encode());
        self.say(pdu)
    }

    /// Sets the window last received from the target.
    fn stamped(&self, mut pdu: Outgoing) -> Outgoing {
        pdu.bhs.put_u32(28, self.window.0.0);
        pdu.bhs.put_u32(32, self.window.1.0);
        pdu
    }

    fn data_out(&mut self, frame: Frame) -> io::Result<()> {
        let pdu = DataOut::parse(&frame.bhs);
        let Some(write) = self.gathering.get_mut(&pdu.itt) else {
            // Unsolicited data after its command, or late data, which the
            // target judges.
            return self.link.send(outgoing(frame), None, None);
        };
        if pdu.ttt == Ttt::NONE {
            write.behind.push(outgoing(frame));
            return Ok(());
        }
        let data = frame.contiguous_data();
        let start = pdu.offset.checked_sub(write.begins).map(|start| start as usize);
        let place = start.and_then(|start| write.data.get_mut(start..start + data.len()));
        if pdu.ttt != write.ttt {
            return Ok(());
        }
        place.ok_or_else(|| invalid("Data-Out outside its command"))?.copy_from_slice(&data);
        write.received += data.len() as u32;
        if write.received < write.asked {
            return Ok(());
        }
        if (write.received as usize) < write.data.len() {
            return self.ask(pdu.itt);
        }
        let Some(write) = self.gathering.remove(&pdu.itt) else { return Ok(()) };
        let memory = self.link.lend(&write.data)?;
        let lent = Lent { write: Some(memory), ..Lent::default() };
        self.forward(pdu.itt, write.command, lent)?;
        write.behind.into_iter().try_for_each(|pdu| self.link.send(pdu, None, None))
    }

    fn heard_target(&mut self, arrived: &Arrived) -> io::Result<()> {
        let message = Message::decode(&arrived.message).map_err(invalid)?;
        let data = Bytes::copy_from_slice(message.data);
        let bhs = message.bhs;
        self.window = (bhs.exp_sn(), bhs.max_cmd_sn());
        let asks = bhs.opcode() == Opcode::NOP_IN && bhs.itt() == Itt::NONE;
        self.stat_sn = if asks { bhs.sn() } else { bhs.sn().next() };
        match bhs.opcode() {
            Opcode::LOGIN_RESPONSE => {
                let response = LoginResponse::parse(&bhs).map_err(invalid)?;
                let text = self.agreed.response(&data);
                self.full_feature = response.transit == Some(Stage::FullFeature);
                self.say(Outgoing::with_bytes(bhs, text))
            }
            Opcode::SCSI_RESPONSE => {
                let mut pdu = Outgoing::with_bytes(bhs, data);
                let sent = self.read_data(&ScsiResponse::parse(&bhs), arrived.invalidated)?;
                pdu.bhs.put_u32(36, sent);
                self.say(pdu)
            }
            Opcode::DATA_IN | Opcode::R2T => Err(invalid("not a Send of iSER")),
            _ => self.say(Outgoing::with_bytes(bhs, data)),
        }
    }

    /// Sends the data written into the memory of a read; returns the number of
    /// PDUs.
    fn read_data(&mut self, response: &ScsiResponse, invalidated: Option<u32>) -> io::Result<u32> {
        let lent = self.lent.remove(&response.itt).unwrap_or_default();
        let key = lent.read.as_ref().or(lent.write.as_ref()).map(|memory| memory.rkey());
        if invalidated != key {
            return Err(invalid("another key than the command's came to its end"));
        }
        let Some(memory) = lent.read else { return Ok(0) };
        let moved = match response.residual {
            Residual::Underflow(rest) => lent.expected_bytes.saturating_sub(rest),
            _ => lent.expected_bytes,
        };
        let data = memory.withdraw().into_bytes();
        let data = data.slice(..data.len().min(moved as usize));
        let (mut at, mut burst, mut data_sn) = (0, 0, 0);
        while at < data.len() {
            let burst_left = (self.agreed.max_burst_bytes - burst) as usize;
            let len = (self.agreed.initiator_bytes as usize).min(burst_left).min(data.len() - at);
            burst += len as u32;
            let is_final = at + len == data.len() || burst == self.agreed.max_burst_bytes;
            if is_final {
                burst = 0;
            }
            let pdu = DataIn {
                is_final,
                acknowledge: false,
                lun: Lun(0),
                itt: response.itt,
                ttt: Ttt::NONE,
                data_sn,
                offset: at as u32,
                status: None,
            };
            let pdu = pdu.encode(vec![Payload::Bytes(data.slice(at..at + len))]);
            debug_assert_eq!(pdu.bhs.flags() & FLAG_FINAL != 0, is_final);
            let pdu = self.stamped(pdu);
            self.say(pdu)?;
            at += len;
            data_sn += 1;
        }
        Ok(data_sn)
    }
}
