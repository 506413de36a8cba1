//! Output of a real OpenZFS 2.3 (recorded in the lab), and its parsed form.

use super::*;
use crate::discovery::Discovery;
use crate::pools::VdevClass;
use crate::tool::Recorded;
use std::sync::Arc;

const DEGRADED: &str = include_str!("../../fixtures/status-degraded.json");
const DEGRADED_TEXT: &str = include_str!("../../fixtures/status-degraded.txt");
const ERRORS: &str = include_str!("../../fixtures/status-errors.json");
const ERRORS_TEXT: &str = include_str!("../../fixtures/status-errors.txt");
const PAUSED: &str = include_str!("../../fixtures/status-paused.json");
const PAUSED_TEXT: &str = include_str!("../../fixtures/status-paused.txt");
/// Output of `-j -p`, where numbers are strings. The other fixtures are of
/// `--json-int`.
const EXACT: &str = include_str!("../../fixtures/status-exact.json");
const EXACT_TEXT: &str = include_str!("../../fixtures/status-exact.txt");
const IOSTAT: &str = include_str!("../../fixtures/iostat.txt");
const ARCSTATS: &str = include_str!("../../fixtures/arcstats");
const ZIL: &str = include_str!("../../fixtures/zil");

fn one(text: &str) -> PoolStatus {
    status::parse(text).unwrap().remove(0)
}

#[test]
fn both_forms_of_the_status_tell_the_same() {
    let recorded = [
        (DEGRADED, DEGRADED_TEXT),
        (ERRORS, ERRORS_TEXT),
        (PAUSED, PAUSED_TEXT),
        (EXACT, EXACT_TEXT),
    ];
    for (json, text) in recorded {
        let (json, text) = (one(json), status_text::parse(text).remove(0));
        assert_eq!(json.devices, text.devices);
        assert_eq!(
            (json.state, json.problem, json.action, json.data_errors),
            (text.state, text.problem, text.action, text.data_errors)
        );
        let (json, text) = (json.scan.unwrap(), text.scan.unwrap());
        assert_eq!((json.kind, json.state, json.errors), (text.kind, text.state, text.errors));
        assert_eq!(json.ended_unix_seconds, text.ended_unix_seconds);
        let (json, text) = (json.done_ratio.unwrap(), text.done_ratio.unwrap());
        assert!((json - text).abs() < 0.01, "{json} {text}");
    }
}

#[test]
fn a_degraded_pool() {
    let status = one(DEGRADED);
    assert_eq!((status.name.as_str(), status.state), ("tank", PoolState::Degraded));
    let failed: Vec<_> = status.failed_devices().map(|device| device.name.as_str()).collect();
    assert_eq!(failed, ["/tmp/b"]);
    for class in [VdevClass::Data, VdevClass::Special, VdevClass::Log, VdevClass::Cache] {
        assert!(status.has_class(class), "{class:?}");
    }
    assert!(!status.has_class(VdevClass::Spare));
    let scan = status.scan.unwrap();
    assert_eq!((scan.code(), scan.ended_unix_seconds), (2, Some(1_795_257_504)));
    assert_eq!(scan.age_days(1_795_257_504 + 86_400 * 36), Some(36));
}

#[test]
fn errors_a_scrub_repaired() {
    let status = one(ERRORS);
    let with: Vec<_> =
        status.devices_with_errors().map(|one| (one.name.as_str(), one.checksum_errors)).collect();
    assert_eq!(with, [("/tmp/c", 35)]);
    assert_eq!(status.state, PoolState::Online);
    assert!(status.problem.starts_with("One or more devices has experienced an unrecoverable"));
    assert_eq!(status.scan.unwrap().repaired_bytes, 4_587_520);
}

#[test]
fn a_scrub_that_is_paused() {
    let scan = one(PAUSED).scan.unwrap();
    assert_eq!((scan.code(), scan.is_open(), scan.ended_unix_seconds), (4, true, None));
    assert_eq!(scan.issued_bytes, 119_279_616);
}

#[test]
fn latencies_by_device() {
    let found = latency::parse(IOSTAT, &["tank"]);
    let names: Vec<_> = found.iter().map(|one| one.vdev.as_str()).collect();
    assert_eq!(
        names,
        [
            "tank", "mirror-0", "/tmp/a", "/tmp/b", "mirror-1", "/tmp/c", "/tmp/d", "/tmp/sp",
            "/tmp/lg", "/tmp/l2"
        ]
    );
    assert!(found.iter().all(|one| one.pool == "tank"));
    let log = found.iter().find(|one| one.vdev == "/tmp/lg").unwrap();
    assert_eq!(log.total.write_nanoseconds, Some(9_479_480));
    assert_eq!(log.async_queue.write_nanoseconds, None, "a dash");
}

#[test]
fn the_kernels_counters() {
    let arc = ArcStats::new(&Kstat::parse(ARCSTATS));
    assert_eq!((arc.hits, arc.misses, arc.max_bytes), (7741, 0, 256 << 20));
    assert_eq!(arc.hit_ratio(), Some(1.0));
    let zil = ZilStats::new(&Kstat::parse(ZIL));
    assert_eq!((zil.commits, zil.slog_writes, zil.slog_bytes), (403, 567, 42_372_216));
    assert_eq!(zil.normal_bytes, 0);
}

#[test]
fn a_release_without_json_is_asked_for_words() {
    let list = "tank\t1\tDEGRADED\t1000\t100\t900\t10\t0\t1.00\toff\toff\t12\t-\n";
    let columns = "name,guid,health,size,allocated,free,capacity,fragmentation,dedupratio,readonly,autotrim,ashift,altroot";
    let tool = Recorded::default()
        .then_fail(&format!("zpool list -j -p -v -P -o {columns} tank"), 2, "invalid option 'j'")
        .then(&format!("zpool list -Hp -o {columns} tank"), list)
        .then("zpool list -Hp -v -P tank", "")
        .then("zpool status -pP tank", DEGRADED_TEXT)
        .then("zpool get -Hp -o property,value freeing,leaked tank", "freeing\t7\nleaked\t0\n");
    let health =
        PoolHealth::ask(&Discovery::new(Arc::new(tool)), &"tank".parse().unwrap()).unwrap();
    assert_eq!((health.state(), health.freeing_bytes), (PoolState::Degraded, 7));
}
