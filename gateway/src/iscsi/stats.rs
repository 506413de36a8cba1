//! Statistics of the iSCSI data path: relaxed atomics, read on demand. What all sessions
//! count is in shards of the threads.

use crate::observe::data_path::DataPath;
use crate::observe::latency::{LATENCY_BOUNDS_SECONDS, LATENCY_BUCKETS as BUCKETS, LatencyCounts};
use crate::observe::load::{FinishedRequest, LoadFigures};
use crate::observe::sharded::Sharded;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zgate_iscsi::login::LoginStatus;
use zgate_scsi::{Asc, ScsiStatus, Sense, SenseKey};

macro_rules! families {
    ($($id:ident $label:literal: $($opcode:literal)|+;)*) => {
        /// Family of SCSI commands in metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Family { $(#[allow(missing_docs)] $id),*, Other }

        impl Family {
            /// All families.
            pub(crate) const ALL: &[Self] = &[$(Self::$id),*, Self::Other];

            /// Returns the family of an operation code.
            pub(crate) fn of(opcode: u8) -> Self {
                match opcode {
                    $($($opcode)|+ => Self::$id,)*
                    _ => Self::Other,
                }
            }

            /// Returns its label.
            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(Self::$id => $label,)*
                    Self::Other => "other",
                }
            }
        }
    };
}

families! {
    Read "read": 0x08 | 0x28 | 0xa8 | 0x88;
    Write "write": 0x0a | 0x2a | 0xaa | 0x8a | 0x9c | 0x2e | 0xae | 0x8e | 0x8b;
    Verify "verify": 0x2f | 0xaf | 0x8f;
    WriteSame "write_same": 0x41 | 0x93;
    Unmap "unmap": 0x42;
    CompareAndWrite "compare_and_write": 0x89;
    SyncCache "sync_cache": 0x35 | 0x91;
    Copy "copy": 0x83 | 0x84;
    Reserve "reserve": 0x5e | 0x5f | 0x16 | 0x17 | 0x56 | 0x57;
    Inquiry "inquiry": 0x12 | 0xa0 | 0xa3;
    Capacity "capacity": 0x25 | 0x9e;
    Mode "mode": 0x1a | 0x5a | 0x15 | 0x55 | 0x4d;
    Ready "ready": 0x00 | 0x03 | 0x1b | 0x1e;
    Sanitize "sanitize": 0x48;
}

/// Statuses with their own label.
pub(crate) const STATUSES: &[(ScsiStatus, &str)] = &[
    (ScsiStatus::CheckCondition, "check_condition"),
    (ScsiStatus::ReservationConflict, "reservation_conflict"),
    (ScsiStatus::Busy, "busy"),
    (ScsiStatus::TaskSetFull, "task_set_full"),
    (ScsiStatus::TaskAborted, "task_aborted"),
];

/// Returns whether a command with this status was refused (SAM-5 §5.3.1). It has not been executed,
/// or, a copy that met a reservation, not to its end: its time says nothing about the storage.
fn is_refusal(status: ScsiStatus) -> bool {
    matches!(status, ScsiStatus::ReservationConflict | ScsiStatus::Busy | ScsiStatus::TaskSetFull)
}

/// Failures of the storage of a logical unit.
pub(crate) const FAILURES: &[(SenseKey, &str)] = &[
    (SenseKey::MediumError, "medium"),
    (SenseKey::HardwareError, "hardware"),
    (SenseKey::DataProtect, "space"),
];

/// Reasons of refused logins that are shown before there is one: alerts count them,
/// and Prometheus sees no increase in a series that begins with its first refusal.
const ALWAYS_SHOWN: [LoginStatus; 2] =
    [LoginStatus::AUTHENTICATION_FAILED, LoginStatus::AUTHORIZATION_FAILED];

/// Statistics of one family.
#[derive(Debug, Default)]
struct FamilyStats {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    errors: [AtomicU64; STATUSES.len()],
}

/// Snapshot of one family's statistics.
#[derive(Clone, Debug)]
pub(crate) struct FamilyFigures {
    /// Buckets, not cumulative.
    pub buckets: LatencyCounts,
    pub seconds: f64,
    /// Errors by index in [`STATUSES`].
    pub errors: [u64; STATUSES.len()],
}

impl FamilyFigures {
    /// Returns the number of commands that were refused; they are not in the buckets.
    fn refused(&self) -> u64 {
        let counts = STATUSES.iter().zip(self.errors);
        counts.filter(|((status, _), _)| is_refusal(*status)).map(|(_, count)| count).sum()
    }

