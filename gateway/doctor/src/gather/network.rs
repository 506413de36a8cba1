//! Interfaces, routes and path MTUs.

use crate::facts::{HostPath, PathFacts, Probe};
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;
use zgate_control::{SystemTool, Tool, ToolError};

/// Time limit of a ping or `ip`, in seconds.
const QUESTION_SECONDS: u64 = 10;
/// Time limit of a connection attempt.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Length of IP and ICMP headers, in bytes.
const HEADERS_V4: u64 = 28;
const HEADERS_V6: u64 = 48;
/// Payload of the packet that tests reachability, in bytes.
const SMALL_PAYLOAD: u64 = 56;
/// Usual MTUs, largest first: jumbo frames, Ethernet, PPPoE, tunnels, and the
/// smallest of IPv6.
const USUAL_MTUS: [u64; 9] = [9000, 8900, 4096, 2048, 1500, 1492, 1450, 1400, 1280];

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// Largest packet of the interface, in bytes.
    pub(crate) mtu: u64,
}

fn of_interface(name: &str, what: &str) -> Option<String> {
    // Names come from `ip`; a slash would lead to another directory.
    let text =
        fs::read_to_string(format!("/sys/class/net/{}/{what}", name.replace('/', ""))).ok()?;
    Some(text.trim().to_owned())
}

/// Returns an interface's speed; none for interfaces without one.
pub(crate) fn speed_megabits(name: &str) -> Option<u64> {
    of_interface(name, "speed")?.parse().ok()
}

/// Returns the interface of the route to an address.
///
/// # Errors
/// The error of `ip`.
pub(crate) fn device(tool: &dyn Tool, address: IpAddr) -> Result<Device, String> {
    let said = tool.run("ip", &["-o", "route", "get", &address.to_string()]);
    let said = said.map_err(|error| error.to_string())?;
    let name = word_after(&said, "dev").ok_or_else(|| format!("no route: {}", said.trim()))?;
    let mtu = of_interface(&name, "mtu").and_then(|text| text.parse().ok());
    mtu.map(|mtu| Device { name: name.clone(), mtu }).ok_or(format!("no interface {name}"))
}

fn word_after(text: &str, key: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|word| *word != key);
    words.nth(1).map(str::to_owned)
}

/// Examines the paths to hosts, all at the same time.
pub(crate) fn paths(asked: &[String], found: &[IpAddr], port: Option<u16>) -> PathFacts {
    let asked = asked.iter().map(|host| (host.clone(), true));
    let found = found.iter().map(|address| (address.to_string(), false));
    let threads: Vec<_> = asked
        .chain(found)
        .map(|(host, asked_for)| thread::spawn(move || path(&host, asked_for, port)))
        .collect();
    PathFacts { hosts: threads.into_iter().filter_map(|thread| thread.join().ok()).collect() }
}

fn resolve(host: &str) -> Result<IpAddr, String> {
    let mut addresses = (host, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    addresses.next().map(|address| address.ip()).ok_or_else(|| "the name has no address".to_owned())
}

fn path(host: &str, asked_for: bool, port: Option<u16>) -> HostPath {
    let tool = SystemTool { limit_seconds: QUESTION_SECONDS };
    let mut path = HostPath {
        host: host.to_owned(),
        asked_for,
        address: None,
        problem: None,
        device: String::new(),
        device_mtu: 0,
        probe: Probe::NotTried("no way there".to_owned()),
        port: None,
    };
    let found = resolve(host).and_then(|address| Ok((address, device(&tool, address)?)));
    let (address, device) = match found {
        Ok(found) => found,
        Err(problem) => {
            path.problem = Some(problem);
            return path;
        }
    };
    path.address = Some(address);
    path.port = port.filter(|_| asked_for).map(|port| {
        let there = SocketAddr::new(address, port);
        let connected = TcpStream::connect_timeout(&there, CONNECT_PATIENCE);
        (port, connected.err().map(|error| error.to_string()))
    });
    path.probe = if device.name == "lo" {
        Probe::NotTried("the host is this machine".to_owned())
    } else {
        probe(address, device.mtu, |payload| ping(&tool, address, payload))
    };
    path.device = device.name;
    path.device_mtu = device.mtu;
    path
}

/// Result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echo {
    Answered,
    Silent,
    /// A hop, or this machine, reported the MTU.
    TooLarge(u64),
    /// The packet could not be sent.
    Failed,
}

