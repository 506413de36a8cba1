//! The event loop of one connection, for all protocols and transports.
//!
//! A connection makes all progress that is possible, then waits for its next
//! event. When the gateway stops, it finishes its requests and ends; when it is
//! handed over, it finishes them and waits. The connection supplies the events and their handling ([`Connection`]); the loop
//! is compiled for each kind, so that a request costs no indirect call.

use super::boundary;
use super::connection_end::ConnectionEnd;
use super::core::Core;
use super::drain::{Drain, Phase};
use crate::observe::data_path::Transport;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// Most events in a row for which a connection does not wait, until others of its core have
/// their turn. One may be a megabyte that is received.
const MAX_IN_A_ROW: u32 = 16;

/// Event of a connection.
pub(crate) enum Event<F, T, O> {
    /// A request has finished.
    Finished(F),
    /// The transport has data, or has sent some.
    Transport(T),
    /// Another task has work for the connection.
    Outside(O),
}

/// The parts of a connection that its protocol and transport supply. Each error
/// ends the connection.
pub(crate) trait Connection {
    /// An [`Event`] of its own kinds.
    type Event;

    /// Makes all progress that is possible without waiting.
    async fn advance(&mut self) -> Result<(), ConnectionEnd>;

    /// Waits for the next event. Cancel safe.
    async fn event(&mut self) -> Result<Self::Event, ConnectionEnd>;

    /// Handles an event; returns whether it may allow progress.
    async fn handle(&mut self, event: Self::Event) -> Result<bool, ConnectionEnd>;

    /// Stops taking requests, because the gateway stops.
    fn begin_drain(&mut self);

    /// Has the peer keep its requests, or takes them again. `Ok(false)`: the
    /// transport cannot do that, so that the connection ends as at a stop.
    fn hold(&mut self, _is_held: bool) -> Result<bool, ConnectionEnd> {
        Ok(false)
    }

    /// Returns whether no request runs and the peer has all replies.
    fn is_idle(&self) -> bool;

    /// Takes leave of the peer after the last request.
    async fn say_goodbye(&mut self) {}

    /// Returns the time to the next [`Self::check`]; `None` if there are none.
    fn check_period(&mut self) -> Option<Duration>;

    /// Checks whether the peer exceeds a time limit.
    fn check(&mut self) -> Result<(), ConnectionEnd>;

