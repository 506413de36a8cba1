//! Buckets of latency histograms.

/// Upper bounds of the latency buckets in seconds; the last bucket is open.
pub(crate) const LATENCY_BOUNDS_SECONDS: [f64; 20] = [
    5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0,
];
