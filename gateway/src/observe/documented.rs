//! The tables of docs/METRICS.md, for tests that compare them with the
//! declarations.

use super::metric::{Metric, MetricType};

/// A row: a metric as users know it.
pub(crate) struct Row<'a> {
    pub name: &'a str,
    pub kind: &'a str,
    /// Names of its labels, those of the format included.
    pub labels: Vec<&'a str>,
}

/// Returns all rows.
pub(crate) fn rows() -> Vec<Row<'static>> {
    let docs = include_str!("../../../docs/METRICS.md");
    docs.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let ["", name, kind, _, labels, _, _, ""] = cells[..] else { return None };
    let name = name.strip_prefix('`')?.strip_suffix('`')?;
    let labels = labels.split(", ").filter_map(|one| one.strip_prefix('`')?.strip_suffix('`'));
    Some(Row { name, kind, labels: labels.collect() })
}

/// Checks that each metric is in docs/METRICS.md with its type and its labels,
/// and is named by the rules of the format.
pub(crate) fn assert_documented(metrics: &[Metric]) {
    let rows = rows();
    for metric in metrics {
        let of_metric: Vec<_> = rows.iter().filter(|row| row.name == metric.name).collect();
        let [row] = of_metric[..] else { panic!("{}: {} rows", metric.name, of_metric.len()) };
        assert_eq!(row.kind, metric.kind.as_str(), "{}", metric.name);
        let is_histogram = matches!(metric.kind, MetricType::Histogram);
        let labels = metric.labels.iter().chain(is_histogram.then_some(&"le"));
        assert!(row.labels.iter().eq(labels), "{}: {:?}", metric.name, row.labels);
        let families = ["zfs_", "zgate_", "process_"];
        assert!(families.iter().any(|family| metric.name.starts_with(family)));
        let is_counter = matches!(metric.kind, MetricType::Counter);
        assert_eq!(is_counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(!metric.help.contains(['"', '\\', '\n']), "{}: not a plain help", metric.name);
    }
}
