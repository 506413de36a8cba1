//! The metrics as OpenMetrics text. All names are in one table, against which
//! docs/METRICS.md is checked. This module has no counters of its own: a scrape
//! reads the atomics of other modules.

use super::client_metrics;
use super::shared::Shared;
use crate::iscsi::luns::unit::Unit;
use crate::iscsi::service::IscsiService;
use crate::iscsi::stats::{FAILURES, FamilyFigures, STATUSES as STATUSES_OF_SCSI, UnitStats};
use crate::net::rdma::state::{RdmaPortal, RdmaState};
use crate::nfs::gss::kerberos::Kerberos;
use crate::observe::audit::{self, REFUSERS};
use crate::observe::data_path::DataFigures;
use crate::observe::metric::{Metric, Page, metrics, page_text};
use crate::observe::{pool_metrics, process_metrics};
use crate::schedule::metrics as schedule_metrics;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_nfs::runtime::Runtime;
use zgate_store::BlockStore;
use zgate_tls::TlsOffer;

metrics! {
    OP_SECONDS "zgate_nfs_operation_seconds" Histogram ["op"] "Time an NFSv4 operation took, by operation";
    OP_ERRORS "zgate_nfs_operation_errors_total" Counter ["op"] "NFSv4 operations that did not succeed, by operation";
    STATUSES "zgate_nfs_errors_total" Counter ["status"] "NFSv4 errors answered, by status";
    PROCEDURE_SECONDS "zgate_nfs3_procedure_seconds" Histogram ["procedure"] "Time an NFSv3 procedure took, by procedure";
    RECEIVED "zgate_received_bytes_total" Counter "Bytes received from NFS clients";
    SENT "zgate_sent_bytes_total" Counter "Bytes of NFS replies";
    MOVED "zgate_data_moved_bytes_total" Counter ["transport", "direction"] "File and block data carried, by transport and direction";
    COPIED "zgate_data_copied_bytes_total" Counter ["transport", "direction"] "Data that was copied within the process on its way, by transport and direction";
    CONNECTIONS "zgate_connections" Gauge "Open client connections";
    ENDS "zgate_closed_connections_total" Counter ["fault", "reason"] "Connections that ended, by fault and reason";
    TLS_HANDSHAKES "zgate_tls_handshakes_total" Counter ["result"] "TLS handshakes that ended, by result";
    TLS_IN_PROGRESS "zgate_tls_handshakes_in_progress" Gauge "TLS handshakes under way";
    TLS_BY_KERNEL "zgate_tls_kernel_total" Counter "Completed handshakes after which the kernel encrypts what is sent";
    TLS_EXPIRY "zgate_tls_certificate_expiry_seconds" Gauge ["file"] "When the first certificate of a file expires, in seconds since 1970, by file";
    GSS_CONTEXTS "zgate_kerberos_contexts" Gauge "Security contexts of Kerberos clients";
    GSS_ESTABLISHED "zgate_kerberos_contexts_established_total" Counter "Security contexts established with a Kerberos ticket";
    GSS_REFUSED "zgate_kerberos_refused_total" Counter ["reason"] "Kerberos tickets and calls that were refused or dropped, by reason";
    GSS_CALLBACK_CONTEXTS "zgate_kerberos_callback_contexts_established_total" Counter "Security contexts that the gateway established for callbacks to NFSv4.0 clients with Kerberos";
    GSS_CALLBACKS_FAILED "zgate_kerberos_callbacks_failed_total" Counter ["reason"] "Callbacks to NFSv4.0 clients with Kerberos that had no result, by reason";
    CLIENTS "zgate_nfs_clients" Gauge "Confirmed NFSv4 clients";
    COURTESY "zgate_nfs_courtesy_clients" Gauge "Clients whose lease ran out and who keep state by courtesy";
    SESSIONS "zgate_nfs_sessions" Gauge "NFSv4.1 sessions";
    SLOTS "zgate_nfs_slots" Gauge "Slots of all sessions";
    BUSY_SLOTS "zgate_nfs_busy_slots" Gauge "Slots in which a request runs";
    REPLAYS "zgate_nfs_replays" Gauge "Requests of present sessions that were repeated by their client";
    OPENS "zgate_nfs_opens" Gauge "Open files";
    LOCKS "zgate_nfs_lock_stateids" Gauge "Byte-range lock stateids";
    DELEGATIONS "zgate_nfs_delegations" Gauge "Delegations given";
    RECALLS "zgate_nfs_recalls" Gauge "Delegations being recalled";
    HANDOVER "zgate_handover_seconds" Gauge "Seconds clients wait at most because of a handover; 0: they do not";
    GRACE "zgate_nfs_grace_seconds" Gauge "Seconds the grace period lasts at most; 0: over";
    RECORD_CHANGES "zgate_nfs_client_record_changes" Gauge "Client records on their way to the state directory, or out of it";
    SCSI_SECONDS "zgate_scsi_command_seconds" Histogram ["family"] "Time a SCSI command took, by family";
    SCSI_ERRORS "zgate_scsi_command_errors_total" Counter ["family", "status"] "SCSI commands that did not end with GOOD, by family and status";
    LUN_OPERATIONS "zgate_lun_operations_total" Counter ["target", "lun", "kind"] "SCSI commands of a logical unit, by target, lun and kind";
    LUN_BYTES "zgate_lun_bytes_total" Counter ["target", "lun", "kind"] "Bytes read from and written to a logical unit, by target, lun and kind";
    LUN_FAILURES "zgate_lun_failures_total" Counter ["target", "lun", "kind"] "SCSI commands that failed because the storage did, by target, lun and kind";
    LUN_SIZE "zgate_lun_size_bytes" Gauge ["target", "lun"] "Size of a logical unit, by target and lun";
    LUN_SPACE "zgate_lun_space_available_bytes" Gauge ["target", "lun"] "Bytes that the store of a thin logical unit can still allocate, by target and lun";
    ISCSI_SESSIONS "zgate_iscsi_sessions" Gauge "iSCSI sessions";
    ISCSI_CONNECTIONS "zgate_iscsi_connections" Gauge "Connections of iSCSI sessions";
    ISCSI_LOGINS "zgate_iscsi_logins_total" Counter "iSCSI logins that succeeded, by connection";
    ISCSI_REFUSED "zgate_iscsi_logins_refused_total" Counter ["reason"] "iSCSI logins that were refused, by reason";
    ISCSI_RECEIVED "zgate_iscsi_received_bytes_total" Counter "Bytes received on iSCSI connections after login";
    ISCSI_SENT "zgate_iscsi_sent_bytes_total" Counter "Bytes sent on iSCSI connections after login";
    ISCSI_RUNNING "zgate_iscsi_running_bytes" Gauge "Bytes that SCSI commands under way read or write";
    RDMA_LISTENING "zgate_rdma_listening" Gauge ["address", "protocol"] "1: an address that is to be served over RDMA is; 0: its device is missing or away";
    RDMA_CONNECTIONS "zgate_rdma_connections" Gauge "Open connections over RDMA, of NFS and iSER";
    RDMA_EVENTS "zgate_rdma_device_events_total" Counter ["event"] "What happened to RDMA devices, by event";
    REFUSED "zgate_refused_connections_total" Counter "Connections refused because there were too many";
    ACCESS_REFUSED "zgate_access_refused_total" Counter ["service"] "Calls and logins that were refused for their host, name or security, by service";
    AUDIT_SUPPRESSED "zgate_audit_lines_suppressed_total" Counter ["service"] "Of these, refusals without an audit line because of the limit of lines for each host, by service";
    DELAYED "zgate_rate_limited_requests_total" Counter "Reads and writes that waited for the limits of their export or logical unit";
    DELAY "zgate_rate_limit_wait_seconds_total" Counter "Seconds that reads and writes waited for the limits of their export or logical unit";
    ABSENT "zgate_absent_items" Gauge ["kind"] "Exports, datasets, client host names, logical units and listen addresses that are configured but absent, by kind";
    ENGINE "zgate_io_engine_info" Gauge ["engine"] "Always 1; the label names the io engine";
    STARTED "zgate_start_time_seconds" Gauge "When the process started, in seconds since 1970";
    MEMORY_USED "zgate_memory_used_bytes" Gauge "Memory of the process that the kernel cannot take back";
    MEMORY_BUDGET "zgate_memory_budget_bytes" Gauge "Most memory that the process may use; 0: no limit";
    MEMORY_SHORT "zgate_memory_short_seconds_total" Counter "Time for which memory was short: clients waited, and new ones were refused when it was full";
    BUFFERS "zgate_buffers_in_use_bytes" Gauge "Pool buffers in use";
}

