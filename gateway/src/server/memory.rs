//! Budget of the process's memory.
//!
//! | for | part |
//! | --- | --- |
//! | the program, its threads and tables | [`BASE_BYTES`] |
//! | the arena of RDMA | its size |
//! | requests and replies in progress | `buffers`, or half of the rest |
//! | state of NFS clients, with their cached replies | a quarter of the rest |
//! | connections | an eighth of the rest |
//! | what else there is, and what the parts are exceeded by | an eighth of the rest |
//!
//! The parts are limits of their own. Besides, the memory in use is measured,
//! several times a second: shortly before the budget is used up, clients wait, and
//! then nothing new is accepted ([`MemoryLevel`]). What is measured is all memory of
//! the process that the kernel cannot take back: buffers, state, TLS, iSCSI, what
//! the allocator keeps.

use super::cgroup;
use super::settings::Settings;
use super::shared::Shared;
use crate::net::memory_quota::MemoryLevel;
use crate::observe::panics::caught_blocking;
use rustix::param::page_size;
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use utoipa::ToSchema;
use zgate_config::ByteSize;

const MIB: usize = 1 << 20;
/// Memory of a gateway without clients, in bytes.
const BASE_BYTES: usize = 64 * MIB;
/// Most unused buffer memory kept for later requests, in bytes.
const MOST_IDLE_BYTES: usize = 256 * MIB;
/// Memory of a connection without requests: its receive buffer and its task.
const CONNECTION_BYTES: usize = 80 << 10;
/// Least number of connections, however little memory there is.
const LEAST_CONNECTIONS: usize = 64;
/// Least memory for requests and replies, in bytes: eight of the largest.
const LEAST_BUFFER_BYTES: usize = 32 * MIB;
/// Part of a control group's limit that is left to the kernel, which counts
/// sockets, page tables and cached files there.
const KERNEL_PART: u64 = 8;
/// The same in bytes, at least.
const LEAST_KERNEL_BYTES: u64 = 32 << 20;
/// Interval of the measurements.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Parts of the budget in use from which memory is short, and full.
const SHORT_PART: (usize, usize) = (7, 8);
const FULL_PART: (usize, usize) = (15, 16);
/// Least time between two log lines about the same.
const LOG_PAUSE: Duration = Duration::from_secs(30);

const _: () = assert!(SHORT_PART.0 * FULL_PART.1 < FULL_PART.0 * SHORT_PART.1);

/// Source of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BudgetSource {
    /// `server.memory_max`.
    Configured,
    /// The limit of the control group.
    Cgroup,
}

/// The budget: bytes that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub bytes: usize,
    pub source: BudgetSource,
}

/// Facts that the division follows from.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// `server.memory_max`; 0: not set.
    memory_max_bytes: usize,
    /// Limit of the control group.
    cgroup_bytes: Option<u64>,
    machine_bytes: usize,
    arena_bytes: usize,
    /// `server.buffers`; 0: not set.
    buffer_bytes: usize,
}

/// Division of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// None: there is no limit for the process as a whole.
    pub budget: Option<Budget>,
    /// Memory of requests and replies in progress, in bytes.
    pub buffer_bytes: usize,
    /// Unused buffers that are kept, in bytes.
    pub idle_bytes: usize,
    /// State of NFS clients, in bytes.
    pub state_bytes: usize,
    /// Most connections.
    pub connections: usize,
}

impl MemoryPlan {
    /// Divides the memory for these settings on this machine.
    pub(super) fn for_machine(settings: &Settings) -> Self {
        let machine = rustix::system::sysinfo();
        let plan = Self::divide(Wanted {
            memory_max_bytes: settings.memory_max_bytes,
            cgroup_bytes: cgroup::memory_limit(),
            machine_bytes: machine.totalram as usize * machine.mem_unit as usize,
            arena_bytes: settings.rdma.pinned_bytes(),
            buffer_bytes: settings.buffer_bytes,
        });
        plan.report(settings);
        plan
    }

