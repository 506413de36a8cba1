//! Connections that the gateway's side has begun and ended.

use crate::net::connections::ConnectionLimits;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Stage of a connection at the gateway's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It was not begun: nobody has accepted it, or it was refused.
    Absent,
    Served,
    Ended,
}

/// Connections by the address of the client's end; true: it is served.
#[derive(Debug, Default)]
pub(crate) struct Served(RefCell<BTreeMap<SocketAddr, bool>>);

impl Served {
    /// Notes that the gateway serves a connection from now on.
    pub(crate) fn begin(&self, from: SocketAddr) {
        self.0.borrow_mut().insert(from, true);
    }

    /// Notes that the gateway has ended it.
    pub(crate) fn end(&self, from: SocketAddr) {
        self.0.borrow_mut().insert(from, false);
    }

    /// Returns the stage of a connection.
    pub(crate) fn stage(&self, from: SocketAddr) -> Stage {
        match self.0.borrow().get(&from) {
            None => Stage::Absent,
            Some(true) => Stage::Served,
            Some(false) => Stage::Ended,
        }
    }

    /// Returns the number of connections that are served.
    pub(crate) fn running(&self) -> usize {
        self.0.borrow().values().filter(|is_served| **is_served).count()
    }

    /// Checks that no host has more connections than it may.
    ///
    /// # Errors
    /// The number that one has.
    pub(crate) fn check_hosts(&self, limits: ConnectionLimits) -> Result<(), String> {
        let most = self.most_of_a_host();
        if most > limits.per_client {
            Err(format!("a host has {most} connections"))
        } else {
            Ok(())
        }
    }

    fn most_of_a_host(&self) -> usize {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for (from, is_served) in self.0.borrow().iter() {
            *counts.entry(from.ip()).or_default() += usize::from(*is_served);
        }
        counts.into_values().max().unwrap_or_default()
    }
}
