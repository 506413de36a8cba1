//! Metrics of pools. Names and values are those of the well-known exporters if
//! these have them (`zfs_pool_*`); docs/METRICS.md has the table.

use super::metric::{Metric, Page, Samples, metrics};
use super::pools::{PoolWatch, View};
use std::collections::BTreeMap;
use std::fmt;
use zgate_control::health::{Device, PoolState, VdevLatency, Wait, watch};

metrics! {
    HEALTH "zfs_pool_health" Gauge ["pool"] "0 online, 1 degraded, 2 faulted, 3 offline, 4 unavailable, 5 removed, 6 suspended, 7 unknown";
    SIZE "zfs_pool_size_bytes" Gauge ["pool"] "Size of the pool, parity of raidz included";
    ALLOCATED "zfs_pool_allocated_bytes" Gauge ["pool"] "Space taken";
    FREE "zfs_pool_free_bytes" Gauge ["pool"] "Space not taken";
    FREEING "zfs_pool_freeing_bytes" Gauge ["pool"] "Space still to be freed of what was destroyed";
    LEAKED "zfs_pool_leaked_bytes" Gauge ["pool"] "Space lost in freeing";
    CAPACITY "zfs_pool_capacity_ratio" Gauge ["pool"] "Part of the pool that is taken";
    FRAGMENTATION "zfs_pool_fragmentation_ratio" Gauge ["pool"] "How scattered the free space is";
    DEDUPLICATION "zfs_pool_deduplication_ratio" Gauge ["pool"] "Size of deduplicated data by its size without deduplication";
    READONLY "zfs_pool_readonly" Gauge ["pool"] "1: imported read-only";
    WARNING "zfs_pool_capacity_warning_percent" Gauge ["pool"] "The threshold of capacity that is crossed: 80, 90, 95, or 0";
    DATA_ERRORS "zfs_pool_data_errors" Gauge ["pool"] "Blocks damaged beyond repair";
    SCRUB_STATE "zfs_pool_scrub_state" Gauge ["pool"] "0 none, scrub: 1 runs, 2 finished, 3 canceled, 4 paused, resilver: 5 runs, 6 finished";
    SCRUB_COMPLETED "zfs_pool_scrub_last_completed_timestamp_seconds" Gauge ["pool"] "When the latest scrub or resilver ended; 0: none has";
    SCRUB_ERRORS "zfs_pool_scrub_errors" Gauge ["pool"] "Errors the latest scrub or resilver found";
    SCRUB_REPAIRED "zfs_pool_scrub_repaired_bytes" Gauge ["pool"] "Bytes the latest scrub or resilver repaired";
    SCRUB_TOTAL "zfs_pool_scrub_total_bytes" Gauge ["pool"] "Bytes the running scrub or resilver has to look at; 0: none runs";
    SCRUB_SCANNED "zfs_pool_scrub_scanned_bytes" Gauge ["pool"] "Bytes it has found so far";
    SCRUB_ISSUED "zfs_pool_scrub_issued_bytes" Gauge ["pool"] "Bytes it has verified so far";
    SAMPLE_AGE "zfs_pool_sample_age_seconds" Gauge ["pool"] "How old the figures of the pool are";
    VDEV_HEALTH "zfs_pool_vdev_health" Gauge ["pool", "vdev", "class"] "As zfs_pool_health, of a vdev";
    VDEV_ERRORS "zfs_pool_vdev_errors_total" Counter ["pool", "vdev", "class", "kind"] "Errors of a vdev since the last zpool clear, by kind";
    VDEV_SIZE "zfs_pool_vdev_size_bytes" Gauge ["pool", "vdev", "class"] "Size of a top-level vdev";
    VDEV_ALLOCATED "zfs_pool_vdev_allocated_bytes" Gauge ["pool", "vdev", "class"] "Space taken of a top-level vdev";
    VDEV_WAIT "zfs_pool_vdev_wait_seconds" Gauge ["pool", "vdev", "stage", "kind"] "How long requests took on average when it was measured last, by stage and kind";
    ARC_HITS "zfs_arc_hits_total" Counter "Look-ups answered from memory";
    ARC_MISSES "zfs_arc_misses_total" Counter "Look-ups not answered from memory";
    ARC_SIZE "zfs_arc_size_bytes" Gauge "Memory the cache takes";
    ARC_TARGET "zfs_arc_target_bytes" Gauge "Memory the cache aims at";
    ARC_MAX "zfs_arc_max_bytes" Gauge "Memory the cache may take at most";
    L2ARC_HITS "zfs_l2arc_hits_total" Counter "Look-ups answered from cache devices";
    L2ARC_MISSES "zfs_l2arc_misses_total" Counter "Look-ups cache devices could not answer";
    L2ARC_SIZE "zfs_l2arc_size_bytes" Gauge "Data on cache devices, before compression";
    ZIL_COMMITS "zfs_zil_commits_total" Counter "Times somebody waited for the intent log";
    ZIL_SLOG_WRITES "zfs_zil_slog_writes_total" Counter "Records written to log devices";
    ZIL_SLOG_BYTES "zfs_zil_slog_bytes_total" Counter "Bytes written to log devices";
    ZIL_NORMAL_WRITES "zfs_zil_normal_writes_total" Counter "Records of the intent log written to ordinary vdevs";
    ZIL_NORMAL_BYTES "zfs_zil_normal_bytes_total" Counter "Bytes of the intent log written to ordinary vdevs";
    FAILURES "zgate_pool_sample_failures_total" Counter "Questions to zpool that were not answered";
}