/// All metrics.
pub(crate) fn render(shared: &Arc<Shared>) -> String {
    let shared = Arc::clone(shared);
    page_text(move |page| everything(page, &shared))
}

fn tls(page: &mut Page<'_>, offer: &TlsOffer) -> fmt::Result {
    let counts = offer.counts();
    let mut samples = page.metric(TLS_HANDSHAKES)?;
    samples.add(&[("result", "completed")], counts.completed)?;
    samples.add(&[("result", "failed")], counts.failed)?;
    page.single(TLS_IN_PROGRESS, counts.in_progress)?;
    page.single(TLS_BY_KERNEL, counts.by_kernel)?;
    let mut samples = page.metric(TLS_EXPIRY)?;
    for validity in offer.validities() {
        samples.add(&[("file", validity.key)], validity.until_unix_seconds)?;
    }
    Ok(())
}

fn kerberos(page: &mut Page<'_>, kerberos: &Kerberos) -> fmt::Result {
    page.single(GSS_CONTEXTS, kerberos.context_count())?;
    page.single(GSS_ESTABLISHED, kerberos.established())?;
    let mut samples = page.metric(GSS_REFUSED)?;
    for (reason, count) in kerberos.refused() {
        samples.add(&[("reason", reason)], count)?;
    }
    page.single(GSS_CALLBACK_CONTEXTS, kerberos.callback_contexts())?;
    let mut samples = page.metric(GSS_CALLBACKS_FAILED)?;
    for (reason, count) in kerberos.failed_callbacks() {
        samples.add(&[("reason", reason)], count)?;
    }
    Ok(())
}

