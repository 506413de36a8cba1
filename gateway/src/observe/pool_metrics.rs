//! Metrics of pools. Names and values are those of the well-known exporters if
//! these have them (`zfs_pool_*`); docs/METRICS.md has the table.

use super::metric::{Metric, Page, Samples, metrics};
use super::pools::{PoolWatch, View};
use std::fmt;
use zgate_control::health::{PoolState, VdevLatency, Wait, watch};

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

fn vdevs(page: &mut Page<'_>, view: &View) -> fmt::Result {
    let sampled =
        || view.pools.iter().filter_map(|(name, seen)| Some((name, seen.health.as_ref()?)));
    let mut samples = page.metric(VDEV_HEALTH)?;
    for (pool, health) in sampled() {
        for device in &health.status.devices {
            let labels =
                [("pool", pool.as_str()), ("vdev", &device.name), ("class", class(device.class))];
            samples.add(&labels, device.state.code())?;
        }
    }
    let mut samples = page.metric(VDEV_ERRORS)?;
    for (pool, health) in sampled() {
        for device in &health.status.devices {
            for (kind, count) in [
                ("read", device.read_errors),
                ("write", device.write_errors),
                ("checksum", device.checksum_errors),
            ] {
                let labels = [
                    ("pool", pool.as_str()),
                    ("vdev", &device.name),
                    ("class", class(device.class)),
                    ("kind", kind),
                ];
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
    // Values measured before the pool was suspended are obsolete.
    let lively = view.pools.values().filter(|seen| seen.state() != PoolState::Suspended);
    for latency in lively.filter_map(|seen| seen.health.as_ref()).flat_map(|h| &h.latencies) {
        waits(&mut samples, latency)?;
    }
    Ok(())
}

fn waits(samples: &mut Samples<'_>, latency: &VdevLatency) -> fmt::Result {
    let stages: [(&str, Wait); 4] = [
        ("total", latency.total),
        ("disk", latency.disk),
        ("sync_queue", latency.sync_queue),
        ("async_queue", latency.async_queue),
    ];
    for (stage, wait) in stages {
        for (kind, value) in [("read", wait.read_nanoseconds), ("write", wait.write_nanoseconds)] {
            let Some(nanoseconds) = value else { continue };
            let labels = [
                ("pool", latency.pool.as_str()),
                ("vdev", &latency.vdev),
                ("stage", stage),
                ("kind", kind),
            ];
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

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        assert_documented(ALL);
    }

    #[test]
    fn labels_cannot_break_out() {
        let labels = [("pool", "tank"), ("vdev", "/tmp/a\"} 1\n"), ("class", "normal")];
        let out = page_text(move |page| page.metric(VDEV_SIZE)?.add(&labels, 5_u64));
        let expected = r#"{pool="tank",vdev="/tmp/a\"} 1\n",class="normal"} 5"#;
        assert!(out.lines().any(|line| line.ends_with(expected)), "{out}");
    }
}
