//! Runs a schedule and checks the gateway at every step of virtual time.

use super::peer::{Now, Peer, Site};
use super::script::AT_ONCE;
use super::served::Stage;
use super::virtual_time::{give_way, kernel};
use crate::net::core::Network;
use crate::net::memory_quota::MemoryLevel;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance};

/// Rounds in which nobody does anything, after which nobody can without time.
const QUIET_ROUNDS: usize = 2;
/// Rounds after which peers and gateway are taken to keep each other busy for ever.
const MOST_ROUNDS: usize = 100_000;
/// Longest step of virtual time: each timer of the gateway may be noticed so much later.
pub(crate) const STEP: Duration = Duration::from_secs(2);
/// Virtual time after which a run is taken to have no end.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// Times that the kernel is waited for after a hold, each for a second of real time at most:
/// it repeats what was not taken after a fifth of a second.
const KERNEL_WAITS: usize = 20;
/// The same before something counts as overdue.
const LAST_WAITS: usize = 2;
/// Steps of a second in which all has to go that peers have left.
const LAST_STEPS: usize = 60;

/// Changes of the gateway's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    /// Time in which the whole process is short of memory.
    pub short: Option<Range<Duration>>,
    /// Time in which the gateway is held. It begins later if somebody waits for an answer.
    pub hold: Option<Range<Duration>>,
    /// Moment at which the gateway stops; otherwise it does when all is done.
    pub drain_at: Option<Duration>,
    /// Time limit of the drain.
    pub drain_bound: Duration,
}

/// The gateway's side of a run.
pub(crate) trait Gateway {
    fn network(&self) -> &Arc<Network>;

    /// Goes on after a hold, with what is not told by [`Network::drain`].
    fn resume(&self, held: Duration);

    /// Returns whether connections do not learn of a hold: a planted fault.
    fn keeps_hold_secret(&self) -> bool;

    /// Checks what must be so at every moment.
    ///
    /// # Errors
    /// The violation.
    fn sound(&self) -> Result<(), String>;

    /// Returns amounts that are zero once all connections have ended.
    fn remains(&self) -> Vec<(&'static str, usize)>;
}

/// A run of a schedule.
pub(crate) struct Run<G> {
    gateway: G,
    site: Site,
    peers: Vec<Box<dyn Peer>>,
    phases: Phases,
    begun: Instant,
    held_since: Option<Duration>,
    held_before: Duration,
    /// As [`Now::served`].
    drained_at: Option<Duration>,
}

impl<G: Gateway> Run<G> {
    pub(crate) fn new(gateway: G, site: Site, peers: Vec<Box<dyn Peer>>, phases: Phases) -> Self {
        let (held_since, held_before, drained_at) = (None, Duration::ZERO, None);
        let begun = Instant::now();
        Self { gateway, site, peers, phases, begun, held_since, held_before, drained_at }
    }

    /// Runs it to its end; returns how each peer fared.
    ///
    /// # Errors
    /// The first violation.
    pub(crate) async fn finish(mut self) -> Result<Vec<String>, String> {
        while !self.is_over() {
            self.change_phase().await?;
            self.settle().await?;
            self.wait_for_surprises().await?;
            self.check().await?;
            self.pass().await?;
        }
        if self.drained_at.is_none() {
            self.drain();
        }
        while !self.is_over() {
            self.settle().await?;
            self.sound()?;
            self.pass().await?;
        }
        self.settle().await?;
        self.check_drain()?;
        let outcomes = self.peers.iter().map(|peer| peer.outcome(&self.site)).collect();
        self.check_remains().await?;
        Ok(outcomes)
    }

    fn now(&self) -> Now {
        let at = self.begun.elapsed();
        let held = self.held_before + self.held_since.map_or(Duration::ZERO, |since| at - since);
        let (is_held, is_draining) = (self.held_since.is_some(), self.drained_at.is_some());
        Now { at, served: at - held, is_held, is_draining }
    }