fn everything(page: &mut Page<'_>, shared: &Shared) -> fmt::Result {
    operations(page, shared)?;
    let (received, sent) = shared.nfs.metrics.bytes();
    page.single(RECEIVED, received)?;
    page.single(SENT, sent)?;
    data_path(page, shared)?;
    page.single(CONNECTIONS, shared.network.connections.len())?;
    let mut samples = page.metric(ENDS)?;
    for (kind, count) in shared.network.ends.counts() {
        samples.add(&[("fault", kind.fault), ("reason", kind.reason)], count)?;
    }
    tls(page, &shared.network.tls)?;
    kerberos(page, &shared.nfs.kerberos)?;
    let totals = shared.nfs.v4.totals(shared.nfs.runtime.now().seconds());
    page.single(CLIENTS, totals.clients)?;
    page.single(COURTESY, totals.courtesy_clients)?;
    page.single(SESSIONS, totals.sessions)?;
    page.single(SLOTS, totals.slots)?;
    page.single(BUSY_SLOTS, totals.busy_slots)?;
    page.single(REPLAYS, totals.replays)?;
    page.single(OPENS, totals.opens)?;
    page.single(LOCKS, totals.locks)?;
    page.single(DELEGATIONS, totals.delegations)?;
    page.single(RECALLS, totals.recalls)?;
    let held = shared.network.drain.hold_left().map_or(0, |left| left.as_secs() + 1);
    page.single(HANDOVER, held)?;
    page.single(GRACE, totals.grace_seconds)?;
    page.single(RECORD_CHANGES, totals.record_changes)?;
    block_service(page, &shared.iscsi)?;
    rdma(page, &shared.network.rdma)?;
    page.single(REFUSED, shared.network.connections.refused())?;
    refusals(page)?;
    let (delayed, waited) = crate::qos::limiter::delayed();
    page.single(DELAYED, delayed)?;
    page.single(DELAY, waited.as_secs_f64())?;
    let mut samples = page.metric(ABSENT)?;
    for (kind, count) in shared.absent.counts() {
        samples.add(&[("kind", kind.label())], count)?;
    }
    let engine = match shared.engine {
        zgate_io::EngineKind::Uring => "uring",
        zgate_io::EngineKind::Threads => "threads",
    };
    page.metric(ENGINE)?.add(&[("engine", engine)], 1_u64)?;
    page.single(STARTED, shared.started_unix_seconds)?;
    let memory = shared.memory.status(shared.network.quota.level());
    page.single(MEMORY_USED, memory.used_bytes)?;
    page.single(MEMORY_BUDGET, memory.budget_bytes.unwrap_or(0))?;
    page.single(MEMORY_SHORT, memory.short_milliseconds as f64 / 1000.0)?;
    page.single(BUFFERS, shared.network.pool.in_use_bytes())?;
    process_metrics::render(page)?;
    client_metrics::render(page, shared)?;
    pool_metrics::render(page, &shared.pools)?;
    schedule_metrics::render(page, &shared.schedules)
}