/// All metrics of pools; none if ZFS is not loaded.
pub(crate) fn render(page: &mut Page<'_>, watch: &PoolWatch) -> fmt::Result {
    let view = watch.view();
    let Some(arc) = view.arc else { return Ok(()) };
    pools(page, &view)?;
    vdevs(page, &view)?;
    let zil = view.zil;
    for (metric, value) in [
        (ARC_HITS, arc.hits),
        (ARC_MISSES, arc.misses),
        (ARC_SIZE, arc.size_bytes),
        (ARC_TARGET, arc.target_bytes),
        (ARC_MAX, arc.max_bytes),
        (L2ARC_HITS, arc.l2_hits),
        (L2ARC_MISSES, arc.l2_misses),
        (L2ARC_SIZE, arc.l2_size_bytes),
        (ZIL_COMMITS, zil.commits),
        (ZIL_SLOG_WRITES, zil.slog_writes),
        (ZIL_SLOG_BYTES, zil.slog_bytes),
        (ZIL_NORMAL_WRITES, zil.normal_writes),
        (ZIL_NORMAL_BYTES, zil.normal_bytes),
        (FAILURES, view.failures),
    ] {
        page.single(metric, value)?;
    }
    Ok(())
}

fn pools(page: &mut Page<'_>, view: &View) -> fmt::Result {
    let mut samples = page.metric(HEALTH)?;
    for (name, seen) in &view.pools {
        samples.add(&[("pool", name)], seen.state().code())?;
    }
    let mut samples = page.metric(SAMPLE_AGE)?;
    for (name, seen) in &view.pools {
        if let Some(age) = seen.age_seconds() {
            samples.add(&[("pool", name)], age)?;
        }
    }
    let mut samples = page.metric(WARNING)?;
    for (name, seen) in &view.pools {
        samples.add(&[("pool", name)], seen.watch.capacity_level())?;
    }
    let sampled =
        || view.pools.iter().filter_map(|(name, seen)| Some((name, seen.health.as_ref()?)));
    let mut each =
        |metric: Metric, value: fn(&zgate_control::health::PoolHealth) -> f64| -> fmt::Result {
            let mut samples = page.metric(metric)?;
            for (name, health) in sampled() {
                samples.add(&[("pool", name)], value(health))?;
            }
            Ok(())
        };
    each(SIZE, |health| health.pool.size_bytes as f64)?;
    each(ALLOCATED, |health| health.pool.allocated_bytes as f64)?;
    each(FREE, |health| health.pool.free_bytes as f64)?;
    each(FREEING, |health| health.freeing_bytes as f64)?;
    each(LEAKED, |health| health.leaked_bytes as f64)?;
    each(CAPACITY, |health| watch::used_percent(&health.pool) / 100.0)?;
    each(FRAGMENTATION, |health| {
        health.pool.fragmentation_percent.map_or(f64::NAN, |percent| percent as f64 / 100.0)
    })?;
    each(DEDUPLICATION, |health| 1.0 / health.pool.dedup_ratio.max(1.0))?;
    each(READONLY, |health| f64::from(u8::from(health.pool.readonly)))?;
    each(DATA_ERRORS, |health| health.status.data_errors as f64)?;
    each(SCRUB_STATE, |health| {
        health.status.scan.as_ref().map_or(0.0, |scan| f64::from(scan.code()))
    })?;
    each(SCRUB_COMPLETED, |health| {
        let ended = health.status.scan.as_ref().and_then(|scan| scan.ended_unix_seconds);
        ended.unwrap_or(0) as f64
    })?;
    each(SCRUB_ERRORS, |health| {
        health.status.scan.as_ref().map_or(0.0, |scan| scan.errors as f64)
    })?;
    each(SCRUB_REPAIRED, |health| {
        health.status.scan.as_ref().map_or(0.0, |scan| scan.repaired_bytes as f64)
    })?;
    each(SCRUB_TOTAL, |health| running(health, |scan| scan.total_bytes))?;
    each(SCRUB_SCANNED, |health| running(health, |scan| scan.scanned_bytes))?;
    each(SCRUB_ISSUED, |health| running(health, |scan| scan.issued_bytes))
}