    /// Returns whether all is done, or the time of a drain is over.
    fn is_over(&self) -> bool {
        if let Some(at) = self.drained_at {
            return self.now().served > at + self.phases.drain_bound;
        }
        self.phases.hold.is_none() && self.peers.iter().all(|peer| peer.is_done(&self.site))
    }

    /// Has everybody act until nobody can any more without time.
    async fn settle(&mut self) -> Result<(), String> {
        let (mut quiet, mut rounds) = (0, 0);
        while quiet < QUIET_ROUNDS {
            let now = self.now();
            let mut moved = false;
            for peer in &mut self.peers {
                moved |= peer.act(now, &self.site)?;
            }
            give_way().await;
            (quiet, rounds) = (if moved { 0 } else { quiet + 1 }, rounds + 1);
            if rounds == MOST_ROUNDS {
                return Err("peers and gateway keep each other busy".to_owned());
            }
        }
        Ok(())
    }

    /// Lets time pass, up to the next thing that is to happen.
    async fn pass(&self) -> Result<(), String> {
        let now = self.now();
        if now.at > LONGEST {
            return Err("the run has no end".to_owned());
        }
        let waits = self.peers.iter().filter_map(|peer| peer.waiting());
        let most = waits.map(|(_, step)| step).min().unwrap_or(STEP);
        let Phases { short, hold, drain_at, .. } = &self.phases;
        let ends = |time: &Range<Duration>| [time.start, time.end];
        let phases = short.iter().chain(hold).flat_map(ends).chain(*drain_at).chain(self.resumes());
        let peers = self.peers.iter().filter_map(|peer| peer.next(&self.site));
        let next = phases.chain(peers).filter(|next| *next > now.at).min();
        advance(next.map_or(most, |next| most.min(next - now.at))).await;
        Ok(())
    }

    /// Returns the end of the present hold.
    fn resumes(&self) -> Option<Duration> {
        let hold = self.phases.hold.as_ref()?;
        Some(self.held_since? + (hold.end - hold.start))
    }

    /// Holds, resumes or stops the gateway, and makes memory short, if it is time.
    async fn change_phase(&mut self) -> Result<(), String> {
        let now = self.now();
        if let Some(short) = &self.phases.short {
            let is_short = short.contains(&now.at);
            let level = if is_short { MemoryLevel::Short } else { MemoryLevel::Plenty };
            self.gateway.network().quota.set_level(level);
        }
        if self.resumes().is_some_and(|at| now.at >= at) {
            self.resume().await?;
        } else if let Some(hold) = self.phases.hold.clone().filter(|hold| now.at >= hold.start) {
            self.hold(hold.end - hold.start).await;
        }
        if self.drained_at.is_none() && self.phases.drain_at.is_some_and(|at| now.at >= at) {
            self.drain();
        }
        Ok(())
    }

    /// Holds the gateway, unless somebody waits for an answer.
    async fn hold(&mut self, time: Duration) {
        if self.held_since.is_some() || self.peers.iter().any(|peer| peer.waiting().is_some()) {
            return;
        }
        if !self.gateway.keeps_hold_secret() {
            assert!(self.gateway.network().drain.hold(time));
        }
        self.held_since = Some(self.now().at);
        // Connections give no sign before anybody sends anything.
        give_way().await;
    }

    /// Serves again. All that was sent in the hold is answered as soon as the kernel has
    /// repeated it.
    async fn resume(&mut self) -> Result<(), String> {
        let since = self.held_since.take().unwrap_or_default();
        let held = self.now().at - since;
        self.held_before += held;
        self.phases.hold = None;
        let gateway = &self.gateway;
        gateway.network().drain.resume(|_| gateway.resume(held));
        give_way().await;
        for _ in 0..KERNEL_WAITS {
            self.settle().await?;
            if !self.peers.iter().any(|peer| peer.waits_since_hold()) {
                return Ok(());
            }
            let waiting = self.peers.iter().filter(|peer| peer.waits_since_hold());
            kernel(waiting.filter_map(|peer| peer.waiting()).map(|(end, _)| end), 1).await;
        }
        let lost = self.peers.iter().find(|peer| peer.waits_since_hold());
        Err(format!("{}: a hold has lost its call", lost.map_or("", |peer| peer.name())))
    }