    fn divide(wanted: Wanted) -> Self {
        let configured = (wanted.memory_max_bytes > 0)
            .then_some(Budget { bytes: wanted.memory_max_bytes, source: BudgetSource::Configured });
        // A limit beyond the machine's memory is none.
        let of_group = wanted.cgroup_bytes.filter(|bytes| *bytes < wanted.machine_bytes as u64);
        let of_group = of_group.map(|bytes| {
            let kernel = (bytes / KERNEL_PART).max(LEAST_KERNEL_BYTES);
            let bytes = usize::try_from(bytes.saturating_sub(kernel)).unwrap_or(usize::MAX);
            Budget { bytes, source: BudgetSource::Cgroup }
        });
        let quarter = (wanted.machine_bytes / 4).max(MOST_IDLE_BYTES);
        let asked = (wanted.buffer_bytes > 0).then_some(wanted.buffer_bytes);
        let Some(budget) = configured.or(of_group) else {
            return Self {
                budget: None,
                buffer_bytes: asked.unwrap_or(quarter),
                idle_bytes: MOST_IDLE_BYTES,
                state_bytes: usize::MAX,
                connections: usize::MAX,
            };
        };
        let rest = budget.bytes.saturating_sub(BASE_BYTES).saturating_sub(wanted.arena_bytes);
        let most = rest / 4 * 3;
        let buffers = asked.unwrap_or(quarter.min(rest / 2));
        Self {
            budget: Some(budget),
            buffer_bytes: buffers.min(most).max(LEAST_BUFFER_BYTES),
            idle_bytes: MOST_IDLE_BYTES.min(rest / 16),
            state_bytes: rest / 4,
            connections: (rest / 8 / CONNECTION_BYTES).max(LEAST_CONNECTIONS),
        }
    }

    /// Logs the division in one line, and in another one what does not fit.
    fn report(&self, settings: &Settings) {
        let Some(Budget { bytes, source }) = self.budget else { return };
        let Self { buffer_bytes, state_bytes, connections, .. } = *self;
        tracing::info!(bytes, ?source, buffer_bytes, state_bytes, connections, "memory");
        if settings.buffer_bytes > buffer_bytes {
            tracing::warn!(
                buffers = settings.buffer_bytes,
                buffer_bytes,
                "buffers are lowered, because the memory of the process is limited; raise the \
                 limit, or lower server.buffers"
            );
        }
    }

    fn level(&self, used_bytes: usize) -> MemoryLevel {
        let Some(Budget { bytes, .. }) = self.budget else { return MemoryLevel::Plenty };
        let from = |(part, of): (usize, usize)| bytes / of * part;
        if used_bytes >= from(FULL_PART) {
            MemoryLevel::Full
        } else if used_bytes >= from(SHORT_PART) {
            MemoryLevel::Short
        } else {
            MemoryLevel::Plenty
        }
    }
}

/// Memory in the output of `status`.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct MemoryStatus {
    /// Memory that the process uses, in bytes.
    pub used_bytes: usize,
    /// Most that it may use; none: no limit.
    pub budget_bytes: Option<usize>,
    /// Source of that limit.
    pub source: Option<BudgetSource>,
    /// `plenty`; `short`: clients wait; `full`: nothing new is accepted.
    pub level: &'static str,
    /// Time for which memory was short or full, in milliseconds.
    pub short_milliseconds: u64,
}

/// The plan, and what is measured.
#[derive(Debug)]
pub(crate) struct Memory {
    pub plan: MemoryPlan,
    short_milliseconds: AtomicU64,
}

impl Memory {
    pub(super) fn new(plan: MemoryPlan) -> Self {
        Self { plan, short_milliseconds: AtomicU64::new(0) }
    }

    pub(super) fn status(&self, level: MemoryLevel) -> MemoryStatus {
        MemoryStatus {
            used_bytes: used_bytes().unwrap_or(0),
            budget_bytes: self.plan.budget.map(|budget| budget.bytes),
            source: self.plan.budget.map(|budget| budget.source),
            level: match level {
                MemoryLevel::Plenty => "plenty",
                MemoryLevel::Short => "short",
                MemoryLevel::Full => "full",
            },
            short_milliseconds: self.short_milliseconds.load(Ordering::Relaxed),
        }
    }
}

/// Returns the memory of the process that the kernel cannot take back, in bytes.
fn used_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').map(|field| field.parse::<usize>().ok());
    let (resident, shared) = (pages.nth(1)??, pages.next()??);
    Some(resident.saturating_sub(shared) * page_size())
}

/// Measures the memory of a gateway with a budget until the process ends.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn watch(shared: &Arc<Shared>) -> io::Result<()> {
    if shared.memory.plan.budget.is_none() {
        return Ok(());
    }
    no_huge_pages();
    let shared = Arc::downgrade(shared);
    let thread = std::thread::Builder::new().name("zgate-memory".to_owned());
    thread.spawn(move || {
        let mut logged = None;
        while let Some(shared) = shared.upgrade() {
            caught_blocking("the look at the memory", || sample(&shared, &mut logged));
            drop(shared);
            std::thread::sleep(SAMPLE_INTERVAL);
        }
    })?;
    Ok(())
}