fn running(
    health: &zgate_control::health::PoolHealth,
    value: fn(&zgate_control::health::Scan) -> u64,
) -> f64 {
    let scan = health.status.scan.as_ref().filter(|scan| scan.is_open());
    scan.map_or(0.0, |scan| value(scan) as f64)
}

/// Returns the value of the label `class`: the terms of `zpool`.
fn class(class: zgate_control::VdevClass) -> &'static str {
    use zgate_control::VdevClass::{Cache, Data, Dedup, Log, Spare, Special};
    match class {
        Data => "normal",
        Special => "special",
        Dedup => "dedup",
        Log => "log",
        Cache => "cache",
        Spare => "spare",
    }
}

/// Kinds of errors of a vdev.
const ERROR_KINDS: [&str; 3] = ["read", "write", "checksum"];
/// Stages of its requests.
const STAGES: [&str; 4] = ["total", "disk", "sync_queue", "async_queue"];

/// State and errors of the vdevs of one name.
#[derive(Default)]
struct Condition {
    code: usize,
    errors: [u64; ERROR_KINDS.len()],
}

/// Returns the vdevs by class and name. ZFS numbers what is being replaced within its group alone:
/// two mirrors may have a `replacing-1`. They share a series, which has the worse state of both and
/// the errors of both.
fn by_name(devices: &[Device]) -> BTreeMap<(&'static str, &str), Condition> {
    let mut all = BTreeMap::<_, Condition>::new();
    for device in devices {
        let one = all.entry((class(device.class), device.name.as_str())).or_default();
        one.code = one.code.max(device.state.code());
        let errors = [device.read_errors, device.write_errors, device.checksum_errors];
        for (sum, more) in one.errors.iter_mut().zip(errors) {
            *sum = sum.saturating_add(more);
        }
    }
    all
}

/// Returns the latencies of vdevs by name, by stage; the longer ones of two of one name.
fn waits_by_name(latencies: &[VdevLatency]) -> BTreeMap<&str, [Wait; STAGES.len()]> {
    let mut all = BTreeMap::<_, [Wait; STAGES.len()]>::new();
    for latency in latencies {
        let VdevLatency { total, disk, sync_queue, async_queue, .. } = *latency;
        let longest = all.entry(latency.vdev.as_str()).or_default();
        for (longest, wait) in longest.iter_mut().zip([total, disk, sync_queue, async_queue]) {
            longest.read_nanoseconds = longest.read_nanoseconds.max(wait.read_nanoseconds);
            longest.write_nanoseconds = longest.write_nanoseconds.max(wait.write_nanoseconds);
        }
    }
    all
}

fn vdevs(page: &mut Page<'_>, view: &View) -> fmt::Result {
    let sampled =
        || view.pools.iter().filter_map(|(name, seen)| Some((name, seen.health.as_ref()?)));
    let mut samples = page.metric(VDEV_HEALTH)?;
    for (pool, health) in sampled() {
        for ((class, vdev), one) in by_name(&health.status.devices) {
            let labels = [("pool", pool.as_str()), ("vdev", vdev), ("class", class)];
            samples.add(&labels, one.code)?;
        }
    }
    let mut samples = page.metric(VDEV_ERRORS)?;
    for (pool, health) in sampled() {
        for ((class, vdev), one) in by_name(&health.status.devices) {
            for (kind, count) in ERROR_KINDS.into_iter().zip(one.errors) {
                let labels =
                    [("pool", pool.as_str()), ("vdev", vdev), ("class", class), ("kind", kind)];
                samples.add(&labels, count)?;
            }
        }
    }
    for (metric, value) in [
        (VDEV_SIZE, (|vdev| vdev.size_bytes) as fn(&zgate_control::Vdev) -> u64),
        (VDEV_ALLOCATED, |vdev| vdev.allocated_bytes),
    ] {
        let mut samples = page.metric(metric)?;
        for (pool, health) in sampled() {
            for vdev in &health.pool.vdevs {
                let labels =
                    [("pool", pool.as_str()), ("vdev", &vdev.name), ("class", class(vdev.class))];
                samples.add(&labels, value(vdev))?;
            }
        }
    }
    let mut samples = page.metric(VDEV_WAIT)?;
    for (pool, health) in sampled() {
        // Values measured before the pool was suspended are obsolete.
        if view.pools[pool].state() == PoolState::Suspended {
            continue;
        }
        for (vdev, waits_of_vdev) in waits_by_name(&health.latencies) {
            waits(&mut samples, (pool.as_str(), vdev), waits_of_vdev)?;
        }
    }
    Ok(())
}