    /// Returns the time after which a connection that waits for something without
    /// an event, such as memory that others hold, checks and tries again.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// Serves a connection until it ends; counts and logs its end.
pub(crate) async fn serve(
    connection: &mut impl Connection,
    core: &Core,
    transport: Transport,
    peer: impl Display,
    is_session: bool,
) {
    let run = async {
        let Err(end) = run(connection, &core.network.drain).await;
        end
    };
    let end = boundary::connection(run).await;
    core.network.ends.record(&end, transport, peer, is_session);
}

async fn run(connection: &mut impl Connection, drain: &Drain) -> Result<Infallible, ConnectionEnd> {
    let _counted = drain.connection();
    let period = connection.check_period();
    let mut is_timed = period.is_some();
    let mut check = pin!(tokio::time::sleep(period.unwrap_or(Duration::MAX)));
    let mut phase = Phase::Serving;
    if drain.phase() == Phase::Held {
        phase = enter(connection, Phase::Held)?;
    }
    let mut changed = pin!(drain.after(phase));
    let mut rest = None;
    let mut may_advance = true;
    let mut in_a_row = 0;
    loop {
        if may_advance {
            connection.advance().await?;
            if phase != Phase::Serving {
                match (phase, connection.is_idle()) {
                    (Phase::Draining, true) => {
                        connection.say_goodbye().await;
                        return Err(ConnectionEnd::Stopping);
                    }
                    (_, true) => rest = rest.or_else(|| Some(drain.rest())),
                    (_, false) => rest = None,
                }
            }
            if let Some(pause) = connection.retry_after() {
                let soon = Instant::now() + pause;
                let soon = if is_timed { check.deadline().min(soon) } else { soon };
                check.as_mut().reset(soon);
                is_timed = true;
            }
        }
        may_advance = tokio::select! {
            biased;
            event = next_event(connection, &mut in_a_row) => connection.handle(event?).await?,
            now = changed.as_mut(), if phase != Phase::Draining => {
                (phase, rest) = (enter(connection, now)?, None);
                changed.set(drain.after(phase));
                true
            }
            () = check.as_mut(), if is_timed => {
                // Who has to wait is not slow.
                if phase != Phase::Held {
                    connection.check()?;
                }
                let period = connection.check_period();
                is_timed = period.is_some();
                if let Some(next) = period {
                    check.as_mut().reset(Instant::now() + next);
                }
                true
            }
        };
    }
}

/// Waits for the next event of a connection. Cancel safe. The wait for a socket that is
/// readable already takes nothing of its task's budget: a peer that sends as fast as it is
/// served would keep the thread for itself, and its own connection from the end of the
/// gateway and from all time limits.
async fn next_event<C: Connection>(
    connection: &mut C,
    in_a_row: &mut u32,
) -> Result<C::Event, ConnectionEnd> {
    if *in_a_row >= MAX_IN_A_ROW {
        *in_a_row = 0;
        tokio::task::yield_now().await;
    }
    *in_a_row += 1;
    let mut event = pin!(connection.event());
    poll_fn(|task| {
        let polled = event.as_mut().poll(task);
        if polled.is_pending() {
            *in_a_row = 0;
        }
        polled
    })
    .await
}

/// Has a connection follow the gateway into a phase; returns that of the
/// connection.
fn enter(connection: &mut impl Connection, phase: Phase) -> Result<Phase, ConnectionEnd> {
    let is_held = phase == Phase::Held;
    if phase != Phase::Draining && connection.hold(is_held)? {
        return Ok(phase);
    }
    connection.begin_drain();
    Ok(Phase::Draining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::connection_end::{Closed, Slow};
    use crate::net::in_flight::InFlight;
    use tokio::sync::oneshot;

    /// A connection with one request, which ends when its sender is dropped.
    struct OneRequest {
        running: InFlight<()>,
        may_end: bool,
        advances: usize,
        checks: usize,
        is_draining: bool,
        said_goodbye: bool,
        waits_for_memory: bool,
        has_period: bool,
        can_be_held: bool,
        holds: Vec<bool>,
    }

    fn one_request() -> (OneRequest, oneshot::Sender<()>) {
        let (request, ends) = oneshot::channel::<()>();
        let mut running = InFlight::default();
        running.push(1, Box::pin(async move { drop(ends.await) }));
        let connection = OneRequest {
            running,
            may_end: false,
            advances: 0,
            checks: 0,
            is_draining: false,
            said_goodbye: false,
            waits_for_memory: false,
            has_period: true,
            can_be_held: true,
            holds: Vec::new(),
        };
        (connection, request)
    }

    impl Connection for OneRequest {
        type Event = ();

        async fn advance(&mut self) -> Result<(), ConnectionEnd> {
            self.advances += 1;
            let is_over = self.running.is_empty() && self.may_end;
            if is_over { Err(Closed::ByPeer.into()) } else { Ok(()) }
        }

        async fn event(&mut self) -> Result<(), ConnectionEnd> {
            match self.running.next().await {
                Some(()) => Ok(()),
                None => std::future::pending().await,
            }
        }

        async fn handle(&mut self, (): ()) -> Result<bool, ConnectionEnd> {
            Ok(true)
        }

        fn begin_drain(&mut self) {
            self.is_draining = true;
        }

        fn hold(&mut self, is_held: bool) -> Result<bool, ConnectionEnd> {
            self.holds.push(is_held);
            Ok(self.can_be_held)
        }

        fn is_idle(&self) -> bool {
            self.running.is_empty()
        }

        async fn say_goodbye(&mut self) {
            assert!(self.is_draining);
            self.said_goodbye = true;
        }

        fn check_period(&mut self) -> Option<Duration> {
            self.has_period.then_some(Duration::from_secs(60))
        }

        fn check(&mut self) -> Result<(), ConnectionEnd> {
            self.checks += 1;
            if self.checks == 3 { Err(Slow::Unfinished.into()) } else { Ok(()) }
        }

        fn retry_after(&self) -> Option<Duration> {
            self.waits_for_memory.then_some(Duration::from_millis(10))
        }
    }

    /// A connection whose peer always has more, until it closes.
    #[derive(Default)]
    struct Flood {
        events: u32,
        is_draining: bool,
    }

    impl Connection for Flood {
        type Event = ();

        async fn advance(&mut self) -> Result<(), ConnectionEnd> {
            Ok(())
        }

        async fn event(&mut self) -> Result<(), ConnectionEnd> {
            self.events += 1;
            if self.events < 100 * MAX_IN_A_ROW { Ok(()) } else { Err(Closed::ByPeer.into()) }
        }

        async fn handle(&mut self, (): ()) -> Result<bool, ConnectionEnd> {
            Ok(true)
        }

        fn begin_drain(&mut self) {
            self.is_draining = true;
        }

        fn is_idle(&self) -> bool {
            true
        }

        fn check_period(&mut self) -> Option<Duration> {
            None
        }

        fn check(&mut self) -> Result<(), ConnectionEnd> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_peer_that_always_has_more_lets_others_run_and_follows_the_gateway() {
        let (mut flood, drain) = (Flood::default(), Drain::default());
        let (ended, ()) = tokio::join!(run(&mut flood, &drain), async {
            tokio::task::yield_now().await;
            drain.begin();
        });
        assert_eq!(ended, Err(ConnectionEnd::Stopping));
        assert!(flood.is_draining && flood.events <= 8 * MAX_IN_A_ROW, "{}", flood.events);
    }

    #[tokio::test]
    async fn a_drained_connection_finishes_its_request_and_takes_leave() {
        let (mut connection, request) = one_request();
        let drain = Drain::default();
        drain.begin();
        let (ended, ()) = tokio::join!(run(&mut connection, &drain), async {
            tokio::task::yield_now().await;
            drop(request);
        });
        assert_eq!(ended, Err(ConnectionEnd::Stopping));
        assert!(connection.said_goodbye);
        assert_eq!(connection.advances, 3, "at first, when it drains, when the request ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_connection_finishes_its_request_and_stays() {
        let (mut connection, request) = one_request();
        let drain = Drain::default();
        assert!(drain.hold(Duration::from_secs(60)));
        let (ended, ()) = tokio::join!(run(&mut connection, &drain), async {
            tokio::task::yield_now().await;
            assert_eq!(drain.busy(), 1, "its request runs");
            drop(request);
            // A check of its patience would have ended it.
            tokio::time::sleep(Duration::from_secs(1000)).await;
            assert_eq!(drain.busy(), 0);
            assert!(drain.resume(|_| ()));
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(drain.busy(), 1, "it may be busy again");
            drain.begin();
        });
        assert_eq!(ended, Err(ConnectionEnd::Stopping));
        assert_eq!((connection.holds, connection.checks), (vec![true, false], 0));
        assert!(connection.said_goodbye);
    }

    #[tokio::test]
    async fn a_connection_that_cannot_be_held_takes_leave() {
        let (mut connection, request) = one_request();
        connection.can_be_held = false;
        drop(request);
        let drain = Drain::default();
        assert!(drain.hold(Duration::from_secs(60)));
        assert_eq!(run(&mut connection, &drain).await, Err(ConnectionEnd::Stopping));
        assert!(connection.said_goodbye);
    }

    #[tokio::test]
    async fn a_connection_that_ends_itself_takes_no_leave() {
        let (mut connection, request) = one_request();
        connection.may_end = true;
        drop(request);
        let ended = run(&mut connection, &Drain::default()).await;
        assert_eq!(ended, Err(Closed::ByPeer.into()));
        assert!(!connection.said_goodbye);
    }

    #[tokio::test(start_paused = true)]
    async fn checks_are_periodic_and_sooner_without_memory() {
        for (has_period, waits_for_memory, time) in [
            (true, false, Duration::from_secs(180)),
            (true, true, Duration::from_millis(30)),
            (false, true, Duration::from_millis(30)),
        ] {
            let (mut connection, _request) = one_request();
            (connection.has_period, connection.waits_for_memory) = (has_period, waits_for_memory);
            let begun = Instant::now();
            let ended = run(&mut connection, &Drain::default()).await;
            assert_eq!(ended, Err(Slow::Unfinished.into()));
            assert_eq!(begun.elapsed(), time);
        }
    }
}