/// Has the kernel give pages of the usual size: with huge ones, each touched page of
/// a buffer would take 2 MiB of the budget.
fn no_huge_pages() {
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "transparent huge pages stay on");
    }
}

fn sample(shared: &Shared, logged: &mut Option<std::time::Instant>) {
    let (memory, network) = (&shared.memory, &shared.network);
    let Some(used) = used_bytes() else { return };
    let level = memory.plan.level(used);
    if level > MemoryLevel::Plenty {
        network.pool.free_idle();
        let passed = SAMPLE_INTERVAL.as_millis() as u64;
        memory.short_milliseconds.fetch_add(passed, Ordering::Relaxed);
        if logged.is_none_or(|logged| logged.elapsed() > LOG_PAUSE) {
            *logged = Some(std::time::Instant::now());
            let budget = memory.plan.budget.map_or(0, |budget| budget.bytes);
            let (used, budget) = (ByteSize(used as u64), ByteSize(budget as u64));
            tracing::warn!(
                %used,
                %budget,
                ?level,
                "memory runs short: clients wait, and new ones are refused when it is full; see \
                 server.memory_max"
            );
        }
    }
    network.quota.set_level(level);
    network.connections.set_full(level == MemoryLevel::Full);
    shared.nfs.v4.set_memory_full(level == MemoryLevel::Full);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn wanted() -> Wanted {
        Wanted {
            memory_max_bytes: 0,
            cgroup_bytes: None,
            machine_bytes: 64 * GIB,
            arena_bytes: 0,
            buffer_bytes: 0,
        }
    }

    #[test]
    fn without_a_limit_everything_is_as_large_as_it_may_be() {
        let plan = MemoryPlan::divide(wanted());
        assert_eq!((plan.budget, plan.buffer_bytes), (None, 16 * GIB));
        assert_eq!((plan.state_bytes, plan.connections), (usize::MAX, usize::MAX));
        assert_eq!(plan.level(usize::MAX), MemoryLevel::Plenty);
        // That of the machine as a whole is none.
        let whole = Wanted { cgroup_bytes: Some(64 << 30), ..wanted() };
        assert_eq!(MemoryPlan::divide(whole), plan);
    }

    #[test]
    fn the_parts_fit_into_the_budget() {
        for megabytes in [128, 192, 256, 512, 1024, 4096, 65_536] {
            for arena_bytes in [0, (megabytes - 128) * MIB] {
                for buffer_bytes in [0, 64 * MIB, 512 * GIB] {
                    let memory_max_bytes = megabytes * MIB;
                    let plan = MemoryPlan::divide(Wanted {
                        memory_max_bytes,
                        arena_bytes,
                        buffer_bytes,
                        ..wanted()
                    });
                    let connections = plan.connections * CONNECTION_BYTES;
                    let state =
                        plan.state_bytes.max(zgate_nfs::v4::tables::quota::LEAST_STATE_BYTES);
                    let parts = BASE_BYTES + arena_bytes + plan.idle_bytes + state + connections;
                    let buffers = if buffer_bytes == 0 { plan.buffer_bytes } else { 0 };
                    assert!(parts + buffers <= memory_max_bytes, "{megabytes} MiB: {plan:?}");
                    assert!(plan.buffer_bytes < memory_max_bytes, "{megabytes} MiB: {plan:?}");
                }
            }
        }
    }

    #[test]
    fn the_configuration_comes_before_the_control_group() {
        let group = Wanted { cgroup_bytes: Some(1 << 30), ..wanted() };
        let budget = MemoryPlan::divide(group).budget.unwrap();
        assert_eq!(budget, Budget { bytes: GIB / 8 * 7, source: BudgetSource::Cgroup });
        let both = Wanted { memory_max_bytes: 256 * MIB, ..group };
        let plan = MemoryPlan::divide(both);
        assert_eq!(plan.budget.unwrap().source, BudgetSource::Configured);
        for (used, level) in [
            (223, MemoryLevel::Plenty),
            (224, MemoryLevel::Short),
            (239, MemoryLevel::Short),
            (240, MemoryLevel::Full),
        ] {
            assert_eq!(plan.level(used * MIB), level);
        }
    }

    #[test]
    fn the_memory_of_this_process_is_measured() {
        let grows = || {
            let before = used_bytes().unwrap();
            let block = std::hint::black_box(vec![1u8; 64 * MIB]);
            let after = used_bytes().unwrap();
            drop(block);
            after >= before + 48 * MIB
        };
        // Other tests of this process return memory at the same time.
        assert!((0..50).any(|_| grows()));
    }
}
