//! Schedule of a run: steps of clients and faults, chosen by the seed. It is
//! made before the run, so that parts of it can be left out.

use crate::dice::Dice;
use crate::executor::{MILLISECOND, SECOND};
use std::collections::BTreeSet;

/// Blocks of each client's file; a block has one writer.
pub const BLOCKS_PER_WORKER: u32 = 2;
/// Workers of a client: each sends one request at a time.
pub const WORKERS: u32 = 2;
/// There is a loader in one seed of so many.
const LOADERS_ONCE_IN: u64 = 3;
/// Clients have TLS in one seed of so many.
const TLS_ONCE_IN: u64 = 6;
/// There is a rollback to a snapshot in one seed of so many.
const ROLLBACKS_ONCE_IN: u64 = 4;
/// Names of each worker.
pub const NAMES_PER_WORKER: u32 = 2;
/// Byte ranges that clients lock.
pub const LOCK_RANGES: u32 = 3;
/// Faults begin before this time, in seconds.
const FAULT_SECONDS: u64 = 45;
/// Time that a server has no way to its disk in its grace period, at least, and half of
/// the longest one, in seconds.
const IN_GRACE_SECONDS: u64 = 6;
/// No rollback begins before this time, in seconds: nobody has done anything yet.
const FIRST_ROLLBACK_SECONDS: u64 = 2;
/// Longest time from a snapshot to the rollback, in seconds.
const SNAPSHOT_AGE_SECONDS: u64 = 30;
/// Longest time for which the export is away for a rollback, in seconds.
const ROLLBACK_SECONDS: u64 = 4;
/// A reply to the loader is cut before this byte; a header has a hundred.
const LONGEST_CUT_BYTES: u64 = 1200;
/// Longest pause of a client between two steps, in seconds.
const PAUSE_SECONDS: u64 = 10;

/// Protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// NFSv3.
    V3,
    /// NFSv4.0, 4.1 or 4.2.
    V4(u32),
}

/// One step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes the next version of a block of the worker's own.
    Write { block: u32, stable: bool },
    /// Commits what the worker has written.
    Commit,
    /// Reads a block of any client.
    Read { client: usize, block: u32 },
    /// Creates a directory.
    Make { name: u32 },
    /// Removes a directory.
    Remove { name: u32 },
    /// Renames a directory to the worker's other name.
    Rename { name: u32 },
    /// Locks a range that other clients lock, too.
    Lock { range: u32, write: bool },
    /// Unlocks it.
    Unlock { range: u32 },
    /// Closes the worker's open of its client's file.
    Close,
    /// Asks for a read delegation of another client's file, and reads the file.
    Delegate { client: usize },
    /// Asks for a write delegation of the client's own file, and keeps it until
    /// it is recalled.
    DelegateOwn,
    /// Reads a block from the cache, if there is a delegation.
    ReadCached { client: usize, block: u32 },
    /// Writes the next version of a block of the worker's own to the cache, if
    /// there is a write delegation.
    WriteCached { block: u32 },
    /// Opens a common file with these access and deny modes.
    Share { access: u32, deny: u32 },
    /// Closes it.
    Unshare,
    /// The client restarts: what it held is gone.
    Restart,
    /// DESTROY_SESSION, and another session.
    EndSession,
    /// A login with a wrong secret.
    WrongSecret,
    /// A host writes the next version of a block elsewhere, and copies it with
    /// EXTENDED COPY.
    CopyBlock { block: u32 },
    /// A host writes the next version of a block, through the cache or not.
    Put { block: u32, through: bool },
    /// SYNCHRONIZE CACHE.
    Flush,
    /// A host reads a block of any host.
    Get { host: usize, block: u32 },
    /// COMPARE AND WRITE of the block that all hosts share.
    Swap,
    /// UNMAP of a block.
    Unmap { block: u32 },
    /// Begins a write, aborts it after this time, and writes again.
    AbortPut { block: u32, after: u64, whole_unit: bool },
    /// Registers the host's key.
    Register,
    /// Reserves the unit, and takes another host's registration away.
    Fence { host: usize },
    /// The loader loads the model with so many requests and bytes in flight.
    Load { depth: u32, inflight_bytes: u64 },
    /// The loader begins to load the model, and drops the load after this time.
    DropLoad { depth: u32, after: u64 },
    /// The loader streams a client's file, and asks whether it is unchanged after
    /// this time.
    Stream { client: usize, after: u64 },
    /// The loader reads all blocks of a client's file at the same time, in memory
    /// of its own; the file stays open.
    ReadAll { client: usize },
    /// The loader closes the file that is open.
    CloseFile,
    /// The loader unregisters and registers again; `drops`: in the background.
    Remount { drops: bool },
}

