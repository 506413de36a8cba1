//! Reasons for the end of a connection, by fault.
//!
//! [`ConnectionEnd`] has one variant for each kind of reason. The kind alone
//! decides who is at fault, how the end is logged and how it is counted
//! ([`KINDS`]); the reason inside it is the text of the log line. Storage ends
//! no connection: its failures are answered with an error.

use crate::observe::data_path::Transport;
use crate::observe::throttle::Throttle;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;
use tracing::Level;
use zgate_fabric::{Disconnect, PostError};

/// Reason for the end of a connection.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The connection was no longer needed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The peer violated the protocol or exceeded a limit.
    #[error(transparent)]
    Misbehaved(#[from] Misbehaved),
    /// The peer took too long.
    #[error(transparent)]
    Slow(#[from] Slow),
    /// The peer may not use the service.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The network or a device failed.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The gateway stops.
    #[error("draining")]
    Stopping,
    /// The gateway had no resources for it.
    #[error("too many logins or TLS handshakes at once")]
    Overloaded,
    /// The gateway has a bug.
    #[error(transparent)]
    Bug(#[from] Bug),
}

/// Ends without a fault.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Closed {
    #[error("closed by the peer")]
    ByPeer,
    #[error("logged out")]
    LoggedOut,
    /// Closed with its session, by an initiator or an administrator.
    #[error("dropped")]
    Dropped,
    #[error("another connection replaced it")]
    Replaced,
    #[error("its session has ended")]
    SessionEnded,
    /// The kernel's keys are not replaced: the client connects again.
    #[error("the peer asked for other keys of TLS")]
    Rekeyed,
}

/// Violations of a protocol or of its limits.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Misbehaved {
    /// Bytes without the form of the protocol's messages, or longer ones than
    /// allowed.
    #[error("bad framing: {0}")]
    Framing(Box<str>),
    /// A violation of TLS, or a certificate that is refused.
    #[error("TLS: {0}")]
    Tls(Box<str>),
    #[error("a message is not an RPC call")]
    NotACall,
    #[error("an unexpected {0}")]
    Unexpected(&'static str),
    #[error("no common protocol version")]
    Version,
    /// A violation that the session has answered already.
    #[error("protocol error")]
    Session,
    /// Memory that is missing or wrong in a request.
    #[error("bad advertisement: {0}")]
    Advertisement(Box<str>),
    #[error("more calls than credits granted")]
    TooManyCalls,
}

/// Time limits that a peer exceeded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Slow {
    #[error("a host that no export names sent no call")]
    NoCall,
    #[error("a call was begun but not completed")]
    Unfinished,
    #[error("a call takes too long to arrive")]
    LongCall,
    #[error("the login exceeded its time limit")]
    Login,
    #[error("the TLS handshake exceeded its time limit")]
    Handshake,
    #[error("the peer does not read the last response")]
    LastResponse,
    #[error("the peer no longer answers")]
    Silent,
    #[error("the peer no longer reads")]
    Unread,
    #[error("the peer reads too slowly while others wait for memory")]
    Trickling,
    #[error("the peer no longer completes messages")]
    Stalled,
}

/// Reasons for which a peer may not use the service.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Refused {
    #[error("login refused")]
    Login,
    #[error("no export names the host any longer")]
    Host,
    #[error("its certificate has been revoked")]
    Certificate,
}

/// Failures of the network.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Lost {
    #[error("the connection was lost: {0}")]
    Socket(io::ErrorKind),
    #[error("{0}")]
    Rdma(Disconnect),
}

/// Bugs of the gateway.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Bug {
    #[error("it panicked")]
    Panicked,
    #[error("a message cannot be encoded: {0}")]
    Encoding(Box<str>),
    #[error("a reply is too long")]
    ReplyTooLong,
    #[error("a reply that is not in memory")]
    NotInMemory,
    #[error("no receive is posted")]
    NoReceive,
    #[error(transparent)]
    Post(PostError),
}

/// Kind of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Party at fault.
    pub fault: &'static str,
    /// Label of the metric.
    pub reason: &'static str,
    /// Level of a log line. Warnings are rate limited, because peers cause them
    /// at will.
    level: Level,
}

/// All kinds, in the order of the variants of [`ConnectionEnd`].
pub(crate) const KINDS: [Kind; 8] = [
    Kind { fault: "none", reason: "closed", level: Level::DEBUG },
    Kind { fault: "peer", reason: "protocol", level: Level::WARN },
    Kind { fault: "peer", reason: "slow", level: Level::DEBUG },
    Kind { fault: "peer", reason: "refused", level: Level::DEBUG },
    Kind { fault: "network", reason: "lost", level: Level::DEBUG },
    Kind { fault: "gateway", reason: "stopping", level: Level::DEBUG },
    Kind { fault: "gateway", reason: "overload", level: Level::WARN },
    Kind { fault: "gateway", reason: "bug", level: Level::ERROR },
];

impl ConnectionEnd {
    /// Returns the end caused by bytes that are not a message.
    pub(crate) fn framing(error: impl Display) -> Self {
        Misbehaved::Framing(error.to_string().into()).into()
    }

    /// Returns the index of its kind in [`KINDS`].
    fn kind(&self) -> usize {
        match self {
            Self::Closed(_) => 0,
            Self::Misbehaved(_) => 1,
            Self::Slow(_) => 2,
            Self::Refused(_) => 3,
            Self::Lost(_) => 4,
            Self::Stopping => 5,
            Self::Overloaded => 6,
            Self::Bug(_) => 7,
        }
    }
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            // No socket has this error: TLS found it.
            return Misbehaved::Tls(error.to_string().into()).into();
        }
        Lost::Socket(error.kind()).into()
    }
}

