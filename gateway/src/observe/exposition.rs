//! The metrics in Prometheus' text format. Every name stands in one table,
//! which docs/METRICS.md is checked against.

use super::{pool_metrics, snapshot_metrics};
use crate::block::figures::{FAILURES, STATUSES as STATUSES_OF_SCSI, UnitFigures};
use crate::block::service::BlockService;
use crate::block::unit::Unit;
use crate::serve::counters::LATENCY_BOUNDS_SECONDS;
use crate::serve::data_path::DataFigures;
use crate::serve::rdma_state::{RdmaPortal, RdmaState};
use crate::serve::service::Shared;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_nfs::runtime::Runtime;
use zgate_store::BlockStore;

/// A metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
}

macro_rules! metrics {
    ($($id:ident $name:literal $kind:literal $help:literal;)*) => {
        $(const $id: Metric = Metric { name: $name, kind: $kind, help: $help };)*
        /// All of them.
        #[cfg(test)]
        pub(crate) const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    OP_SECONDS "zgate_nfs_operation_seconds" "histogram" "Time an NFSv4 operation took, by operation";
    OP_ERRORS "zgate_nfs_operation_errors_total" "counter" "NFSv4 operations that did not succeed, by operation";
    STATUSES "zgate_nfs_errors_total" "counter" "NFSv4 errors answered, by status";
    PROCEDURE_SECONDS "zgate_nfs3_procedure_seconds" "histogram" "Time an NFSv3 procedure took, by procedure";
    RECEIVED "zgate_received_bytes_total" "counter" "Bytes received from clients";
    SENT "zgate_sent_bytes_total" "counter" "Bytes of replies";
    MOVED "zgate_data_moved_bytes_total" "counter" "File and block data carried, by transport and direction";
    COPIED "zgate_data_copied_bytes_total" "counter" "Data that was copied within the process on its way, by transport and direction";
    CONNECTIONS "zgate_connections" "gauge" "Open client connections";
    CLIENTS "zgate_nfs_clients" "gauge" "Confirmed NFSv4 clients";
    COURTESY "zgate_nfs_courtesy_clients" "gauge" "Clients whose lease ran out and who keep state by courtesy";
    SESSIONS "zgate_nfs_sessions" "gauge" "NFSv4.1 sessions";
    SLOTS "zgate_nfs_slots" "gauge" "Slots of all sessions";
    BUSY_SLOTS "zgate_nfs_busy_slots" "gauge" "Slots in which a request runs";
    REPLAYS "zgate_nfs_replays" "gauge" "Requests of present sessions that were repeated by their client";
    OPENS "zgate_nfs_opens" "gauge" "Open files";
    LOCKS "zgate_nfs_lock_stateids" "gauge" "Byte-range lock stateids";
    DELEGATIONS "zgate_nfs_delegations" "gauge" "Delegations given";
    RECALLS "zgate_nfs_recalls" "gauge" "Delegations being recalled";
    GRACE "zgate_nfs_grace_seconds" "gauge" "Seconds the grace period lasts at most; 0: over";
    RECORD_CHANGES "zgate_nfs_client_record_changes" "gauge" "Client records on their way to the state directory, or out of it";
    SCSI_SECONDS "zgate_scsi_command_seconds" "histogram" "Time a SCSI command took, by family";
    SCSI_ERRORS "zgate_scsi_command_errors_total" "counter" "SCSI commands that did not end with GOOD, by family and status";
    LUN_OPERATIONS "zgate_lun_operations_total" "counter" "SCSI commands of a logical unit, by target, lun and kind";
    LUN_BYTES "zgate_lun_bytes_total" "counter" "Bytes read from and written to a logical unit, by target, lun and kind";
    LUN_FAILURES "zgate_lun_failures_total" "counter" "SCSI commands that failed because the storage did, by target, lun and kind";
    LUN_SIZE "zgate_lun_size_bytes" "gauge" "Size of a logical unit, by target and lun";
    LUN_SPACE "zgate_lun_space_available_bytes" "gauge" "Bytes that the store of a thin logical unit can still allocate, by target and lun";
    ISCSI_SESSIONS "zgate_iscsi_sessions" "gauge" "iSCSI sessions";
    ISCSI_CONNECTIONS "zgate_iscsi_connections" "gauge" "Connections of iSCSI sessions";
    ISCSI_LOGINS "zgate_iscsi_logins_total" "counter" "iSCSI logins that succeeded, by connection";
    ISCSI_REFUSED "zgate_iscsi_logins_refused_total" "counter" "iSCSI logins that were refused, by reason";
    ISCSI_RECEIVED "zgate_iscsi_received_bytes_total" "counter" "Bytes received on iSCSI connections after login";
    ISCSI_SENT "zgate_iscsi_sent_bytes_total" "counter" "Bytes sent on iSCSI connections after login";
    ISCSI_RUNNING "zgate_iscsi_running_bytes" "gauge" "Bytes that SCSI commands under way read or write";
    RDMA_LISTENING "zgate_rdma_listening" "gauge" "1: an address that is to be served over RDMA is; 0: its device is missing or away";
    RDMA_CONNECTIONS "zgate_rdma_connections" "gauge" "Open connections over RDMA, of NFS and iSER";
    RDMA_EVENTS "zgate_rdma_device_events_total" "counter" "What happened to RDMA devices, by event";
    REFUSED "zgate_refused_connections_total" "counter" "Connections refused because there were too many";
    ENGINE "zgate_io_engine_info" "gauge" "Always 1; the label names the io engine";
    STARTED "zgate_start_time_seconds" "gauge" "When the process started, in seconds since 1970";
    BUFFERS "zgate_buffers_in_use_bytes" "gauge" "Pool buffers in use";
}

pub(super) fn head(out: &mut String, metric: Metric) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {0} {1}\n# TYPE {0} {2}", metric.name, metric.help, metric.kind);
}

