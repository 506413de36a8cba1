//! Runs the schedule of a seed and checks the gateway at every step of virtual time.

use super::peers::{Client, Now, Script};
use super::plan::{AT_ONCE, Plan, STEP, Span};
use super::room::{Fault, PER_CLIENT, Room};
use crate::net::memory_quota::MemoryLevel;
use crate::net::seeds::served::Stage;
use crate::net::seeds::virtual_time::{give_way, kernel};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance};

/// Rounds in which nobody does anything, after which nobody can without time.
const QUIET_ROUNDS: usize = 2;
/// Rounds after which peers and gateway are taken to keep each other busy for ever.
const MOST_ROUNDS: usize = 100_000;
/// Virtual time after which a run is taken to have no end.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// Step while a call waits that should not have to, and while one waits for memory.
const SHORT_STEP: Duration = Duration::from_millis(100);
const MEMORY_STEP: Duration = Duration::from_secs(1);
/// Times that the kernel is waited for, each for a second of real time at most: it repeats
/// what a held gateway has not taken after a fifth of a second.
const KERNEL_WAITS: usize = 20;
/// The same before something counts as overdue.
const LAST_WAITS: usize = 2;
/// Time limit for what is left when all peers have gone.
const LAST_STEPS: usize = 60;

/// A run of a schedule.
pub(super) struct Run<'a> {
    plan: &'a Plan,
    room: Room,
    clients: Vec<Client>,
    scripts: Vec<Script>,
    begun: Instant,
    held_since: Option<Duration>,
    held_before: Duration,
    hold_is_over: bool,
    /// As [`Now::served`].
    drained_at: Option<Duration>,
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a Plan, room: Room) -> Self {
        Self {
            plan,
            room,
            clients: (0..).zip(&plan.clients).map(|(n, plan)| Client::new(n, plan)).collect(),
            scripts: (0..).zip(&plan.scripts).map(|(n, plan)| Script::new(n, plan)).collect(),
            begun: Instant::now(),
            held_since: None,
            held_before: Duration::ZERO,
            hold_is_over: false,
            drained_at: None,
        }
    }

    /// Runs it to its end; returns how each peer fared.
    ///
    /// # Errors
    /// The first violation.
    pub(super) async fn to_its_end(mut self) -> Result<Vec<String>, String> {
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
        let clients = self.clients.iter().map(Client::outcome);
        let scripts = self.scripts.iter().map(|script| script.outcome(&self.room));
        let outcomes = clients.chain(scripts).collect();
        self.check_what_is_left().await?;
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
            return self.now().served > at + self.plan.drain_bound();
        }
        let is_held_yet = self.plan.hold.is_some() && !self.hold_is_over;
        !is_held_yet
            && self.clients.iter().all(Client::is_done)
            && self.scripts.iter().all(|script| script.is_done(&self.room))
    }

    /// Has everybody act until nobody can any more without time.
    async fn settle(&mut self) -> Result<(), String> {
        let (mut quiet, mut rounds) = (0, 0);
        while quiet < QUIET_ROUNDS {
            let now = self.now();
            let mut moved = false;
            for client in &mut self.clients {
                moved |= client.act(now, &self.room)?;
            }
            for script in &mut self.scripts {
                moved |= script.act(now, &self.room);
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
    async fn pass(&mut self) -> Result<(), String> {
        let now = self.now();
        if now.at > LONGEST {
            return Err("the run has no end".to_owned());
        }
        let waits = |for_large| self.clients.iter().any(|client| client.waits(for_large));
        let most = if waits(false) && !now.is_held {
            SHORT_STEP
        } else if waits(true) {
            MEMORY_STEP
        } else {
            STEP
        };
        let hold = self.plan.hold.filter(|_| !self.hold_is_over);
        let ends = |span: Span| [span.from, span.from + span.length];
        let phases = [hold, self.plan.short].into_iter().flatten().flat_map(ends);
        let resumes = hold.and_then(|hold| Some(self.held_since? + hold.length));
        let clients = self.clients.iter().filter_map(Client::next);
        let scripts = self.scripts.iter().filter_map(|script| script.next(&self.room));
        let all = phases.chain(resumes).chain(self.plan.drain_at).chain(clients).chain(scripts);
        let next = all.filter(|next| *next > now.at).min().map_or(most, |next| next - now.at);
        advance(next.min(most)).await;
        Ok(())
    }

    /// Holds, resumes or stops the gateway, and makes its memory short, if it is time.
    async fn change_phase(&mut self) -> Result<(), String> {
        let now = self.now();
        if let Some(short) = self.plan.short {
            let is_short = short.contains(now.at);
            let level = if is_short { MemoryLevel::Short } else { MemoryLevel::Plenty };
            self.room.network.quota.set_level(level);
        }
        if let Some(hold) = self.plan.hold {
            match self.held_since {
                Some(since) if now.at >= since + hold.length => self.resume(since).await?,
                None if !self.hold_is_over && now.at >= hold.from => self.hold(hold).await,
                _ => {}
            }
        }
        if self.drained_at.is_none() && self.plan.drain_at.is_some_and(|at| now.at >= at) {
            self.drain();
        }
        Ok(())
    }

    /// Holds the gateway, unless somebody waits for a reply: that is so at another time.
    async fn hold(&mut self, hold: Span) {
        if self.clients.iter().any(|client| client.waiting().is_some()) {
            return;
        }
        if self.room.fault != Some(Fault::HoldUntold) {
            assert!(self.room.network.drain.hold(hold.length));
        }
        self.held_since = Some(self.now().at);
        // Connections are silent before anybody sends anything.
        give_way().await;
    }

    /// Serves again. All calls of the hold are answered as soon as the kernel has repeated them.
    async fn resume(&mut self, since: Duration) -> Result<(), String> {
        let held = self.now().at - since;
        (self.held_since, self.hold_is_over) = (None, true);
        self.held_before += held;
        let nfs = Arc::clone(&self.room.nfs);
        self.room.network.drain.resume(|_| nfs.resume(held));
        give_way().await;
        for _ in 0..KERNEL_WAITS {
            self.settle().await?;
            if !self.clients.iter().any(Client::waits_since_hold) {
                return Ok(());
            }
            let waiting = self.clients.iter().filter(|client| client.waits_since_hold());
            kernel(waiting.filter_map(Client::waiting), 1).await;
        }
        let lost = self.clients.iter().find(|client| client.waits_since_hold());
        Err(format!("{}: a hold has lost its call", lost.map_or("", Client::name)))
    }

    fn drain(&mut self) {
        self.clients.iter_mut().for_each(Client::drain_begins);
        self.drained_at = Some(self.now().served);
        self.room.network.drain.begin();
    }

    /// Waits for the kernel where a reply is not there at once although nothing keeps it.
    async fn wait_for_surprises(&mut self) -> Result<(), String> {
        let now = self.now();
        if now.is_held || now.is_draining || !self.plan.store_delay.is_zero() {
            return Ok(());
        }
        let mut any = false;
        for client in &mut self.clients {
            any |= client.is_surprised();
        }
        if !any {
            return Ok(());
        }
        kernel(self.clients.iter().filter_map(Client::waiting), 1).await;
        self.settle().await
    }

    /// Checks what must be so at every moment, and that nobody waits for too long.
    async fn check(&mut self) -> Result<(), String> {
        self.sound()?;
        for _ in 0..LAST_WAITS {
            if self.overdue().is_none() {
                return Ok(());
            }
            // Virtual time may have passed while the kernel had no time to deliver.
            kernel(self.clients.iter().filter_map(Client::waiting), 1).await;
            self.settle().await?;
            self.sound()?;
        }
        self.overdue().map_or(Ok(()), Err)
    }

    fn overdue(&self) -> Option<String> {
        let (now, room, plan) = (self.now(), &self.room, self.plan);
        let clients = self.clients.iter().find_map(|client| client.overdue(now, room, plan));
        let scripts = || self.scripts.iter().find_map(|script| script.overdue(now, room, plan));
        clients.or_else(scripts)
    }

    /// Checks what must be so at every moment.
    fn sound(&mut self) -> Result<(), String> {
        let now = self.now();
        for script in &mut self.scripts {
            script.look(now, &self.room)?;
        }
        let (room, most_bytes) = (&self.room, self.plan.most_bytes());
        if room.bugs() > 0 {
            return Err("a connection has ended by a bug".to_owned());
        }
        if room.memory_bytes() > most_bytes {
            return Err(format!("memory: {} of {most_bytes} bytes", room.memory_bytes()));
        }
        if room.served.most_of_a_host() > PER_CLIENT {
            return Err("a host has too many connections".to_owned());
        }
        let is_at_rest = room.network.drain.busy() == 0;
        let rests = self.held_since.is_none_or(|since| now.at < since + AT_ONCE || is_at_rest);
        let is_told = room.fault != Some(Fault::HoldUntold);
        if rests || !is_told { Ok(()) } else { Err("a held gateway does not rest".to_owned()) }
    }

    /// Checks that a drain has ended all connections whose peers read.
    fn check_drain(&self) -> Result<(), String> {
        let is_served = |stage: Option<Stage>| stage == Some(Stage::Served);
        let mut clients = self.clients.iter().filter(|client| is_served(client.stage(&self.room)));
        let mut scripts = self.scripts.iter().filter(|script| {
            is_served(script.stage(&self.room)) && !script.reads_nothing()
        });
        let left = clients.next().map(Client::name);
        match left.or_else(|| scripts.next().map(Script::name)) {
            Some(name) => Err(format!("{name}: a drain has not ended its connection")),
            None => Ok(()),
        }
    }

    /// Has all peers leave, and checks that nothing of them is left.
    async fn check_what_is_left(&mut self) -> Result<(), String> {
        self.clients.iter_mut().for_each(Client::leave);
        self.scripts.iter_mut().for_each(Script::leave);
        for _ in 0..LAST_STEPS {
            give_way().await;
            give_way().await;
            if self.room.left().is_none() {
                return Ok(());
            }
            advance(MEMORY_STEP).await;
        }
        Err(format!("left at the end: {}", self.room.left().unwrap_or_default()))
    }
}
