//! Bounds on connections to NFSv4.0 clients' callback addresses. Each callback
//! uses its own connection; clients determine how many are needed and how long
//! they last, so connections are limited per host and in total.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most callback connections at a time; each uses a descriptor.
pub(crate) const MAX_CALLBACK_CONNECTIONS: usize = 64;
/// Most callback connections to one host.
pub(crate) const MAX_CALLBACK_CONNECTIONS_PER_HOST: usize = 4;
/// Most callbacks to one host that wait for a connection or have one; further
/// ones fail at once.
pub(crate) const MAX_CALLBACKS_PER_HOST: usize = 1024;

const _: () = assert!(MAX_CALLBACK_CONNECTIONS_PER_HOST * 8 <= MAX_CALLBACK_CONNECTIONS);
const _: () = assert!(MAX_CALLBACK_CONNECTIONS_PER_HOST < MAX_CALLBACKS_PER_HOST);

#[derive(Debug)]
struct Host {
    callbacks: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

/// Callback connections to all hosts.
#[derive(Debug)]
pub(crate) struct CallbackConnections {
    all: Arc<Semaphore>,
    per_host: usize,
    /// Hosts with pending callbacks.
    hosts: Mutex<HashMap<IpAddr, Weak<Host>>>,
}

/// Permit for one connection, returned on drop.
#[derive(Debug)]
pub(crate) struct Leave {
    _callback: OwnedSemaphorePermit,
    _of_host: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _host: Arc<Host>,
}

impl Default for CallbackConnections {
    fn default() -> Self {
        Self::new(MAX_CALLBACK_CONNECTIONS, MAX_CALLBACK_CONNECTIONS_PER_HOST)
    }
}

impl CallbackConnections {
    /// Permits of the same kind for something else that callbacks need.
    pub(crate) fn new(all: usize, per_host: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), per_host, hosts: Mutex::default() }
    }

    /// Waits for a permit for one more connection to the host; `None` if too
    /// many callbacks wait for that host already.
    pub(crate) async fn leave(&self, address: IpAddr) -> Option<Leave> {
        let host = self.host(address.to_canonical());
        let callback = Arc::clone(&host.callbacks).try_acquire_owned().ok()?;
        let of_host = Arc::clone(&host.connections).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Leave { _callback: callback, _of_host: of_host, _of_all: of_all, _host: host })
    }

    fn host(&self, address: IpAddr) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(&address).and_then(Weak::upgrade) {
            return host;
        }
        hosts.retain(|_, host| host.strong_count() > 0);
        let host = Arc::new(Host {
            callbacks: Arc::new(Semaphore::new(MAX_CALLBACKS_PER_HOST)),
            connections: Arc::new(Semaphore::new(self.per_host)),
        });
        hosts.insert(address, Arc::downgrade(&host));
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn host(last: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, last as u8])
    }

    #[test]
    fn connections_are_bounded_by_host_and_in_all() {
        let connections = CallbackConnections::default();
        let now = |address| connections.leave(address).now_or_never().flatten();
        let mut held: Vec<Leave> = Vec::new();
        let hosts = MAX_CALLBACK_CONNECTIONS / MAX_CALLBACK_CONNECTIONS_PER_HOST;
        for number in 0..hosts {
            while let Some(leave) = now(host(number)) {
                held.push(leave);
            }
            assert_eq!(held.len(), (number + 1) * MAX_CALLBACK_CONNECTIONS_PER_HOST);
        }
        assert!(now(host(hosts)).is_none(), "all are in use");
        held.swap_remove(0);
        assert!(now(host(hosts)).is_some());
        drop(held);
        assert!(now(host(0)).is_some());
        assert_eq!(connections.hosts.lock().unwrap().len(), 1, "idle hosts are forgotten");
    }

    #[test]
    fn waiting_callbacks_are_bounded_too() {
        let connections = CallbackConnections::default();
        let mut waiting: Vec<_> =
            (0..MAX_CALLBACKS_PER_HOST).map(|_| Box::pin(connections.leave(host(1)))).collect();
        let begun: Vec<_> = waiting.iter_mut().map(|one| one.now_or_never()).collect();
        let given = begun.iter().filter(|one| matches!(one, Some(Some(_)))).count();
        assert_eq!(given, MAX_CALLBACK_CONNECTIONS_PER_HOST);
        assert!(matches!(connections.leave(host(1)).now_or_never(), Some(None)));
        drop(waiting);
        drop(begun);
        assert!(connections.leave(host(1)).now_or_never().flatten().is_some());
    }
}
