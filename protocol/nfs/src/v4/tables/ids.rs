//! Client ids, session ids and stateids. They cannot be guessed: each contains
//! at least 64 random bits, since on a session without protection (SP4_NONE)
//! the id is the only proof of a caller (RFC 8881 §2.10.8.3). Stateids also
//! contain the boot epoch, so that one from before a restart
//! (NFS4ERR_STALE_STATEID) is distinguished from one that never existed.
//!
//! Ids are not compared with those in use: with a million of them, the next one
//! is a duplicate with a probability of 2^-44.

use crate::runtime::Runtime;
use std::sync::Arc;
use zgate_nfs_wire::v4::{ClientId, SessionId, Stateid};

/// The constant part of a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey(pub [u8; 12]);

impl StateKey {
    /// The first in their order.
    pub const LEAST: Self = Self([0; 12]);
    /// The last in their order.
    pub const GREATEST: Self = Self([0xff; 12]);

    /// The stateid with this version.
    #[must_use]
    pub fn stateid(self, seqid: u32) -> Stateid {
        Stateid { seqid, other: self.0 }
    }
}

impl From<Stateid> for StateKey {
    fn from(stateid: Stateid) -> Self {
        Self(stateid.other)
    }
}

/// Generates ids.
pub struct IdSource {
    boot_epoch: u32,
    runtime: Arc<dyn Runtime>,
}

impl IdSource {
    /// Ids of the server start `boot_epoch`, with random numbers of `runtime`.
    #[must_use]
    pub fn new(boot_epoch: u32, runtime: Arc<dyn Runtime>) -> Self {
        Self { boot_epoch, runtime }
    }

    /// A new client id. One from before a restart is unknown like any other
    /// (NFS4ERR_STALE_CLIENTID, RFC 7530 §9.1.1, RFC 8881 §15.1.10.4).
    pub fn client(&self) -> ClientId {
        ClientId(self.runtime.random())
    }

    /// A new session id.
    pub fn session(&self) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.runtime.random().to_be_bytes());
        id[8..].copy_from_slice(&self.runtime.random().to_be_bytes());
        SessionId(id)
    }

    /// A new stateid's constant part.
    pub fn state(&self) -> StateKey {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.boot_epoch.to_be_bytes());
        other[4..].copy_from_slice(&self.runtime.random().to_be_bytes());
        StateKey(other)
    }

    /// True if the stateid is from an earlier start.
    #[must_use]
    pub fn is_stale(&self, stateid: Stateid) -> bool {
        stateid.other[..4] != self.boot_epoch.to_be_bytes()
    }

    /// SETCLIENTID's confirm verifier, known only to its receiver.
    pub fn verifier(&self) -> [u8; 8] {
        self.runtime.random().to_be_bytes()
    }
}