impl From<Disconnect> for ConnectionEnd {
    fn from(why: Disconnect) -> Self {
        if why == Disconnect::Peer { Closed::ByPeer.into() } else { Lost::Rdma(why).into() }
    }
}

impl From<PostError> for ConnectionEnd {
    fn from(error: PostError) -> Self {
        Bug::Post(error).into()
    }
}

/// Name of a connection of each [`Transport`] in the log.
const NAMES: [&str; 4] = ["connection", "RDMA connection", "iSCSI connection", "iSER connection"];

/// Ends of all connections: their counts, and the rate limits of their log
/// lines.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    counts: [AtomicU64; KINDS.len()],
    warnings: [[Throttle; KINDS.len()]; NAMES.len()],
}

impl Ends {
    /// Counts and logs the end of a connection. That of a login (`is_session`)
    /// is of interest to the administrator, whatever the reason.
    pub(crate) fn record(
        &self,
        end: &ConnectionEnd,
        transport: Transport,
        peer: impl Display,
        is_session: bool,
    ) {
        let (kind, name) = (end.kind(), NAMES[transport as usize]);
        self.counts[kind].fetch_add(1, Ordering::Relaxed);
        match KINDS[kind].level {
            Level::WARN => {
                if let Some(left_out) = self.warnings[transport as usize][kind].pass() {
                    tracing::warn!(left_out, %peer, why = %end, "closing the {name}");
                }
            }
            Level::ERROR => tracing::error!(%peer, why = %end, "a bug of zgate ends the {name}"),
            _ => {}
        }
        if is_session {
            tracing::info!(%peer, why = %end, "{name} closed");
        } else {
            tracing::debug!(%peer, why = %end, "{name} closed");
        }
    }

    /// Returns the number of ends of each kind.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Kind, u64)> {
        KINDS.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_of_test;

    fn one_of_each_kind() -> [ConnectionEnd; KINDS.len()] {
        [
            Closed::ByPeer.into(),
            ConnectionEnd::framing("record too long"),
            Slow::Unfinished.into(),
            Refused::Login.into(),
            io::Error::from(io::ErrorKind::ConnectionReset).into(),
            ConnectionEnd::Stopping,
            ConnectionEnd::Overloaded,
            PostError::TooLong.into(),
        ]
    }

    /// Returns the log of `run`, one line each: the level, then the text.
    fn logged(run: impl FnOnce()) -> Vec<String> {
        let ((), text) = log_of_test::logged(tracing::Level::DEBUG, run);
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn each_kind_has_its_fault_its_levels_and_its_count() {
        let expected = [
            ("none", "closed", "DEBUG", "closed by the peer"),
            ("peer", "protocol", "WARN", "bad framing: record too long"),
            ("peer", "slow", "DEBUG", "a call was begun but not completed"),
            ("peer", "refused", "DEBUG", "login refused"),
            ("network", "lost", "DEBUG", "the connection was lost: connection reset"),
            ("gateway", "stopping", "DEBUG", "draining"),
            ("gateway", "overload", "WARN", "too many logins or TLS handshakes at once"),
            ("gateway", "bug", "ERROR", "a message longer than the limit"),
        ];
        for (end, (fault, reason, level, text)) in one_of_each_kind().iter().zip(expected) {
            let ends = Ends::default();
            let lines = logged(|| ends.record(end, Transport::Tcp, "192.0.2.1", false));
            assert!(lines[0].starts_with(level), "{reason}: {lines:?}");
            assert!(lines.iter().all(|line| line.contains(text)), "{reason}: {lines:?}");
            let counted: Vec<_> = ends.counts().filter(|(_, count)| *count > 0).collect();
            let [(kind, 1)] = counted[..] else { panic!("{reason}: {counted:?}") };
            assert_eq!((kind.fault, kind.reason), (fault, reason));
        }
    }

    #[test]
    fn warnings_are_limited_for_each_transport_and_the_count_is_not() {
        let ends = Ends::default();
        let framing = ConnectionEnd::framing("garbage");
        let lines = logged(|| {
            for transport in [Transport::Tcp, Transport::Tcp, Transport::Iscsi] {
                ends.record(&framing, transport, "192.0.2.1", false);
            }
        });
        let warnings: Vec<_> = lines.iter().filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(warnings.len(), 2, "{lines:?}");
        assert!(warnings[0].contains("closing the connection"));
        assert!(warnings[1].contains("closing the iSCSI connection"));
        assert_eq!(ends.counts().map(|(_, count)| count).sum::<u64>(), 3);
    }

    #[test]
    fn the_end_of_a_session_is_in_the_log_at_the_default_level() {
        let ends = Ends::default();
        let closed = Closed::LoggedOut.into();
        let lines = logged(|| ends.record(&closed, Transport::Iser, "192.0.2.1", true));
        assert!(lines[0].starts_with("INFO") && lines[0].contains("iSER connection closed"));
    }

    #[test]
    fn a_peer_that_disconnects_is_not_at_fault() {
        assert_eq!(ConnectionEnd::from(Disconnect::Peer), Closed::ByPeer.into());
        assert_eq!(ConnectionEnd::from(Disconnect::Error), Lost::Rdma(Disconnect::Error).into());
    }
}
