//! Medians, and means of ratios.

/// Returns the median; the mean of the two middle values if their number is
/// even.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Mean ratio of pairs of measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeanRatio {
    /// Geometric mean of the pairs' ratios.
    pub(crate) mean: f64,
    /// 95 % confidence interval, provided that pairs are independent; equal to
    /// the mean for a single pair.
    pub(crate) range: (f64, f64),
}

/// Student's t for 95 %, two-sided, by degrees of freedom from one on.
const STUDENT: [f64; 24] = [
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
    2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06,
];

/// Returns the mean ratio of pairs that were measured together.
pub(crate) fn mean_ratio(ours: &[f64], theirs: &[f64]) -> MeanRatio {
    let logs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| (a / b).ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let spread = if logs.len() > 1 {
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let factor = STUDENT.get(logs.len() - 2).copied().unwrap_or(2.06);
        factor * (squares / (count - 1.0) / count).sqrt()
    } else {
        0.0
    };
    MeanRatio { mean: mean.exp(), range: ((mean - spread).exp(), (mean + spread).exp()) }
}

/// Returns the value below which `share` of the sorted samples lie.
pub(crate) fn percentile(sorted: &[u32], share: f64) -> u32 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(percentile(&[1, 2, 3, 4], 0.5), 3);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn twice_and_half_are_one() {
        let even = mean_ratio(&[2.0, 1.0, 2.0, 1.0], &[1.0, 2.0, 1.0, 2.0]);
        assert!((even.mean - 1.0).abs() < 1e-9);
        assert!((even.range.0 * even.range.1 - 1.0).abs() < 1e-9 && even.range.0 < 0.5);
        let one = mean_ratio(&[3.0], &[2.0]);
        assert!((one.mean - 1.5).abs() < 1e-9 && one.range == (one.mean, one.mean));
        let same = mean_ratio(&[1.1, 2.2], &[1.0, 2.0]);
        assert!((same.range.1 - same.range.0).abs() < 1e-9);
    }
}
