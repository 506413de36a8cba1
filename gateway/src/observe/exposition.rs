//! The metrics in Prometheus' text format. Every name stands in one table,
//! which docs/METRICS.md is checked against.

use crate::serve::counters::LATENCY_BOUNDS_SECONDS;
use crate::serve::service::Shared;
use std::fmt::Write;
use zgate_nfs::runtime::Runtime;

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
    RECEIVED "zgate_received_bytes_total" "counter" "Bytes received from clients";
    SENT "zgate_sent_bytes_total" "counter" "Bytes of replies";
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
    BUFFERS "zgate_buffers_in_use_bytes" "gauge" "Pool buffers in use";
}

fn head(out: &mut String, metric: Metric) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {0} {1}\n# TYPE {0} {2}", metric.name, metric.help, metric.kind);
}

fn single(out: &mut String, metric: Metric, value: impl std::fmt::Display) {
    head(out, metric);
    let _ = writeln!(out, "{} {value}", metric.name);
}

/// All metrics now.
pub(crate) fn render(shared: &Shared) -> String {
    let mut out = String::with_capacity(16 << 10);
    operations(&mut out, shared);
    let (received, sent) = shared.metrics.bytes();
    single(&mut out, RECEIVED, received);
    single(&mut out, SENT, sent);
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
    single(&mut out, BUFFERS, shared.pool.in_use_bytes());
    out
}

fn operations(out: &mut String, shared: &Shared) {
    let figures = shared.metrics.ops();
    head(out, OP_SECONDS);
    for op in &figures {
        let (name, label) = (OP_SECONDS.name, op.op.name());
        let mut count = 0;
        for (at, bucket) in op.buckets.iter().enumerate() {
            count += bucket;
            let bound = LATENCY_BOUNDS_SECONDS.get(at).map_or("+Inf".to_owned(), |b| b.to_string());
            let _ = writeln!(out, "{name}_bucket{{op=\"{label}\",le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{name}_sum{{op=\"{label}\"}} {}", op.seconds);
        let _ = writeln!(out, "{name}_count{{op=\"{label}\"}} {count}");
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