/// Sends three packets that must not be fragmented; one answer is enough.
fn ping(tool: &dyn Tool, address: IpAddr, payload: u64) -> Echo {
    let (payload, address) = (payload.to_string(), address.to_string());
    let arguments =
        ["-n", "-q", "-c", "3", "-i", "0.3", "-W", "1", "-M", "do", "-s", &payload, &address];
    match tool.run("ping", &arguments) {
        Ok(_) => Echo::Answered,
        Err(ToolError::Failed { said, .. }) => told_mtu(&said).map_or(Echo::Silent, Echo::TooLarge),
        Err(_) => Echo::Failed,
    }
}

/// Parses "message too long, mtu=1500" or "Frag needed and DF set (mtu =
/// 1500)".
fn told_mtu(said: &str) -> Option<u64> {
    let after = said.to_lowercase().split_once("mtu")?.1.to_owned();
    let digits: String = after
        .trim_start_matches([' ', '=', ':'])
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// Determines which packet sizes arrive.
fn probe(address: IpAddr, mtu: u64, ping: impl Fn(u64) -> Echo) -> Probe {
    let headers = if address.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    match ping(SMALL_PAYLOAD) {
        Echo::Answered => {}
        Echo::Failed => return Probe::NotTried("ping cannot be run here".to_owned()),
        Echo::Silent | Echo::TooLarge(_) => return Probe::Silent,
    }
    match ping(mtu.saturating_sub(headers)) {
        Echo::Answered => return Probe::Full,
        Echo::TooLarge(told) => return Probe::Told { mtu: told },
        Echo::Failed => return Probe::NotTried("ping cannot be run here".to_owned()),
        Echo::Silent => {}
    }
    let smaller = USUAL_MTUS.into_iter().filter(|usual| *usual < mtu);
    for usual in smaller {
        match ping(usual - headers) {
            Echo::Answered => return Probe::Vanish { largest: usual },
            Echo::TooLarge(told) => return Probe::Told { mtu: told },
            Echo::Silent | Echo::Failed => {}
        }
    }
    Probe::Vanish { largest: SMALL_PAYLOAD + headers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_packet_is_found() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let takes = |largest: u64| {
            move |payload: u64| {
                if payload + HEADERS_V4 <= largest { Echo::Answered } else { Echo::Silent }
            }
        };
        assert_eq!(probe(address, 9000, takes(9000)), Probe::Full);
        assert_eq!(probe(address, 9000, takes(1500)), Probe::Vanish { largest: 1500 });
        assert_eq!(probe(address, 1500, takes(600)), Probe::Vanish { largest: 84 });
        assert_eq!(probe(address, 1500, |_| Echo::Silent), Probe::Silent);
        let told = |payload| if payload > 1400 { Echo::TooLarge(1400) } else { Echo::Answered };
        assert_eq!(probe(address, 1500, told), Probe::Told { mtu: 1400 });
    }

    #[test]
    fn what_ping_and_ip_say() {
        assert_eq!(told_mtu("ping: local error: message too long, mtu=1500"), Some(1500));
        assert_eq!(
            told_mtu("From 10.0.0.9 icmp_seq=1 Frag needed and DF set (mtu = 1400)"),
            Some(1400)
        );
        assert_eq!(told_mtu("3 packets transmitted, 0 received, 100% packet loss"), None);
        let said = "10.9.0.2 dev veth-a src 10.9.0.1 uid 0 \\    cache \n";
        assert_eq!(word_after(said, "dev").as_deref(), Some("veth-a"));
        let lo = device(&SystemTool::default(), "127.0.0.1".parse().unwrap());
        // Machines without `ip` cannot be tested.
        if let Ok(lo) = lo {
            assert_eq!(lo.name, "lo");
        }
    }
}
