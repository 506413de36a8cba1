//! Connections that are logging in: their number, and the choice of one to end
//! when there are too many.
//!
//! Before the end of a login the initiator is unknown, so connections cannot be
//! told apart. A genuine login takes milliseconds: if there are too many, the
//! oldest one is ended, unless all of them are new.

use super::limits::{LOGIN_LEAST_TIME, MAX_LOGINS, MAX_LOGINS_PER_HOST};
use crate::net::connection_end::{ConnectionEnd, Slow};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use zgate_store::HostKey;

/// All running logins, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    pending: VecDeque<PendingLogin>,
}

#[derive(Debug)]
struct PendingLogin {
    number: u64,
    host: HostKey,
    since: Instant,
    /// Dropped to end the login.
    _keep: oneshot::Sender<()>,
}

/// Reservation of one login, returned on drop.
#[derive(Debug)]
pub(crate) struct Ticket {
    logins: Arc<Logins>,
    number: u64,
    kept: oneshot::Receiver<()>,
}

impl Logins {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a login; `None` if there are too many, in total or from its host.
    pub(crate) fn begin(self: &Arc<Self>, from: IpAddr) -> Option<Ticket> {
        let (host, now) = (HostKey::from(from), Instant::now());
        let mut table = self.lock();
        let of_host = table.pending.iter().filter(|login| login.host == host).count();
        if of_host >= MAX_LOGINS_PER_HOST {
            return None;
        }
        if table.pending.len() >= MAX_LOGINS {
            let oldest = table.pending.front()?;
            if now.duration_since(oldest.since) < LOGIN_LEAST_TIME {
                return None;
            }
            table.pending.pop_front();
        }
        let number = table.next;
        table.next += 1;
        let (keep, kept) = oneshot::channel();
        table.pending.push_back(PendingLogin { number, host, since: now, _keep: keep });
        Some(Ticket { logins: Arc::clone(self), number, kept })
    }
}

impl Ticket {
    /// Runs the login for at most `limit`.
    ///
    /// # Errors
    /// The reason for which it was ended.
    pub(crate) async fn within<T>(
        &mut self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, ConnectionEnd> {
        tokio::select! {
            biased;
            done = tokio::time::timeout(limit, work) => done.map_err(|_| Slow::Login.into()),
            _ = &mut self.kept => Err(ConnectionEnd::Overloaded),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.logins.lock();
        if let Some(at) = table.pending.iter().position(|login| login.number == self.number) {
            table.pending.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(logins: &Arc<Logins>, host: u16) -> Option<Ticket> {
        let [high, low] = host.to_be_bytes();
        logins.begin(IpAddr::from([10, 0, high, low]))
    }

    #[tokio::test(start_paused = true)]
    async fn one_host_does_not_take_all_logins() {
        let logins = Arc::new(Logins::default());
        let begun: Vec<_> = (0..1000).map_while(|_| from(&logins, 1)).collect();
        assert_eq!(begun.len(), MAX_LOGINS_PER_HOST);
        assert!(logins.begin("::ffff:10.0.0.1".parse().unwrap()).is_none());
        let v6 = |n: u32| logins.begin(format!("2001:db8::{n:x}").parse().unwrap());
        let network: Vec<_> = (0..1000).map_while(v6).collect();
        assert_eq!(network.len(), MAX_LOGINS_PER_HOST);
        drop(begun);
        assert!(from(&logins, 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_long_makes_room_for_who_comes() {
        let logins = Arc::new(Logins::default());
        let mut idle: Vec<_> = (0..2000).map_while(|n| from(&logins, n)).collect();
        assert_eq!(idle.len(), MAX_LOGINS);
        // All are new: the latest one must retry.
        assert!(from(&logins, 3000).is_none());
        tokio::time::advance(LOGIN_LEAST_TIME).await;
        let late = from(&logins, 3000).unwrap();
        let forever = std::future::pending::<()>();
        let ended = idle[0].within(Duration::from_secs(3600), forever).await;
        assert_eq!(ended, Err(ConnectionEnd::Overloaded));
        let forever = std::future::pending::<()>();
        let ended = idle[1].within(Duration::from_secs(5), forever).await;
        assert_eq!(ended, Err(Slow::Login.into()));
        assert_eq!(idle[1].within(Duration::from_secs(5), async { 7 }).await, Ok(7));
        drop((idle, late));
        assert!(logins.lock().pending.is_empty());
    }
}
