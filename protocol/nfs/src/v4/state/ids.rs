//! Client ids, session ids and stateids. Each carries the boot epoch, so that
//! one from before a restart is told apart from one that never was.

use crate::v4::wire::{ClientId, SessionId, Stateid};
use std::sync::atomic::{AtomicU64, Ordering};

/// The constant part of a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey(pub [u8; 12]);

impl StateKey {
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

/// Hands out ids.
#[derive(Debug)]
pub struct IdSource {
    boot_epoch: u32,
    next: AtomicU64,
}

impl IdSource {
    /// Ids of the start numbered `boot_epoch`.
    #[must_use]
    pub fn new(boot_epoch: u32) -> Self {
        Self { boot_epoch, next: AtomicU64::new(1) }
    }

    /// A number not handed out before in this start.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A new client id.
    pub fn client(&self) -> ClientId {
        ClientId(u64::from(self.boot_epoch) << 32 | self.number() & 0xffff_ffff)
    }

    /// A new session id of `client`.
    pub fn session(&self, client: ClientId) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&client.0.to_be_bytes());
        id[8..].copy_from_slice(&self.number().to_be_bytes());
        SessionId(id)
    }

    /// A new stateid's constant part.
    pub fn state(&self) -> StateKey {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.boot_epoch.to_be_bytes());
        other[4..].copy_from_slice(&self.number().to_be_bytes());
        StateKey(other)
    }

    /// Whether the stateid is of an earlier start.
    #[must_use]
    pub fn is_stale(&self, stateid: Stateid) -> bool {
        stateid.other[..4] != self.boot_epoch.to_be_bytes()
    }

    /// Eight bytes that differ for each call, for SETCLIENTID's confirm
    /// verifier and directory verifiers.
    pub fn verifier(&self) -> [u8; 8] {
        (u64::from(self.boot_epoch) << 32 | self.number()).to_be_bytes()
    }
}