    fn drain(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.drain_begins());
        self.drained_at = Some(self.now().served);
        self.gateway.network().drain.begin();
    }

    /// Waits for the kernel, for a second at most, while virtual time stands still.
    async fn wait_for_kernel(&mut self) -> Result<(), String> {
        let waiting = self.peers.iter().filter_map(|peer| peer.waiting());
        kernel(waiting.map(|(end, _)| end), 1).await;
        self.settle().await
    }

    /// Waits for the kernel where an answer is not there at once although nothing keeps it.
    async fn wait_for_surprises(&mut self) -> Result<(), String> {
        let now = self.now();
        if now.is_held || now.is_draining {
            return Ok(());
        }
        let mut any = false;
        for peer in &mut self.peers {
            any |= peer.is_surprised();
        }
        if any { self.wait_for_kernel().await } else { Ok(()) }
    }

    /// Checks what must be so at every moment, and that nobody waits for too long.
    async fn check(&mut self) -> Result<(), String> {
        self.sound()?;
        for _ in 0..LAST_WAITS {
            if self.overdue().is_none() {
                return Ok(());
            }
            // Virtual time may have passed while the kernel had no time to deliver.
            self.wait_for_kernel().await?;
            self.sound()?;
        }
        self.overdue().map_or(Ok(()), Err)
    }

    fn overdue(&self) -> Option<String> {
        let now = self.now();
        let mut peers = self.peers.iter().filter(|_| !now.is_draining);
        peers.find_map(|peer| peer.overdue(now, &self.site))
    }

    /// Checks what must be so at every moment.
    fn sound(&mut self) -> Result<(), String> {
        let now = self.now();
        for peer in self.peers.iter_mut().filter(|_| !now.is_draining) {
            peer.look(now, &self.site)?;
        }
        let network = self.gateway.network();
        let bugs = network.ends.counts().filter(|(kind, _)| kind.reason == "bug");
        if bugs.map(|(_, count)| count).sum::<u64>() > 0 {
            return Err("a connection has ended by a bug".to_owned());
        }
        let has_rested = network.drain.busy() == 0 || self.gateway.keeps_hold_secret();
        if self.held_since.is_some_and(|since| now.at >= since + AT_ONCE && !has_rested) {
            return Err("a held gateway does not rest".to_owned());
        }
        self.gateway.sound()
    }

    /// Checks that a drain has ended the connections of all peers that take their answers.
    fn check_drain(&self) -> Result<(), String> {
        let is_served = |stage: Option<Stage>| stage == Some(Stage::Served);
        let mut peers = self.peers.iter().filter(|peer| !peer.may_outlast_drain());
        match peers.find(|peer| is_served(peer.stage(&self.site))) {
            Some(peer) => Err(format!("{}: a drain has not ended its connection", peer.name())),
            None => Ok(()),
        }
    }

    /// Has all peers leave, and checks that nothing of them remains.
    async fn check_remains(&mut self) -> Result<(), String> {
        self.peers.iter_mut().for_each(|peer| peer.leave());
        for _ in 0..LAST_STEPS {
            give_way().await;
            give_way().await;
            if self.remains().is_empty() {
                return Ok(());
            }
            advance(Duration::from_secs(1)).await;
        }
        Err(format!("remains: {}", self.remains()))
    }

    /// Names what remains of connections that have ended.
    fn remains(&self) -> String {
        let network = self.gateway.network();
        let mut amounts = vec![
            ("connections in service", self.site.served.running()),
            ("connections in the table", network.connections.len()),
            ("connections in the event loop", network.drain.busy()),
            ("bytes of the quota", network.quota.held()),
            ("bytes of buffers", network.pool.in_use_bytes()),
        ];
        amounts.extend(self.gateway.remains());
        let remaining = amounts.iter().filter(|(_, amount)| *amount > 0);
        let texts: Vec<_> = remaining.map(|(what, amount)| format!("{amount} {what}")).collect();
        texts.join(", ")
    }
}