fn single(out: &mut String, metric: Metric, value: impl std::fmt::Display) {
    head(out, metric);
    let _ = writeln!(out, "{} {value}", metric.name);
}

/// One labelled histogram; `buckets` are not cumulative, the text is.
fn histogram(out: &mut String, metric: Metric, label: &str, buckets: &[u64], seconds: f64) {
    let mut count = 0;
    for (at, bucket) in buckets.iter().enumerate() {
        count += bucket;
        let bound = LATENCY_BOUNDS_SECONDS.get(at).map_or("+Inf".to_owned(), |b| b.to_string());
        let _ = writeln!(out, "{}_bucket{{{label},le=\"{bound}\"}} {count}", metric.name);
    }
    let _ = writeln!(out, "{}_sum{{{label}}} {seconds}", metric.name);
    let _ = writeln!(out, "{}_count{{{label}}} {count}", metric.name);
}

/// All metrics now.
pub(crate) fn render(shared: &Shared) -> String {
    let mut out = String::with_capacity(16 << 10);
    operations(&mut out, shared);
    let (received, sent) = shared.metrics.bytes();
    single(&mut out, RECEIVED, received);
    single(&mut out, SENT, sent);
    data_path(&mut out, shared);
    single(&mut out, CONNECTIONS, shared.connections.len());
    let totals = shared.v4.totals(shared.runtime.now().seconds());
    single(&mut out, CLIENTS, totals.clients);
    single(&mut out, COURTESY, totals.courtesy_clients);
    single(&mut out, SESSIONS, totals.sessions);
    single(&mut out, SLOTS, totals.slots);
    single(&mut out, BUSY_SLOTS, totals.busy_slots);
    single(&mut out, REPLAYS, totals.replays);
    single(&mut out, OPENS, totals.opens);
    single(&mut out, LOCKS, totals.locks);
    single(&mut out, DELEGATIONS, totals.delegations);
    single(&mut out, RECALLS, totals.recalls);
    single(&mut out, GRACE, totals.grace_seconds);
    single(&mut out, RECORD_CHANGES, totals.record_changes);
    block_service(&mut out, &shared.block);
    rdma(&mut out, &shared.rdma);
    single(&mut out, REFUSED, shared.metrics.refused());
    head(&mut out, ENGINE);
    let engine = match shared.engine {
        zgate_io::EngineKind::Uring => "uring",
        zgate_io::EngineKind::Threads => "threads",
    };
    let _ = writeln!(out, "{}{{engine=\"{engine}\"}} 1", ENGINE.name);
    single(&mut out, STARTED, shared.started_unix_seconds);
    single(&mut out, BUFFERS, shared.pool.in_use_bytes());
    pool_metrics::render(&mut out, &shared.pools);
    snapshot_metrics::render(&mut out, &shared.schedules);
    out
}

fn rdma(out: &mut String, state: &RdmaState) {
    let Some(report) = state.report() else { return };
    head(out, RDMA_LISTENING);
    for RdmaPortal { address, protocol, listening, .. } in &report.portals {
        let value = u8::from(*listening);
        let labels = format!("address=\"{address}\",protocol=\"{protocol}\"");
        let _ = writeln!(out, "{}{{{labels}}} {value}", RDMA_LISTENING.name);
    }
    single(out, RDMA_CONNECTIONS, report.connections);
    head(out, RDMA_EVENTS);
    for (event, count) in state.events() {
        let _ = writeln!(out, "{}{{event=\"{event}\"}} {count}", RDMA_EVENTS.name);
    }
}

