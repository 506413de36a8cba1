//! The environment of the product in the simulator.

use super::WALL_SECONDS;
use super::callbacks::ProtectedClient;
use crate::dice::Dice;
use crate::executor::{Domain, Executor, SECOND, lock};
use crate::network::Network;
use bytes::Bytes;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use zgate_nfs::runtime::{BoxedFuture, CallbackFailure, CallbackPath, ConnectionId, Now, Runtime};
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// The product's environment: virtual time, the seed's random numbers, tasks
/// that end with the server.
pub(super) struct ServerRuntime {
    pub(super) executor: Arc<Executor>,
    pub(super) network: Arc<Network>,
    pub(super) wall_jumps: Arc<AtomicI64>,
    pub(super) domain: Domain,
    pub(super) seed: u64,
    pub(super) dice: Mutex<Dice>,
    /// A planted fault: there is no other clock.
    pub(super) by_wall_clock: bool,
    /// Start of the server, if its clock runs five times as fast.
    pub(super) runs_fast_from: Option<u64>,
}

impl Runtime for ServerRuntime {
    fn spawn(&self, work: BoxedFuture<()>) {
        self.executor.spawn(self.domain, work);
    }

    fn callback(
        &self,
        path: CallbackPath,
        _: u32,
        call: Message,
    ) -> BoxedFuture<Result<Bytes, CallbackFailure>> {
        let network = Arc::clone(&self.network);
        if let CallbackPath::Protected(address, security) = path {
            let dice = Mutex::new(Dice::new(self.random(), "callback"));
            let (seed, now_seconds) = (self.seed, self.now().seconds());
            let client = ProtectedClient { network, seed, dice, address, security, now_seconds };
            return Box::pin(async move { client.call(&call).await });
        }
        Box::pin(async move {
            let call = call.flatten().ok_or(CallbackFailure::Unreachable)?;
            network.callback(path, call).await
        })
    }

    fn sleep(&self, milliseconds: u64) -> BoxedFuture<()> {
        Box::pin(self.executor.sleep(milliseconds * 1_000_000))
    }

    fn now(&self) -> Now {
        let nanos = self.executor.nanos();
        let ahead = self.runs_fast_from.map_or(0, |start| 4 * nanos.saturating_sub(start));
        let jumped = match self.by_wall_clock {
            true => self.wall_jumps.load(Ordering::Acquire) * SECOND as i64,
            false => 0,
        };
        let monotonic_nanos = (nanos + ahead).saturating_add_signed(jumped);
        let wall = Timestamp {
            seconds: WALL_SECONDS
                + (nanos / SECOND) as i64
                + self.wall_jumps.load(Ordering::Acquire),
            nanoseconds: (nanos % SECOND) as u32,
        };
        Now { wall, monotonic_nanos }
    }

    fn connected(&self, connection: ConnectionId) -> bool {
        self.network.connected(connection)
    }

    fn random(&self) -> u64 {
        lock(&self.dice).u64()
    }
}