    /// Returns the number of commands that were not.
    fn timed(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Statistics of one logical unit, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct UnitStats {
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub others: AtomicU64,
    /// Sum of the times that its commands took, in nanoseconds.
    busy_nanos: AtomicU64,
    running: AtomicU64,
    /// Commands that failed in the storage, by index in [`FAILURES`].
    pub failures: [AtomicU64; FAILURES.len()],
}

impl UnitStats {
    /// Counts a failure that the initiator did not cause.
    pub(crate) fn fail(&self, sense: &Sense) {
        // A write to a protected disk is the initiator's error.
        if sense.key == SenseKey::DataProtect && sense.asc != Asc::SPACE_ALLOCATION_FAILED {
            return;
        }
        if let Some(at) = FAILURES.iter().position(|(key, _)| *key == sense.key) {
            self.failures[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a command that begins; [`Self::count`] must follow.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the load of the unit.
    pub(crate) fn load(&self) -> LoadFigures {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        LoadFigures {
            requests: load(&self.reads) + load(&self.writes) + load(&self.others),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
            busy_nanoseconds: load(&self.busy_nanos),
            running: load(&self.running),
        }
    }

    /// Counts a finished command, its bytes and its time.
    pub(crate) fn count(&self, family: Family, request: FinishedRequest) {
        let FinishedRequest { nanos, read_bytes, written_bytes } = request;
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.busy_nanos.fetch_add(nanos, Ordering::Relaxed);
        match family {
            Family::Read => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
            }
            Family::Write | Family::CompareAndWrite | Family::WriteSame => {
                self.writes.fetch_add(1, Ordering::Relaxed);
                self.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
            }
            _ => {
                self.others.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Statistics of one shard of the threads.
#[derive(Debug, Default)]
struct Shard {
    families: [FamilyStats; Family::ALL.len()],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// Bytes that running commands read or write.
    running_bytes: AtomicU64,
}

/// Statistics of the service.
#[derive(Debug)]
pub(crate) struct Stats {
    shards: Sharded<Shard>,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    pub logins: AtomicU64,
    /// Bytes carried and copied.
    pub data: Arc<DataPath>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            shards: Sharded::default(),
            refused: Mutex::new(ALWAYS_SHOWN.map(|status| (reason(status), 0)).into()),
            logins: AtomicU64::new(0),
            data: Arc::default(),
        }
    }
}

impl Stats {
    /// Counts a finished command, and its time unless it was refused.
    pub(crate) fn command(&self, family: Family, status: ScsiStatus, nanos: u64) {
        let Some(stats) = self.shards.here().families.get(family as usize) else { return };
        if !is_refusal(status) {
            let seconds = nanos as f64 / 1e9;
            let bucket = LATENCY_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
            stats.buckets[bucket].fetch_add(1, Ordering::Relaxed);
            stats.nanos.fetch_add(nanos, Ordering::Relaxed);
        }
        if let Some(at) = STATUSES.iter().position(|(known, _)| *known == status) {
            stats.errors[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts bytes that have been received.
    pub(crate) fn bytes_in(&self, bytes: usize) {
        self.shards.here().received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that have been sent.
    pub(crate) fn bytes_out(&self, bytes: usize) {
        self.shards.here().sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes of commands that run now: `now` instead of `before`.
    pub(crate) fn bytes_running(&self, before: usize, now: usize) {
        // Wraps around if the number decreases.
        let more = now.wrapping_sub(before) as u64;
        self.shards.here().running_bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the sum of a counter in all shards.
    fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.sum(|shard| counter(shard).load(Ordering::Relaxed))
    }

    /// Returns the bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.sum(|shard| &shard.received_bytes), self.sum(|shard| &shard.sent_bytes))
    }

    /// Returns the bytes that running commands read or write.
    pub(crate) fn running_bytes(&self) -> u64 {
        // Negative where a command began in a shard that has been looked at, and ended in
        // another one that has not.
        (self.sum(|shard| &shard.running_bytes) as i64).max(0) as u64
    }

    fn figures(&self, family: Family) -> FamilyFigures {
        let of = family as usize;
        FamilyFigures {
            buckets: std::array::from_fn(|at| self.sum(|shard| &shard.families[of].buckets[at])),
            seconds: self.sum(|shard| &shard.families[of].nanos) as f64 / 1e9,
            errors: std::array::from_fn(|at| self.sum(|shard| &shard.families[of].errors[at])),
        }
    }

    /// Returns every family with at least one command.
    pub(crate) fn families(&self) -> impl Iterator<Item = (Family, FamilyFigures)> {
        let all = Family::ALL.iter().map(move |family| (*family, self.figures(*family)));
        all.filter(|(_, figures)| figures.refused() > 0 || figures.timed() > 0)
    }

    /// Returns the number of all commands, refused ones too, and the times of reads and of
    /// writes.
    pub(crate) fn transfers(&self) -> (u64, [LatencyCounts; 2]) {
        let all = Family::ALL.iter().map(|family| self.figures(*family));
        let commands = all.map(|figures| figures.timed() + figures.refused()).sum();
        (commands, [Family::Read, Family::Write].map(|family| self.figures(family).buckets))
    }

    /// Counts a failed login.
    pub(crate) fn login_refused(&self, reason: &'static str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry(reason).or_default() += 1;
    }

    /// Returns the failed logins, by reason; those of [`ALWAYS_SHOWN`] also while there
    /// are none.
    pub(crate) fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the name of a login status in metrics and logs.
pub(crate) fn reason(status: LoginStatus) -> &'static str {
    match status {
        LoginStatus::AUTHENTICATION_FAILED => "authentication",
        LoginStatus::AUTHORIZATION_FAILED => "not_allowed",
        LoginStatus::NOT_FOUND => "no_such_target",
        LoginStatus::TARGET_REMOVED => "target_removed",
        LoginStatus::UNSUPPORTED_VERSION => "version",
        LoginStatus::TOO_MANY_CONNECTIONS => "too_many_connections",
        LoginStatus::MISSING_PARAMETER => "missing_parameter",
        LoginStatus::CANNOT_JOIN => "cannot_join",
        LoginStatus::SESSION_TYPE => "session_type",
        LoginStatus::NO_SUCH_SESSION => "no_such_session",
        LoginStatus::UNAVAILABLE => "unavailable",
        LoginStatus::OUT_OF_RESOURCES => "out_of_resources",
        LoginStatus::MOVED_PERMANENTLY | LoginStatus::MOVED_TEMPORARILY => "moved",
        LoginStatus(2, _) => "initiator_error",
        _ => "target_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_family_and_status() {
        let stats = Stats::default();
        stats.command(Family::of(0x28), ScsiStatus::Good, 3_000);
        stats.command(Family::of(0x88), ScsiStatus::CheckCondition, 7_000);
        let (family, FamilyFigures { buckets, errors, .. }) = stats.families().next().unwrap();
        assert_eq!((family.label(), buckets[0], buckets[1], errors[0]), ("read", 1, 1, 1));
        let (all, [reads, _]) = stats.transfers();
        assert_eq!((all, reads.iter().sum()), (2, 2));
        assert_eq!(stats.families().count(), 1);
        assert_eq!(Family::of(0xff).label(), "other");
    }

    #[test]
    fn the_time_of_a_refused_command_does_not_count() {
        let stats = Stats::default();
        stats.command(Family::Write, ScsiStatus::Good, 3_000_000);
        for (status, _) in STATUSES {
            stats.command(Family::Write, *status, 0);
        }
        assert_eq!(stats.families().count(), 1);
        let FamilyFigures { buckets, seconds, errors } = stats.figures(Family::Write);
        // CHECK CONDITION and TASK ABORTED, which may come after any time, and GOOD.
        assert_eq!((buckets[0], buckets.iter().sum::<u64>()), (2, 3));
        assert!((seconds - 0.003).abs() < 1e-9, "{seconds}");
        assert_eq!(errors, [1; STATUSES.len()], "each has its count");
        assert_eq!(stats.transfers().0, 6, "all are requests");
    }

    #[test]
    fn a_family_whose_commands_were_all_refused_is_shown() {
        let stats = Stats::default();
        stats.command(Family::Read, ScsiStatus::TaskSetFull, 0);
        let shown: Vec<_> = stats.families().map(|(family, _)| family.label()).collect();
        assert_eq!(shown, ["read"]);
        let (all, [reads, _]) = stats.transfers();
        assert_eq!((all, reads.iter().sum::<u64>()), (1, 0));
    }

    #[test]
    fn what_all_threads_count_is_shown_as_one() {
        let stats = Stats::default();
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    stats.command(Family::Read, ScsiStatus::Good, 1_000);
                    stats.bytes_in(100);
                    stats.bytes_out(20);
                    stats.bytes_running(0, 4096);
                });
            }
        });
        assert_eq!((stats.transfers().0, stats.bytes()), (5, (500, 100)));
        assert_eq!(stats.running_bytes(), 5 * 4096);
        // They end on whatever thread.
        stats.bytes_running(5 * 4096, 0);
        assert_eq!(stats.running_bytes(), 0);
    }

    #[test]
    fn no_fewer_bytes_than_none_are_running() {
        let stats = Stats::default();
        // Commands that began on another thread, as a reader sees them that has looked at its
        // shard before.
        stats.bytes_running(4096, 0);
        assert_eq!(stats.running_bytes(), 0);
        stats.bytes_running(0, 4096);
        stats.bytes_running(0, 512);
        assert_eq!(stats.running_bytes(), 512);
    }

    #[test]
    fn the_load_of_a_unit_is_that_of_its_commands() {
        let stats = UnitStats::default();
        stats.begin();
        stats.begin();
        let request = FinishedRequest { nanos: 9, read_bytes: 512, written_bytes: 0 };
        stats.count(Family::Read, request);
        let LoadFigures { requests, read_bytes, busy_nanoseconds, running, .. } = stats.load();
        assert_eq!((requests, read_bytes, busy_nanoseconds, running), (1, 512, 9, 1));
    }

    #[test]
    fn only_failures_of_the_storage_count() {
        let stats = UnitStats::default();
        stats.fail(&Sense::new(SenseKey::MediumError, Asc::READ_ERROR));
        stats.fail(&Sense::new(SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED));
        stats.fail(&Sense::new(SenseKey::DataProtect, Asc::WRITE_PROTECTED));
        stats.fail(&Sense::illegal(Asc::LBA_OUT_OF_RANGE));
        let counts: Vec<_> = stats.failures.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [1, 0, 1]);
    }
}