/// Metrics of refused access.
fn refusals(page: &mut Page<'_>) -> fmt::Result {
    let counts = REFUSERS.map(|(service, name)| (name, audit::refusals(service).counts()));
    let mut samples = page.metric(ACCESS_REFUSED)?;
    for (service, (refused, _)) in counts {
        samples.add(&[("service", service)], refused)?;
    }
    let mut samples = page.metric(AUDIT_SUPPRESSED)?;
    for (service, (_, suppressed)) in counts {
        samples.add(&[("service", service)], suppressed)?;
    }
    Ok(())
}

fn rdma(page: &mut Page<'_>, state: &RdmaState) -> fmt::Result {
    let Some(report) = state.report() else { return Ok(()) };
    let mut samples = page.metric(RDMA_LISTENING)?;
    for RdmaPortal { address, protocol, listening, .. } in &report.portals {
        let labels = [("address", &*address.to_string()), ("protocol", protocol)];
        samples.add(&labels, u64::from(*listening))?;
    }
    page.single(RDMA_CONNECTIONS, report.connections)?;
    let mut samples = page.metric(RDMA_EVENTS)?;
    state
        .events()
        .into_iter()
        .try_for_each(|(event, count)| samples.add(&[("event", event)], count))
}

fn operations(page: &mut Page<'_>, shared: &Shared) -> fmt::Result {
    let figures = shared.nfs.metrics.ops();
    let mut samples = page.metric(OP_SECONDS)?;
    for op in &figures {
        samples.times(("op", op.op.name()), &op.buckets, op.seconds)?;
    }
    let mut samples = page.metric(PROCEDURE_SECONDS)?;
    for procedure in shared.nfs.metrics.procedures() {
        samples.times(("procedure", procedure.name), &procedure.buckets, procedure.seconds)?;
    }
    let mut samples = page.metric(OP_ERRORS)?;
    for op in &figures {
        samples.add(&[("op", op.op.name())], op.errors)?;
    }
    let mut samples = page.metric(STATUSES)?;
    for (status, count) in shared.nfs.metrics.errors() {
        samples.add(&[("status", status.name())], count)?;
    }
    Ok(())
}

fn data_path(page: &mut Page<'_>, shared: &Shared) -> fmt::Result {
    let figures = shared.nfs.metrics.data.figures();
    type Figure = fn(&DataFigures) -> u64;
    let values: [(Metric, Figure); 2] =
        [(MOVED, |one| one.moved_bytes), (COPIED, |one| one.copied_bytes)];
    for (metric, value) in values {
        let mut samples = page.metric(metric)?;
        for one in &figures {
            let labels = [("transport", one.transport), ("direction", one.direction)];
            samples.add(&labels, value(one))?;
        }
    }
    Ok(())
}