fn waits(
    samples: &mut Samples<'_>,
    (pool, vdev): (&str, &str),
    stages: [Wait; STAGES.len()],
) -> fmt::Result {
    for (stage, wait) in STAGES.into_iter().zip(stages) {
        for (kind, value) in [("read", wait.read_nanoseconds), ("write", wait.write_nanoseconds)] {
            let Some(nanoseconds) = value else { continue };
            let labels = [("pool", pool), ("vdev", vdev), ("stage", stage), ("kind", kind)];
            samples.add(&labels, nanoseconds as f64 / 1e9)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::documented::assert_documented;
    use crate::observe::metric::page_text;
    use std::collections::BTreeSet;
    use zgate_control::health::{PoolHealth, latency, status_text};
    use zgate_control::{OutputForm, pools};

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        assert_documented(ALL);
    }

    /// A disk is being replaced in each of two mirrors.
    const REPLACING: &str = "  pool: tank\n state: DEGRADED\nconfig:\n\n\
        \tNAME             STATE     READ WRITE CKSUM\n\
        \ttank             DEGRADED     0     0     0\n\
        \t  mirror-0       ONLINE       0     0     0\n\
        \t    /dev/a       ONLINE       0     0     0\n\
        \t    replacing-1  ONLINE       0     0     3\n\
        \t      /dev/b     ONLINE       0     0     0\n\
        \t      /dev/c     ONLINE       0     0     0\n\
        \t  mirror-1       DEGRADED     0     0     0\n\
        \t    /dev/d       ONLINE       0     0     0\n\
        \t    replacing-1  DEGRADED     0     0     4\n\
        \t      /dev/e     OFFLINE      0     0     0\n\
        \t      /dev/f     ONLINE       0     0     0\n\n\
        errors: No known data errors\n";

    #[test]
    fn vdevs_of_one_name_share_a_series() {
        let iostat = |name: &str, nanoseconds: u64| {
            format!("{name}\t0\t0\t1\t1\t1\t1{}\n", format!("\t{nanoseconds}").repeat(8))
        };
        let measured = [
            iostat("tank", 500_000_000),
            iostat("replacing-1", 2_000_000_000),
            iostat("replacing-1", 1_000_000_000),
        ];
        let list = "tank\t1\tDEGRADED\t1000\t100\t900\t10\t0\t1.00\toff\toff\t12\t-\n";
        let health = PoolHealth {
            status: status_text::parse(REPLACING).remove(0),
            pool: pools::parse(OutputForm::Columns, list).unwrap().remove(0),
            freeing_bytes: 0,
            leaked_bytes: 0,
            latencies: latency::parse(&measured.concat(), &["tank"]),
        };
        let mut view = View::default();
        view.pools.entry("tank".to_owned()).or_default().health = Some(health);
        let text = page_text(move |page| vdevs(page, &view));
        let mut series = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.rsplit_once(' ').unwrap();
            assert!(series.insert(name), "{name} twice in {text}");
        }
        let labels = "pool=\"tank\",vdev=\"replacing-1\"";
        for expected in [
            format!("zfs_pool_vdev_health{{{labels},class=\"normal\"}} 1\n"),
            format!(
                "zfs_pool_vdev_errors_total{{{labels},class=\"normal\",kind=\"checksum\"}} 7\n"
            ),
            format!("zfs_pool_vdev_wait_seconds{{{labels},stage=\"total\",kind=\"read\"}} 2.0\n"),
        ] {
            assert!(text.contains(&expected), "{expected} missing in {text}");
        }
    }

    #[test]
    fn labels_cannot_break_out() {
        let labels = [("pool", "tank"), ("vdev", "/tmp/a\"} 1\n"), ("class", "normal")];
        let out = page_text(move |page| page.metric(VDEV_SIZE)?.add(&labels, 5_u64));
        let expected = r#"{pool="tank",vdev="/tmp/a\"} 1\n",class="normal"} 5"#;
        assert!(out.lines().any(|line| line.ends_with(expected)), "{out}");
    }
}
