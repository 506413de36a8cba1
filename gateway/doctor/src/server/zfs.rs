//! Checks of ZFS resources: a log device, memory.

use crate::Verdict;
use crate::facts::ServerFacts;
use zgate_control::properties::SyncMode;

/// Memory size above which advice on memory makes sense, in bytes.
const LARGE_MEMORY_BYTES: u64 = 16 << 30;

/// Checks that synchronous writes go to a fast device.
pub(super) fn slog(facts: &ServerFacts) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for pool in &facts.zfs.pools {
        let Some(health) = &pool.health else { continue };
        let name = &pool.name;
        if health.pool.has_log() {
            verdicts.push(Verdict::ok(format!("pool {name} has a log device")));
            continue;
        }
        if pool.rotational == Some(false) {
            verdicts.push(Verdict::ok(format!("pool {name} needs no log device: it is on flash")));
            continue;
        }
        let waits: Vec<&str> = facts
            .zfs
            .datasets
            .iter()
            .filter(|dataset| dataset.sync == SyncMode::Always)
            .map(|dataset| dataset.name.as_str())
            .filter(|dataset| dataset.split('/').next() == Some(name))
            .collect();
        if !waits.is_empty() {
            verdicts.push(Verdict::warning(
                format!("pool {name} has no log device, and sync=always at {}", waits.join(", ")),
                "each write waits for the disks' heads",
                format!("`zpool add {name} log mirror FLASH-DEVICE FLASH-DEVICE`"),
            ));
        }
    }
    verdicts
}

/// Checks that the ARC leaves memory for the gateway, and is not too small.
pub(super) fn arc_limit(facts: &ServerFacts) -> Vec<Verdict> {
    let Some(arc) = facts.zfs.arc.filter(|arc| arc.max_bytes > 0) else { return Vec::new() };
    let memory = facts.memory_bytes;
    // Largest size of the gateway's buffers.
    let buffers = memory / 4;
    let mebibytes = |bytes: u64| bytes >> 20;
    let advice = |bytes: u64| {
        format!(
            "`echo {bytes} > /sys/module/zfs/parameters/zfs_arc_max`, and `options zfs \
             zfs_arc_max={bytes}` in /etc/modprobe.d/zfs.conf"
        )
    };
    let what = format!(
        "the ARC may take {} MiB of {} MiB of memory",
        mebibytes(arc.max_bytes),
        mebibytes(memory)
    );
    vec![if arc.max_bytes.saturating_add(buffers) > memory {
        Verdict::warning(
            what,
            format!(
                "the gateway's buffers may take {} MiB: if both grow at once, the kernel kills \
                 processes for lack of memory",
                mebibytes(buffers)
            ),
            advice(memory / 2),
        )
    } else if memory >= LARGE_MEMORY_BYTES && arc.max_bytes < memory / 8 {
        Verdict::warning(
            what,
            "most of the memory is unused: reads that it could answer go to the disks",
            advice(memory / 2),
        )
    } else {
        Verdict::ok(what)
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};
    use zgate_control::health::ArcStats;

    #[test]
    fn waiting_writes_want_a_log_device() {
        let mut facts = server();
        assert!(slog(&facts).is_empty());
        facts.zfs.datasets[2].sync = SyncMode::Always;
        assert!(worst(&slog(&facts)).1.contains("zpool add tank log"));
        facts.zfs.pools[0].rotational = Some(false);
        assert_eq!(worst(&slog(&facts)).0, Level::Ok);
    }

    #[test]
    fn too_much_and_too_little_cache() {
        let mut facts = server();
        let mut with = |gibibytes: u64| {
            facts.zfs.arc = Some(ArcStats { max_bytes: gibibytes << 30, ..ArcStats::default() });
            worst(&arc_limit(&facts)).0
        };
        assert_eq!(with(63), Level::Warning);
        assert_eq!(with(32), Level::Ok);
        assert_eq!(with(4), Level::Warning);
    }
}