/// Metrics of SCSI and iSCSI.
fn block_service(page: &mut Page<'_>, block: &IscsiService) -> fmt::Result {
    let mut samples = page.metric(SCSI_SECONDS)?;
    for (family, figures) in block.stats.families() {
        samples.times(("family", family.label()), &figures.buckets, figures.seconds)?;
    }
    let mut samples = page.metric(SCSI_ERRORS)?;
    for (family, FamilyFigures { errors, .. }) in block.stats.families() {
        for ((_, status), count) in STATUSES_OF_SCSI.iter().zip(errors).filter(|one| one.1 > 0) {
            samples.add(&[("family", family.label()), ("status", status)], count)?;
        }
    }
    units(page, block)?;
    let sessions = block.sessions();
    page.single(ISCSI_SESSIONS, sessions.len())?;
    let connections = sessions.iter().map(|live| live.connections().len()).sum::<usize>();
    page.single(ISCSI_CONNECTIONS, connections)?;
    page.single(ISCSI_LOGINS, block.stats.logins.load(Ordering::Relaxed))?;
    let mut samples = page.metric(ISCSI_REFUSED)?;
    for (reason, count) in block.stats.refused() {
        samples.add(&[("reason", reason)], count)?;
    }
    let (received, sent) = block.stats.bytes();
    page.single(ISCSI_RECEIVED, received)?;
    page.single(ISCSI_SENT, sent)?;
    page.single(ISCSI_RUNNING, block.stats.running_bytes())
}

/// Metrics of single logical units.
fn units(page: &mut Page<'_>, block: &IscsiService) -> fmt::Result {
    let rules = block.rules();
    type Figure<T> = fn(&Unit) -> T;
    type Kinds = Vec<(&'static str, u64)>;
    let kinds: [(Metric, Figure<Kinds>); 3] = [
        (LUN_OPERATIONS, |unit| {
            let UnitStats { reads, writes, others, .. } = &unit.stats;
            [("read", reads), ("write", writes), ("other", others)].map(loaded).into()
        }),
        (LUN_BYTES, |unit| {
            let UnitStats { read_bytes, written_bytes, .. } = &unit.stats;
            [("read", read_bytes), ("write", written_bytes)].map(loaded).into()
        }),
        (LUN_FAILURES, |unit| {
            let kinds = FAILURES.iter().zip(&unit.stats.failures);
            kinds.map(|((_, kind), count)| loaded((*kind, count))).collect()
        }),
    ];
    for (metric, values) in kinds {
        let mut samples = page.metric(metric)?;
        for unit in rules.catalog.units() {
            let (target, lun) = (unit.target.to_string(), unit.config.number.to_string());
            for (kind, value) in values(unit) {
                samples.add(&[("target", &target), ("lun", &lun), ("kind", kind)], value)?;
            }
        }
    }
    let gauges: [(Metric, Figure<Option<u64>>); 2] = [
        (LUN_SIZE, |unit| Some(unit.volume.geometry().capacity_bytes)),
        (LUN_SPACE, |unit| unit.disk.thin_space().map(|space| space.available_bytes)),
    ];
    for (metric, value) in gauges {
        let mut samples = page.metric(metric)?;
        for unit in rules.catalog.units() {
            let (target, lun) = (unit.target.to_string(), unit.config.number.to_string());
            if let Some(value) = value(unit) {
                samples.add(&[("target", &target), ("lun", &lun)], value)?;
            }
        }
    }
    Ok(())
}

fn loaded<'a>((kind, cell): (&'a str, &AtomicU64)) -> (&'a str, u64) {
    (kind, cell.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::documented::assert_documented;

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        assert_documented(ALL);
        assert!(ALL.iter().all(|metric| metric.name.starts_with("zgate_")));
    }
}