/// A step, and the pause before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    /// Number in the whole schedule.
    pub number: u32,
    /// Pause in nanoseconds.
    pub pause: u64,
    /// The step.
    pub step: Step,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server process dies, and starts again after this time.
    Kill { down: u64 },
    /// The machine loses power: what was not synced is gone.
    PowerLoss { down: u64 },
    /// A client's connection breaks, with requests in flight.
    Cut { client: usize },
    /// A host's connection breaks so long after its next command has reached the
    /// target.
    CutCommand { client: usize, after: u64 },
    /// Nothing passes between a client and the server.
    Partition { client: usize, length: u64 },
    /// All calls of the disk wait until the end.
    Hang { length: u64 },
    /// Calls of the disk take up to this time.
    Slow { length: u64, delay: u64 },
    /// The next write takes this time, while others pass it.
    HoldWrite { length: u64 },
    /// The next call of the disk that changes something fails.
    Error,
    /// The next sync fails, and what was not synced is gone.
    WriteBack,
    /// The disk is full.
    Full { length: u64 },
    /// The exports are replaced by equal ones.
    Reload,
    /// The server takes no more requests, ends those that run, stops, and
    /// starts again after this time.
    Drain { down: u64 },
    /// The wall clock jumps.
    ClockJump { seconds: i64 },
    /// The export gets another path, as with the rename of a dataset: its
    /// handles stay.
    Rename,
    /// The export cannot be opened for this time; it stays configured.
    ExportAway { length: u64 },
    /// Another machine takes over while the server still runs, cut off from its
    /// clients: what it has begun reaches the disk late, or never.
    Takeover { late: u64 },
    /// The server restarts; in its grace period another machine takes over, and
    /// restarts in turn when the first one's grace period is over.
    TakeoverInGrace { down: u64, late: u64 },
    /// Bits of a host's PDUs are flipped, where digests can tell.
    Corrupt { client: usize, length: u64 },
    /// The loader's connections break, with requests in flight.
    CutLoader,
    /// The loader's next reply is cut behind this byte, with its connection.
    CutReply { bytes: u32 },
    /// Nothing passes between the loader and the server.
    PartitionLoader { length: u64 },
    /// A snapshot is taken. So much later the export is away for a while, and comes back with
    /// what it had at the snapshot.
    Rollback { after: u64, away: u64 },
    /// The server's certificate is replaced.
    ReplaceCertificate,
    /// A client's certificate is revoked; it has another one.
    RevokeCertificate { client: usize },
}

/// A fault, and its time since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// Number in the schedule.
    pub number: u32,
    /// Time in nanoseconds.
    pub at: u64,
    /// The fault.
    pub fault: Fault,
}

/// TLS of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTls {
    /// The export asks for certificates.
    pub is_mutual: bool,
    /// Clients that show one.
    pub with_certificate: Vec<bool>,
}

/// The schedule of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Protocol of each client.
    pub clients: Vec<Version>,
    /// Steps of each client's workers.
    pub steps: Vec<Vec<Vec<PlannedStep>>>,
    /// Steps of each host's workers.
    pub hosts: Vec<Vec<Vec<PlannedStep>>>,
    /// Connections of the loader, if there is one, and its steps.
    pub loader: Option<(usize, Vec<PlannedStep>)>,
    /// TLS, if the clients have it.
    pub tls: Option<PlannedTls>,
    /// Faults in order of time.
    pub faults: Vec<PlannedFault>,
}

fn step(dice: &mut Dice, worker: u32, clients: usize, version: Version) -> Step {
    let block = worker * BLOCKS_PER_WORKER + dice.below(BLOCKS_PER_WORKER.into()) as u32;
    let name = worker * NAMES_PER_WORKER + dice.below(NAMES_PER_WORKER.into()) as u32;
    let range = dice.below(LOCK_RANGES.into()) as u32;
    let kinds = if version == Version::V3 { 15 } else { 46 };
    let client = dice.below(clients as u64) as usize;
    let any_block = dice.below((WORKERS * BLOCKS_PER_WORKER).into()) as u32;
    match dice.below(kinds) {
        0..=4 => Step::Write { block, stable: dice.once_in(3) },
        5..=7 => Step::Commit,
        8..=10 => Step::Read { client, block: any_block },
        11..=12 => Step::Make { name },
        13 => Step::Remove { name },
        14 => Step::Rename { name },
        15..=18 => Step::Lock { range, write: !dice.once_in(3) },
        19..=20 => Step::Unlock { range },
        21..=23 => Step::Delegate { client },
        24..=27 => Step::Close,
        28..=29 => Step::DelegateOwn,
        36..=38 => Step::WriteCached { block },
        39..=42 => Step::Share { access: 1 + dice.below(3) as u32, deny: dice.below(4) as u32 },
        43 => Step::Unshare,
        44 if dice.once_in(2) => Step::Restart,
        45 => Step::EndSession,
        _ => Step::ReadCached { client, block: any_block },
    }
}