fn operations(out: &mut String, shared: &Shared) {
    let figures = shared.metrics.ops();
    head(out, OP_SECONDS);
    for op in &figures {
        let label = format!("op=\"{}\"", op.op.name());
        histogram(out, OP_SECONDS, &label, &op.buckets, op.seconds);
    }
    head(out, PROCEDURE_SECONDS);
    for procedure in shared.metrics.procedures() {
        let label = format!("procedure=\"{}\"", procedure.name);
        histogram(out, PROCEDURE_SECONDS, &label, &procedure.buckets, procedure.seconds);
    }
    head(out, OP_ERRORS);
    for op in &figures {
        let _ = writeln!(out, "{}{{op=\"{}\"}} {}", OP_ERRORS.name, op.op.name(), op.errors);
    }
    head(out, STATUSES);
    for (status, count) in shared.metrics.errors() {
        let _ = writeln!(out, "{}{{status=\"{}\"}} {count}", STATUSES.name, status.name());
    }
}

fn data_path(out: &mut String, shared: &Shared) {
    let figures = shared.metrics.data.figures();
    type Value = fn(&DataFigures) -> u64;
    let values: [(Metric, Value); 2] =
        [(MOVED, |one| one.moved_bytes), (COPIED, |one| one.copied_bytes)];
    for (metric, value) in values {
        head(out, metric);
        for one in &figures {
            let (name, transport, direction) = (metric.name, one.transport, one.direction);
            let value = value(one);
            let _ = writeln!(
                out,
                "{name}{{transport=\"{transport}\",direction=\"{direction}\"}} {value}"
            );
        }
    }
}

/// Everything about SCSI and iSCSI.
fn block_service(out: &mut String, block: &BlockService) {
    let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
    head(out, SCSI_SECONDS);
    for (family, figures) in block.figures.families() {
        let (buckets, seconds, _) = figures.load();
        let label = format!("family=\"{}\"", family.label());
        histogram(out, SCSI_SECONDS, &label, &buckets, seconds);
    }
    head(out, SCSI_ERRORS);
    for (family, figures) in block.figures.families() {
        let (_, _, errors) = figures.load();
        for ((_, status), count) in STATUSES_OF_SCSI.iter().zip(errors).filter(|one| one.1 > 0) {
            let (name, family) = (SCSI_ERRORS.name, family.label());
            let _ = writeln!(out, "{name}{{family=\"{family}\",status=\"{status}\"}} {count}");
        }
    }
    let rules = block.rules();
    let mut per_unit = |metric: Metric, values: fn(&UnitFigures) -> Vec<(&'static str, u64)>| {
        head(out, metric);
        for unit in rules.catalog.units() {
            for (kind, value) in values(&unit.figures) {
                let (target, lun) = (&unit.target, unit.config.number);
                let _ = writeln!(
                    out,
                    "{}{{target=\"{target}\",lun=\"{lun}\",kind=\"{kind}\"}} {value}",
                    metric.name
                );
            }
        }
    };
    per_unit(LUN_OPERATIONS, |figures| {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        vec![
            ("read", load(&figures.reads)),
            ("write", load(&figures.writes)),
            ("other", load(&figures.others)),
        ]
    });
    per_unit(LUN_BYTES, |figures| {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        vec![("read", load(&figures.read_bytes)), ("write", load(&figures.written_bytes))]
    });
    per_unit(LUN_FAILURES, |figures| {
        let kinds = FAILURES.iter().zip(&figures.failures);
        kinds.map(|((_, kind), count)| (*kind, count.load(Ordering::Relaxed))).collect()
    });
    let mut gauge = |metric: Metric, value: fn(&Unit) -> Option<u64>| {
        head(out, metric);
        for unit in rules.catalog.units() {
            let (target, lun) = (&unit.target, unit.config.number);
            if let Some(value) = value(unit) {
                let name = metric.name;
                let _ = writeln!(out, "{name}{{target=\"{target}\",lun=\"{lun}\"}} {value}");
            }
        }
    };
    gauge(LUN_SIZE, |unit| Some(unit.volume.geometry().capacity_bytes));
    gauge(LUN_SPACE, |unit| unit.disk.thin_space().map(|space| space.available_bytes));
    let sessions = block.sessions();
    single(out, ISCSI_SESSIONS, sessions.len());
    single(out, ISCSI_CONNECTIONS, sessions.iter().map(|cell| cell.ports().len()).sum::<usize>());
    single(out, ISCSI_LOGINS, load(&block.figures.logins));
    head(out, ISCSI_REFUSED);
    for (reason, count) in block.figures.refused() {
        let _ = writeln!(out, "{}{{reason=\"{reason}\"}} {count}", ISCSI_REFUSED.name);
    }
    single(out, ISCSI_RECEIVED, load(&block.figures.received_bytes));
    single(out, ISCSI_SENT, load(&block.figures.sent_bytes));
    single(out, ISCSI_RUNNING, load(&block.figures.running_bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        let docs = include_str!("../../../docs/METRICS.md");
        for metric in ALL {
            assert!(docs.contains(&format!("`{}`", metric.name)), "{} is missing", metric.name);
            assert!(metric.name.starts_with("zgate_"));
            assert_eq!(metric.kind == "counter", metric.name.ends_with("_total"));
        }
    }
}
