//! Audit lines: one for each change by an administrator, and for each access
//! that is refused. All have the log target `audit`; those that a host can cause
//! are limited for each host.

use super::throttle::Throttle;
use ahash::RandomState;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_store::HostKey;

/// Number of rate limits. A host has one, by its address; those that share one
/// share its lines. With all hosts of the internet there are so many lines in
/// each period of a limit, and no more.
const LIMITS: usize = 256;

/// Party that asks for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A process that is connected to the admin socket.
    Process {
        /// Its user.
        uid: u32,
        /// Its number.
        pid: i32,
    },
    /// A client of the API over TCP.
    Remote {
        /// Its address.
        peer: SocketAddr,
        /// Name in its certificate; otherwise that it has a token.
        name: String,
    },
    /// A connection whose other end the kernel does not name.
    Unknown,
    /// A signal, whose sender is not known.
    Signal,
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { uid, pid } => write!(f, "uid {uid} pid {pid}"),
            Self::Remote { peer, name } => write!(f, "{name} at {peer}"),
            Self::Unknown => f.write_str("unknown"),
            Self::Signal => f.write_str("SIGHUP"),
        }
    }
}

/// Logs the outcome of a change that an administrator asked for. Texts are
/// escaped by the log.
pub(crate) fn change(by: &Asker, what: &str, outcome: Result<&str, &str>) {
    match outcome {
        Ok(outcome) => tracing::info!(target: "audit", %by, what, outcome, "change"),
        Err(reason) => tracing::warn!(target: "audit", %by, what, reason, "change refused"),
    }
}

/// Service that refuses access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refuser {
    Nfs,
    Iscsi,
    Http,
}

/// All services, with their names as labels.
pub(crate) const REFUSERS: [(Refuser, &str); 3] =
    [(Refuser::Nfs, "nfs"), (Refuser::Iscsi, "iscsi"), (Refuser::Http, "http")];

/// Rate limits and counts of one service.
#[derive(Debug)]
pub(crate) struct Refusals {
    limits: [Throttle; LIMITS],
    refused: AtomicU64,
    suppressed: AtomicU64,
}

impl Refusals {
    const fn new() -> Self {
        Self {
            limits: [const { Throttle::new() }; LIMITS],
            refused: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Counts a refusal. Returns the number of lines left out before, if there
    /// may be a line for this one.
    pub(crate) fn pass(&self, host: IpAddr) -> Option<u64> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // Keyed: nobody can choose addresses that share a limit with another.
        static KEY: OnceLock<RandomState> = OnceLock::new();
        let hash = KEY.get_or_init(RandomState::new).hash_one(HostKey::from(host));
        let left_out = self.limits[hash as usize % LIMITS].pass();
        if left_out.is_none() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        left_out
    }

    /// Returns the number of refusals, and of those without a line.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.refused.load(Ordering::Relaxed), self.suppressed.load(Ordering::Relaxed))
    }
}

/// Returns the limits of a service.
pub(crate) fn refusals(of: Refuser) -> &'static Refusals {
    static ALL: [Refusals; REFUSERS.len()] = [const { Refusals::new() }; REFUSERS.len()];
    &ALL[of as usize]
}

/// Writes the audit line of a refusal, unless there are too many of this host.
macro_rules! refused {
    ($service:ident, $host:expr, $($line:tt)+) => {{
        let service = $crate::observe::audit::Refuser::$service;
        if let Some(left_out) = $crate::observe::audit::refusals(service).pass($host) {
            tracing::warn!(target: "audit", left_out, $($line)+);
        }
    }};
}
pub(crate) use refused;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_does_not_silence_the_others() {
        let refusals = Refusals::new();
        let host = |last: u8| IpAddr::from([192, 0, 2, last]);
        assert_eq!(refusals.pass(host(1)), Some(0));
        for _ in 0..1000 {
            assert_eq!(refusals.pass(host(1)), None);
        }
        // Some of them may share the limit of the noisy one.
        let lines = (2..200).filter(|last| refusals.pass(host(*last)).is_some()).count();
        assert!(lines > 100, "{lines}");
        let (refused, suppressed) = refusals.counts();
        assert_eq!((refused, suppressed), (1199, 1199 - 1 - lines as u64));
    }

    #[test]
    fn many_hosts_cannot_cause_more_lines_than_there_are_limits() {
        let refusals = Refusals::new();
        let hosts = (0..100_000_u32).map(|host| IpAddr::from(host.to_be_bytes()));
        assert!(hosts.filter(|host| refusals.pass(*host).is_some()).count() <= LIMITS);
    }

    #[test]
    fn a_network_of_one_host_is_one_host() {
        let host = |text: &str| HostKey::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
    }

    #[test]
    fn who_asks_is_named() {
        assert_eq!(Asker::Process { uid: 0, pid: 7 }.to_string(), "uid 0 pid 7");
        assert_eq!(Asker::Signal.to_string(), "SIGHUP");
    }
}