fn host_step(dice: &mut Dice, worker: u32, hosts: usize) -> Step {
    let block = worker * BLOCKS_PER_WORKER + dice.below(BLOCKS_PER_WORKER.into()) as u32;
    let host = dice.below(hosts as u64) as usize;
    let any_block = dice.below((WORKERS * BLOCKS_PER_WORKER).into()) as u32;
    match dice.below(27) {
        24 => Step::WrongSecret,
        25..=26 => Step::CopyBlock { block },
        0..=5 => Step::Put { block, through: dice.once_in(3) },
        6..=7 => Step::Flush,
        8..=11 => Step::Get { host, block: any_block },
        12..=14 => Step::Swap,
        15 => Step::Unmap { block },
        16..=18 => {
            let after = dice.spread(MILLISECOND / 2, 5 * SECOND);
            Step::AbortPut { block, after, whole_unit: dice.once_in(3) }
        }
        19..=21 => Step::Register,
        _ => Step::Fence { host },
    }
}

fn loader_step(dice: &mut Dice, clients: usize) -> Step {
    let client = dice.below(clients as u64) as usize;
    let depth = 1 + dice.below(8) as u32;
    let after = dice.spread(MILLISECOND / 10, 5 * SECOND);
    match dice.below(16) {
        0..=4 => Step::Load { depth, inflight_bytes: dice.spread(4096, 65_536) },
        5..=6 => Step::DropLoad { depth, after },
        7..=9 => Step::Stream { client, after },
        10..=13 => Step::ReadAll { client },
        14 => Step::CloseFile,
        _ => Step::Remount { drops: dice.once_in(2) },
    }
}

fn loader_fault(dice: &mut Dice) -> Fault {
    match dice.below(4) {
        0..=1 => Fault::CutLoader,
        2 => Fault::CutReply { bytes: dice.below(LONGEST_CUT_BYTES) as u32 },
        _ => Fault::PartitionLoader { length: dice.spread(100 * MILLISECOND, 40 * SECOND) },
    }
}

fn fault(dice: &mut Dice, clients: usize) -> Fault {
    let client = dice.below(clients as u64) as usize;
    let down = dice.spread(50 * MILLISECOND, 12 * SECOND);
    let length = dice.spread(100 * MILLISECOND, 40 * SECOND);
    match dice.below(39) {
        32..=33 => Fault::Corrupt { client: clients - 1 - dice.below(2) as usize, length },
        37..=38 => Fault::CutCommand {
            client: clients - 1 - dice.below(2) as usize,
            after: dice.spread(MILLISECOND / 100, 20 * MILLISECOND),
        },
        34..=36 => {
            let late = dice.spread(MILLISECOND, IN_GRACE_SECONDS * SECOND);
            Fault::TakeoverInGrace { down: down / 4, late: late + IN_GRACE_SECONDS * SECOND }
        }
        26..=27 => Fault::ExportAway { length: length / 2 },
        28..=30 => Fault::Takeover { late: length },
        31 => Fault::Corrupt { client, length },
        20 => Fault::Reload,
        21 => Fault::Rename,
        22..=23 => Fault::Drain { down },
        24..=25 => {
            let seconds = dice.spread(1, 1 << 20) as i64;
            Fault::ClockJump { seconds: if dice.once_in(2) { seconds } else { -seconds } }
        }
        0..=1 => Fault::Kill { down },
        2..=4 => Fault::PowerLoss { down },
        5..=8 => Fault::Cut { client },
        9..=10 => Fault::Partition { client, length },
        11 => Fault::Hang { length },
        12..=13 => Fault::Slow { length, delay: dice.spread(MILLISECOND, 20 * SECOND) },
        14 => Fault::Error,
        15 => Fault::WriteBack,
        16..=18 => Fault::HoldWrite { length },
        _ => Fault::Full { length: length / 4 },
    }
}

