//! Peers of a gateway, as a run sees them.

use super::client_end::ClientEnd;
use super::served::{Served, Stage};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time since the beginning.
    pub at: Duration,
    /// The same without the time of a hold, in which nobody is slow.
    pub served: Duration,
    pub is_held: bool,
    pub is_draining: bool,
}

/// The gateway, as its peers see it.
pub(crate) struct Site {
    /// Address of the listener.
    pub address: SocketAddr,
    pub served: Rc<Served>,
}

/// Anybody who connects.
pub(crate) trait Peer {
    fn name(&self) -> &str;

    /// Does what is possible and due; returns whether it did anything.
    ///
    /// # Errors
    /// The gateway's violation.
    fn act(&mut self, now: Now, site: &Site) -> Result<bool, String>;

    /// Looks at what has become of its connection. Not called while the gateway drains.
    ///
    /// # Errors
    /// The gateway's violation.
    fn look(&mut self, _now: Now, _site: &Site) -> Result<(), String> {
        Ok(())
    }

    /// Returns the address of its end, once it has connected.
    fn address(&self) -> Option<SocketAddr>;

    /// Returns the moment of its next act, if it is known.
    fn next(&self, site: &Site) -> Option<Duration>;

    /// Returns whether nothing is left to happen to it.
    fn is_done(&self, site: &Site) -> bool;

    /// Returns the complaint about what the gateway owes for too long. Not called while
    /// the gateway drains.
    fn overdue(&self, now: Now, site: &Site) -> Option<String>;

    /// Returns its end of a connection on which it waits for an answer, and the step of time
    /// in which it looks for it.
    fn waiting(&self) -> Option<(&ClientEnd, Duration)> {
        None
    }

    /// Returns whether an answer that waits for nothing is not there, for the first time.
    fn is_surprised(&mut self) -> bool {
        false
    }

    /// Returns whether there is no answer yet to something that was sent in a hold.
    fn waits_since_hold(&self) -> bool {
        false
    }

    /// Learns that the gateway stops.
    fn drain_begins(&mut self) {}

    /// Returns whether it takes no answers, so that its connection may outlast a drain.
    fn may_outlast_drain(&self) -> bool {
        false
    }

    /// Says how it fared.
    fn outcome(&self, site: &Site) -> String;

    /// Resets its connection.
    fn leave(&mut self);

    /// Returns the stage of its connection, once it has connected.
    fn stage(&self, site: &Site) -> Option<Stage> {
        self.address().map(|address| site.served.stage(address))
    }
}
