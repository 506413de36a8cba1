//! Metrics as OpenMetrics text: their declaration, and the page that a scrape fills.

use super::latency::LATENCY_BOUNDS_SECONDS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet, text,
};
pub(crate) use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// A metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub name: &'static str,
    pub kind: MetricType,
    /// Names of its labels, in the order of their values.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Declares metrics, one per line: name, type, labels in brackets, help; and the
/// list of all of them.
macro_rules! metrics {
    ($($id:ident $name:literal $kind:ident $([$($label:literal),+])? $help:literal;)*) => {
        $(const $id: $crate::observe::metric::Metric = $crate::observe::metric::Metric {
            name: $name,
            kind: $crate::observe::metric::MetricType::$kind,
            labels: &[$($($label),+)?],
            help: $help,
        };)*
        /// All of them.
        #[cfg(test)]
        pub(crate) const ALL: &[$crate::observe::metric::Metric] = &[$($id),*];
    };
}
pub(crate) use metrics;

/// The page that a scrape fills.
pub(crate) struct Page<'a>(DescriptorEncoder<'a>);

/// The samples of one metric.
pub(crate) struct Samples<'a> {
    encoder: MetricEncoder<'a>,
    kind: MetricType,
    labels: &'static [&'static str],
}

impl Page<'_> {
    /// Begins a metric. The format adds `_total` to the name of a counter.
    pub(crate) fn metric(&mut self, metric: Metric) -> Result<Samples<'_>, fmt::Error> {
        let Metric { name, kind, labels, help } = metric;
        let family = name.strip_suffix("_total").unwrap_or(name);
        Ok(Samples { encoder: self.0.encode_descriptor(family, help, None, kind)?, kind, labels })
    }

    /// Adds a metric without labels.
    pub(crate) fn single(&mut self, metric: Metric, value: impl Value) -> fmt::Result {
        let mut samples = self.metric(metric)?;
        samples.check(&[]);
        put(&mut samples.encoder, samples.kind, &value)
    }
}

/// A number that counters and gauges take.
pub(crate) trait Value: EncodeCounterValue + EncodeGaugeValue {}
impl<V: EncodeCounterValue + EncodeGaugeValue> Value for V {}

fn put(encoder: &mut MetricEncoder<'_>, kind: MetricType, value: &impl Value) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
        _ => encoder.encode_gauge(value),
    }
}

impl Samples<'_> {
    /// Checks that a sample has the labels that its metric declares:
    /// docs/METRICS.md and the dashboards are compared with the declarations.
    fn check(&self, labels: &[(&str, &str)]) {
        debug_assert!(
            labels.iter().map(|(name, _)| name).eq(self.labels),
            "{labels:?} instead of {:?}",
            self.labels
        );
    }

    /// Adds a value with its labels.
    pub(crate) fn add(&mut self, labels: &[(&str, &str)], value: impl Value) -> fmt::Result {
        self.check(labels);
        put(&mut self.encoder.encode_family(&labels)?, self.kind, &value)
    }

    /// Adds a histogram of times; `counts` are not cumulative.
    pub(crate) fn times(
        &mut self,
        label: (&str, &str),
        counts: &[u64],
        seconds: f64,
    ) -> fmt::Result {
        let bounds = LATENCY_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let count = counts.iter().sum();
        let labels = [label];
        self.check(&labels);
        let mut encoder = self.encoder.encode_family(&labels)?;
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

/// A function that fills a page; the library's collector calls it.
struct Filler<F>(F);

impl<F> fmt::Debug for Filler<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filler")
    }
}

impl<F: Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Filler<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0(&mut Page(encoder))
    }
}

/// Returns the text of a page that `fill` fills.
pub(crate) fn page_text(
    fill: impl Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static,
) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Filler(fill)));
    let mut text = String::with_capacity(16 << 10);
    // Writing to a String cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::documented::assert_documented;

    metrics! {
        RECEIVED "zgate_received_bytes_total" Counter "Bytes received from clients";
        CONNECTIONS "zgate_connections" Gauge "Open client connections";
        OP_SECONDS "zgate_nfs_operation_seconds" Histogram ["op"] "Time an NFSv4 operation took, by operation";
    }

    #[test]
    fn samples_are_as_openmetrics_has_them() {
        assert_documented(ALL);
        let text = page_text(|page| {
            page.single(RECEIVED, 5_u64)?;
            page.single(CONNECTIONS, 2_usize)?;
            let counts = [1; LATENCY_BOUNDS_SECONDS.len() + 1];
            page.metric(OP_SECONDS)?.times(("op", "READ"), &counts, 0.25)
        });
        for expected in [
            "# HELP zgate_received_bytes Bytes received from clients\n",
            "# TYPE zgate_received_bytes counter\nzgate_received_bytes_total 5\n",
            "# TYPE zgate_connections gauge\nzgate_connections 2\n",
            "# TYPE zgate_nfs_operation_seconds histogram\n",
            "zgate_nfs_operation_seconds_sum{op=\"READ\"} 0.25\n",
            "zgate_nfs_operation_seconds_count{op=\"READ\"} 21\n",
            "zgate_nfs_operation_seconds_bucket{le=\"0.000005\",op=\"READ\"} 1\n",
            "zgate_nfs_operation_seconds_bucket{le=\"10.0\",op=\"READ\"} 20\n",
            "zgate_nfs_operation_seconds_bucket{le=\"+Inf\",op=\"READ\"} 21\n",
        ] {
            assert!(text.contains(expected), "{expected} missing in {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