impl Plan {
    /// The schedule of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let count = 2 + dice.below(3) as usize;
        let clients: Vec<Version> = (0..count)
            .map(|_| match dice.below(8) {
                0 | 1 => Version::V3,
                2 => Version::V4(2),
                3 | 4 => Version::V4(0),
                _ => Version::V4(1),
            })
            .collect();
        let mut number = 0;
        let mut worker_steps = |worker: u32, version: Version| -> Vec<PlannedStep> {
            let length = 8 + dice.below(18);
            (0..length)
                .map(|_| {
                    number += 1;
                    let pause = dice.spread(MILLISECOND, PAUSE_SECONDS * SECOND);
                    PlannedStep { number, pause, step: step(&mut dice, worker, count, version) }
                })
                .collect()
        };
        let steps: Vec<Vec<Vec<PlannedStep>>> = clients
            .iter()
            .map(|version| (0..WORKERS).map(|worker| worker_steps(worker, *version)).collect())
            .collect();
        let mut dice = Dice::new(seed, "hosts");
        let host_count = if dice.once_in(3) { 0 } else { 2 };
        let mut host_steps = |worker: u32| -> Vec<PlannedStep> {
            (0..8 + dice.below(18))
                .map(|_| {
                    number += 1;
                    let pause = dice.spread(MILLISECOND, PAUSE_SECONDS * SECOND);
                    PlannedStep { number, pause, step: host_step(&mut dice, worker, host_count) }
                })
                .collect()
        };
        let hosts = (0..host_count).map(|_| (0..WORKERS).map(&mut host_steps).collect()).collect();
        let mut dice = Dice::new(seed, "faults");
        let mut faults: Vec<(u64, Fault)> = (0..dice.below(7))
            .map(|_| (dice.below(FAULT_SECONDS * SECOND), fault(&mut dice, count + host_count)))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        let faults =
            (1..).zip(faults).map(|(number, (at, fault))| PlannedFault { number, at, fault });
        let (loader, tls) = (None, None);
        let plan = Self { seed, faults: faults.collect(), clients, steps, hosts, loader, tls };
        plan.with_loader(number).with_tls().with_rollback()
    }

    /// Adds a loader in one seed of three. What the others do stays as it is.
    fn with_loader(mut self, mut number: u32) -> Self {
        let mut dice = Dice::new(self.seed, "loader");
        if !dice.once_in(LOADERS_ONCE_IN) {
            return self;
        }
        let connections = 1 + dice.below(2) as usize;
        let mut steps = Vec::new();
        for _ in 0..4 + dice.below(12) {
            number += 1;
            let pause = dice.spread(MILLISECOND, PAUSE_SECONDS * SECOND);
            let step = loader_step(&mut dice, self.clients.len());
            steps.push(PlannedStep { number, pause, step });
        }
        self.loader = Some((connections, steps));
        let before = self.faults.len() as u32;
        for number in (before + 1..).take(dice.below(4) as usize) {
            let (at, fault) = (dice.below(FAULT_SECONDS * SECOND), loader_fault(&mut dice));
            self.faults.push(PlannedFault { number, at, fault });
        }
        self.faults.sort_by_key(|planned| planned.at);
        self
    }

    /// Gives TLS to all clients in one seed of six. What everybody does stays as it is.
    fn with_tls(mut self) -> Self {
        let mut dice = Dice::new(self.seed, "tls");
        if !dice.once_in(TLS_ONCE_IN) {
            return self;
        }
        let is_mutual = dice.once_in(2);
        let clients = self.clients.len();
        let with_certificate = (0..clients).map(|_| is_mutual || dice.once_in(3)).collect();
        self.tls = Some(PlannedTls { is_mutual, with_certificate });
        let before = self.faults.len() as u32;
        for number in (before + 1..).take(dice.below(4) as usize) {
            let at = dice.below(FAULT_SECONDS * SECOND);
            let fault = match dice.once_in(3) {
                true => Fault::ReplaceCertificate,
                false => Fault::RevokeCertificate { client: dice.below(clients as u64) as usize },
            };
            self.faults.push(PlannedFault { number, at, fault });
        }
        self.faults.sort_by_key(|planned| planned.at);
        self
    }

    /// Adds a rollback in one seed of four. What everybody does stays as it is, and so do the
    /// other faults.
    fn with_rollback(mut self) -> Self {
        let mut dice = Dice::new(self.seed, "rollback");
        if !dice.once_in(ROLLBACKS_ONCE_IN) {
            return self;
        }
        let latest = (FAULT_SECONDS - FIRST_ROLLBACK_SECONDS) * SECOND;
        let begins = FIRST_ROLLBACK_SECONDS * SECOND + dice.below(latest);
        let after = dice.below(begins.min(SNAPSHOT_AGE_SECONDS * SECOND));
        let away = dice.spread(MILLISECOND, ROLLBACK_SECONDS * SECOND);
        let (number, at) = (self.faults.len() as u32 + 1, begins - after);
        self.faults.push(PlannedFault { number, at, fault: Fault::Rollback { after, away } });
        self.faults.sort_by_key(|planned| planned.at);
        self
    }

    fn loader_steps(&self) -> impl Iterator<Item = &PlannedStep> {
        self.loader.iter().flat_map(|(_, steps)| steps)
    }

    /// Numbers of all steps.
    #[must_use]
    pub fn step_numbers(&self) -> Vec<u32> {
        let steps = self.steps.iter().chain(&self.hosts).flatten().flatten();
        steps.chain(self.loader_steps()).map(|step| step.number).collect()
    }

    /// Numbers of all faults.
    #[must_use]
    pub fn fault_numbers(&self) -> Vec<u32> {
        self.faults.iter().map(|fault| fault.number).collect()
    }

    /// The schedule with only these steps and faults.
    #[must_use]
    pub fn only(&self, kept_steps: &BTreeSet<u32>, faults: &BTreeSet<u32>) -> Self {
        let mut plan = self.clone();
        for worker in plan.steps.iter_mut().chain(&mut plan.hosts).flatten() {
            worker.retain(|step| kept_steps.contains(&step.number));
        }
        if let Some((_, steps)) = &mut plan.loader {
            steps.retain(|step| kept_steps.contains(&step.number));
        }
        plan.faults.retain(|fault| faults.contains(&fault.number));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_schedule_and_parts_of_it_can_be_left_out() {
        assert_eq!(Plan::new(7), Plan::new(7));
        assert_ne!(Plan::new(7).steps, Plan::new(8).steps);
        let plan = (1..).map(Plan::new).find(|plan| plan.faults.len() > 2).unwrap();
        let (steps, faults) = (BTreeSet::from([2, 5]), BTreeSet::from([3]));
        let part = plan.only(&steps, &faults);
        assert_eq!(part.step_numbers(), [2, 5]);
        assert_eq!(part.fault_numbers(), [3]);
        assert_eq!(part.faults[0].number, 3);
        assert!(plan.faults.contains(&part.faults[0]));
    }

    #[test]
    fn tls_comes_on_top_of_the_others() {
        let plans: Vec<Plan> = (1..100).map(Plan::new).filter(|plan| plan.tls.is_some()).collect();
        assert!(plans.iter().any(|plan| plan.tls.as_ref().is_some_and(|tls| tls.is_mutual)));
        for plan in plans {
            let faults: BTreeSet<u32> = plan.fault_numbers().into_iter().collect();
            assert_eq!(faults.len(), plan.faults.len(), "a number names one fault");
            let tls = plan.tls.unwrap();
            assert_eq!(tls.with_certificate.len(), plan.clients.len());
            assert!(!tls.is_mutual || tls.with_certificate.iter().all(|shows| *shows));
        }
    }

    #[test]
    fn a_rollback_comes_on_top_of_the_others() {
        let is_rollback = |planned: &PlannedFault| matches!(planned.fault, Fault::Rollback { .. });
        let plans: Vec<Plan> = (1..400).map(Plan::new).collect();
        let with_one = plans.iter().filter(|plan| plan.faults.iter().any(is_rollback)).count();
        assert!((50..150).contains(&with_one), "{with_one} of 399");
        for plan in plans {
            let numbers: BTreeSet<u32> = plan.fault_numbers().into_iter().collect();
            assert_eq!(numbers.len(), plan.faults.len(), "a number names one fault");
            let Some(planned) = plan.faults.iter().copied().find(is_rollback) else { continue };
            let Fault::Rollback { after, away } = planned.fault else { continue };
            let back = planned.at + after + away;
            assert!(back < (FAULT_SECONDS + ROLLBACK_SECONDS) * SECOND, "{planned:?}");
            let last = plan.fault_numbers().into_iter().max();
            assert_eq!(last, Some(planned.number), "the others have the numbers of before");
        }
    }

    #[test]
    fn a_loader_comes_on_top_of_the_others() {
        let plan = (1..).map(Plan::new).find(|plan| plan.loader.is_some()).unwrap();
        let numbers: BTreeSet<u32> = plan.step_numbers().into_iter().collect();
        assert_eq!(numbers.len(), plan.step_numbers().len(), "a number names one step");
        let faults: BTreeSet<u32> = plan.fault_numbers().into_iter().collect();
        assert_eq!(faults.len(), plan.faults.len());
        let last = plan.loader_steps().last().unwrap().number;
        let part = plan.only(&BTreeSet::from([last]), &BTreeSet::new());
        assert_eq!(part.step_numbers(), [last]);
    }
}
