//! Unnamed hosts: connections from many addresses, each of which sends one of
//! the messages of [`super::sends`] and stays open until it must make room.

use super::sends::{ALL, FrontEnd, Random};
use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

/// Descriptors reserved for other uses than connections.
const OTHER_DESCRIPTORS: u64 = 64;
/// Bytes of answers read at once; their content is ignored.
const ANSWER_BYTES: usize = 64 << 10;

/// Arguments of the attack.
#[derive(Args, Debug)]
pub(crate) struct AttackArgs {
    #[arg(long)]
    nfs: SocketAddr,
    #[arg(long)]
    portal: SocketAddr,
    #[arg(long)]
    seconds: u64,
    #[arg(long)]
    addresses: u32,
    #[arg(long)]
    rate: u32,
    #[arg(long)]
    connections: u32,
}

/// Result of the attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AttackReport {
    /// Number of addresses.
    pub(crate) addresses: u32,
    /// Connections established.
    pub(crate) connections: u64,
    /// Most connections open at once.
    pub(crate) open_at_most: u64,
    /// Connections closed by the gateway, before or after it read the message.
    pub(crate) closed_by_gateway: u64,
    /// Connections that could not be established.
    pub(crate) failed: u64,
    /// Bytes sent.
    pub(crate) bytes_sent: u64,
    /// Bytes of answers received.
    pub(crate) bytes_answered: u64,
}

/// Attacks for the given time and prints the result.
///
/// # Errors
/// If no socket can be created at all.
pub(crate) fn run(args: &AttackArgs) -> io::Result<()> {
    let limit = descriptors()?;
    let most = u64::from(args.connections).min(limit.saturating_sub(OTHER_DESCRIPTORS)).max(1);
    let mut attack = Attack {
        args,
        random: Random::new(1),
        open: VecDeque::new(),
        report: AttackReport { addresses: args.addresses, ..AttackReport::default() },
        scratch: vec![0; ANSWER_BYTES],
    };
    let begun = Instant::now();
    let mut number = 0u64;
    while begun.elapsed() < Duration::from_secs(args.seconds) {
        let due = (begun.elapsed().as_secs_f64() * f64::from(args.rate)) as u64;
        while number < due {
            attack.one(number);
            number += 1;
            while attack.open.len() as u64 > most {
                attack.end_oldest();
            }
        }
        let open = attack.open.len() as u64;
        attack.report.open_at_most = attack.report.open_at_most.max(open);
        attack.forget_closed();
        std::thread::sleep(Duration::from_millis(2));
    }
    writeln!(io::stdout(), "{}", serde_json::to_string(&attack.report)?)
}

/// Raises the limit of descriptors as far as possible and returns it.
fn descriptors() -> io::Result<u64> {
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })?;
    Ok(now.maximum.unwrap_or(1 << 20))
}

/// Returns address `number` of 127.1.0.0/16 and on; never the named host's.
fn source(number: u32) -> Ipv4Addr {
    let host = number % 10_000;
    Ipv4Addr::new(127, 1 + (host / 62_500) as u8, (host / 250) as u8, (1 + host % 250) as u8)
}

fn connection(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

struct Attack<'a> {
    args: &'a AttackArgs,
    random: Random,
    /// Open connections, oldest first.
    open: VecDeque<TcpStream>,
    report: AttackReport,
    scratch: Vec<u8>,
}

impl Attack<'_> {
    fn one(&mut self, number: u64) {
        let (_, front_end, send) = ALL[(number % ALL.len() as u64) as usize];
        let to = if front_end == FrontEnd::Nfs { self.args.nfs } else { self.args.portal };
        // Each message is sent from each address.
        let from = source((number / ALL.len() as u64 % u64::from(self.args.addresses)) as u32);
        let Ok(mut stream) = connection(from, to) else {
            self.report.failed += 1;
            return;
        };
        self.report.connections += 1;
        let sent = send(&mut self.random);
        match stream.write(&sent) {
            Ok(count) => self.report.bytes_sent += count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => {
                self.report.closed_by_gateway += 1;
                return;
            }
        }
        self.open.push_back(stream);
    }

    /// Reads the answers; returns whether the connection is still open.
    fn stands(&mut self, mut stream: &TcpStream) -> bool {
        match stream.read(&mut self.scratch) {
            Ok(0) => false,
            Ok(count) => {
                self.report.bytes_answered += count as u64;
                true
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn end_oldest(&mut self) {
        if let Some(stream) = self.open.pop_front()
            && !self.stands(&stream)
        {
            self.report.closed_by_gateway += 1;
        }
    }

    /// Checks a part of the connections in each call.
    fn forget_closed(&mut self) {
        for _ in 0..self.open.len().min(64) {
            let Some(stream) = self.open.pop_front() else { return };
            if self.stands(&stream) {
                self.open.push_back(stream);
            } else {
                self.report.closed_by_gateway += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn attackers_are_many_of_the_loopback_range_and_never_the_named_host() {
        let sources: HashSet<Ipv4Addr> = (0..10_000).map(source).collect();
        assert_eq!(sources.len(), 10_000);
        assert!(sources.iter().all(|one| one.is_loopback() && *one != Ipv4Addr::LOCALHOST));
        assert!(sources.iter().all(|one| one.octets()[1] == 1 && one.octets()[3] != 0));
    }
}
