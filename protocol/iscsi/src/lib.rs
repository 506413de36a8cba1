//! iSCSI (RFC 7143) without sockets, clocks or randomness.
//!
//! * [`pdu`] and [`framing`]: bytes to PDUs and back, without copying data.
//! * [`login`]: one connection from its first byte to full feature phase.
//! * [`session`]: everything after that, for all connections of a session.
//! * [`access`]: decisions of the owner: targets, portals, access, secrets.
//! * [`directory`]: the sessions of a portal group, for (re)instatement.
//! * [`initiator`]: the other end, small, for tests and proxies.
//!
//! The owner calls `handle_*` and drains `poll_*`. Time is an argument
//! ([`time::Timestamp`]); random numbers come from [`entropy::Entropy`].
//! [`framing`] is for TCP; [`iser`] is for RDMA and uses the rest unchanged.

pub mod access;
pub mod auth;
pub mod directory;
pub mod entropy;
pub mod framing;
pub mod initiator;
pub mod iser;
pub mod limits;
pub mod login;
pub mod names;
pub mod pdu;
mod recovery;
pub mod serial;
pub mod session;
pub mod text;
pub mod time;
mod tmf;
