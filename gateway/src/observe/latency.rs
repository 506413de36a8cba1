//! Buckets of latency histograms, and the quantiles that they show.

/// Upper bounds of the latency buckets in seconds; the last bucket is open.
pub(crate) const LATENCY_BOUNDS_SECONDS: [f64; 20] = [
    5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0,
];

/// Number of latency buckets.
pub(crate) const LATENCY_BUCKETS: usize = LATENCY_BOUNDS_SECONDS.len() + 1;

/// Requests by bucket, not cumulative.
pub(crate) type LatencyCounts = [u64; LATENCY_BUCKETS];

/// Returns the time within which a share of the requests was answered, in
/// seconds; none without requests. Within a bucket the times are taken as
/// evenly distributed; those in the open one as its lower bound.
pub(crate) fn quantile(counts: &LatencyCounts, share: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let wanted = total as f64 * share;
    let mut before = 0.0;
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let lower = index.checked_sub(1).map_or(0.0, |below| LATENCY_BOUNDS_SECONDS[below]);
        let upper = LATENCY_BOUNDS_SECONDS.get(index).copied().unwrap_or(lower);
        let count = *count as f64;
        if before + count >= wanted {
            return Some(lower + (upper - lower) * ((wanted - before) / count).max(0.0));
        }
        before += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_their_bucket() {
        let mut counts = [0; LATENCY_BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        // 98 requests of 5 to 10 us, and two of more than 10 s.
        (counts[1], counts[LATENCY_BUCKETS - 1]) = (98, 2);
        let half = quantile(&counts, 0.5).unwrap();
        assert!((5e-6..1e-5).contains(&half), "{half}");
        assert_eq!(quantile(&counts, 0.99), Some(10.0));
        assert_eq!(quantile(&counts, 1.0), Some(10.0));
    }
}
