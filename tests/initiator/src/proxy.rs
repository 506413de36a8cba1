//! A TCP proxy that injects faults into single PDUs: drops, damages, repeats or
//! delays them, or closes the connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zgate_iscsi::limits::BHS_BYTES;
use zgate_iscsi::pdu::{Bhs, Opcode};

/// Direction of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the initiator.
    ToTarget,
    /// From the target.
    ToInitiator,
}

/// Fault of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The PDU never arrives.
    Drop,
    /// A bit of its header is flipped, so that a header digest does not match.
    Header,
    /// A bit of its data is flipped, so that a data digest does not match.
    Data,
    /// The PDU arrives twice.
    Twice,
    /// The PDU and all after it arrive late.
    Delay(Duration),
    /// The connection is closed before it.
    CutBefore,
    /// The connection is closed after it.
    CutAfter,
}

/// A fault for one future PDU.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its direction.
    pub direction: Direction,
    /// Its kind.
    pub opcode: Opcode,
    /// Number of PDUs of this kind that pass before it.
    pub skip: usize,
    /// The fault.
    pub harm: Harm,
}

/// A PDU that passed the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Number of the connection, in order of opening.
    pub connection: usize,
    /// Its direction.
    pub direction: Direction,
    /// Its header, as received.
    pub bhs: Bhs,
    /// The fault, if any.
    pub harm: Option<Harm>,
}

#[derive(Debug, Default)]
struct Shared {
    faults: Mutex<Vec<Fault>>,
    seen: Mutex<Vec<Seen>>,
    sockets: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A proxy in front of one target. Its threads end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts to listen on a separate port.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let of = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                if of.stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(socket) = socket else { return };
                // Without a target the initiator's connection is closed.
                let _ = join(socket, target, number, &of);
            }
        });
        Ok(Self { address, shared })
    }

    /// The listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a fault for a future PDU.
    pub fn inject(&self, fault: Fault) {
        lock(&self.shared.faults).push(fault);
    }

    /// Number of faults that were not applied yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        lock(&self.shared.faults).len()
    }

    /// All PDUs so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Closes all connections.
    pub fn cut(&self) {
        for socket in lock(&self.shared.sockets).drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

fn join(
    near: TcpStream,
    target: SocketAddr,
    number: usize,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let far = TcpStream::connect(target)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    lock(&shared.sockets).extend([near.try_clone()?, far.try_clone()?]);
    let digests = Arc::new(AtomicU8::new(0));
    let directions = [
        (Direction::ToTarget, near.try_clone()?, far.try_clone()?),
        (Direction::ToInitiator, far, near),
    ];
    for (direction, from, to) in directions {
        let pump = Pump {
            direction,
            number,
            from,
            to,
            digests: Arc::clone(&digests),
            told: 0,
            shared: Arc::clone(shared),
        };
        std::thread::spawn(move || pump.run());
    }
    Ok(())
}

const HEADER_DIGEST: u8 = 1;
const DATA_DIGEST: u8 = 2;

/// One direction of one connection.
struct Pump {
    direction: Direction,
    number: usize,
    from: TcpStream,
    to: TcpStream,
    /// Digests in use after login.
    digests: Arc<AtomicU8>,
    /// Digests from the login responses.
    told: u8,
    shared: Arc<Shared>,
}

impl Pump {
    fn run(mut self) {
        while let Ok(pdu) = self.next() {
            if self.forward(pdu).is_err() {
                break;
            }
        }
        let _ = self.from.shutdown(Shutdown::Both);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// A whole PDU, digests included.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut pdu = vec![0; BHS_BYTES];
        self.from.read_exact(&mut pdu)?;
        let (bhs, digests) = (header(&pdu), self.digests.load(Ordering::Acquire));
        let data = bhs.data_bytes();
        let more = bhs.ahs_bytes()
            + if digests & HEADER_DIGEST != 0 { 4 } else { 0 }
            + data.next_multiple_of(4)
            + if digests & DATA_DIGEST != 0 && data > 0 { 4 } else { 0 };
        pdu.resize(BHS_BYTES + more, 0);
        self.from.read_exact(&mut pdu[BHS_BYTES..])?;
        self.follow_login(bhs, &pdu);
        Ok(pdu)
    }

    /// Enables digests after the last Login Response (RFC 7143 §13.1).
    fn follow_login(&mut self, bhs: Bhs, pdu: &[u8]) {
        if self.direction != Direction::ToInitiator || bhs.opcode() != Opcode::LOGIN_RESPONSE {
            return;
        }
        let text = pdu.get(BHS_BYTES..).unwrap_or_default();
        for pair in text.split(|byte| *byte == 0) {
            match pair {
                b"HeaderDigest=CRC32C" => self.told |= HEADER_DIGEST,
                b"DataDigest=CRC32C" => self.told |= DATA_DIGEST,
                _ => {}
            }
        }
        // T bit and next stage 3, status 0.
        if bhs.flags() & 0x83 == 0x83 && bhs.u16(36) == 0 {
            self.digests.store(self.told, Ordering::Release);
        }
    }

    fn harm(&self, opcode: Opcode) -> Option<Harm> {
        let mut faults = lock(&self.shared.faults);
        let mut found = None;
        for (at, fault) in faults.iter_mut().enumerate() {
            if fault.direction != self.direction || fault.opcode != opcode {
                continue;
            }
            match fault.skip.checked_sub(1) {
                Some(left) => fault.skip = left,
                None if found.is_none() => found = Some(at),
                None => {}
            }
        }
        found.map(|at| faults.remove(at).harm)
    }

    fn forward(&mut self, mut pdu: Vec<u8>) -> io::Result<()> {
        let bhs = header(&pdu);
        let harm = self.harm(bhs.opcode());
        let seen = Seen { connection: self.number, direction: self.direction, bhs, harm };
        lock(&self.shared.seen).push(seen);
        match harm {
            None => self.to.write_all(&pdu),
            Some(Harm::Drop) => Ok(()),
            Some(Harm::Header) => {
                pdu[18] ^= 0x04;
                self.to.write_all(&pdu)
            }
            Some(Harm::Data) => {
                let digests = self.digests.load(Ordering::Acquire);
                let at =
                    BHS_BYTES + bhs.ahs_bytes() + if digests & HEADER_DIGEST != 0 { 4 } else { 0 };
                if let Some(byte) = pdu.get_mut(at).filter(|_| bhs.data_bytes() > 0) {
                    *byte ^= 0x10;
                }
                self.to.write_all(&pdu)
            }
            Some(Harm::Twice) => self.to.write_all(&pdu).and_then(|()| self.to.write_all(&pdu)),
            Some(Harm::Delay(time)) => {
                std::thread::sleep(time);
                self.to.write_all(&pdu)
            }
            Some(Harm::CutBefore) => Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Harm::CutAfter) => {
                self.to.write_all(&pdu)?;
                // The PDU must arrive before the end of the connection.
                std::thread::sleep(Duration::from_millis(50));
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

fn header(pdu: &[u8]) -> Bhs {
    let mut bhs = Bhs([0; BHS_BYTES]);
    if let Some(bytes) = pdu.get(..BHS_BYTES) {
        bhs.put(0, bytes);
    }
    bhs
}
