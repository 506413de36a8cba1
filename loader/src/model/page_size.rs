//! Choice between huge and small pages for fresh memory, by their cost.
//!
//! A huge page takes a twelfth of the CPU time of the small ones in its place,
//! where the kernel has some at hand. Where it has to compact memory first, or a
//! hypervisor has to find it, it may take longer. Neither can be known in
//! advance, and both change while a model is loaded.

use std::sync::Mutex;
use std::sync::PoisonError;

/// Number of chunks between two of the dearer kind, whose cost may have changed.
const CHUNKS_TO_A_SAMPLE: u32 = 32;
/// Share of a new measurement in the mean: recent ones count.
const NEW_SHARE: f64 = 0.25;

/// Kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageSize {
    Huge,
    Small,
}

impl PageSize {
    fn other(self) -> Self {
        match self {
            Self::Huge => Self::Small,
            Self::Small => Self::Huge,
        }
    }
}

/// Costs so far.
#[derive(Debug, Default)]
pub(super) struct PageCosts {
    costs: Mutex<Costs>,
}

#[derive(Debug, Default)]
struct Costs {
    /// Nanoseconds of CPU time for each byte, if known.
    huge: Option<f64>,
    small: Option<f64>,
    chunks: u32,
}

impl Costs {
    fn of(&mut self, size: PageSize) -> &mut Option<f64> {
        match size {
            PageSize::Huge => &mut self.huge,
            PageSize::Small => &mut self.small,
        }
    }

    fn cheaper(&self) -> PageSize {
        match (self.huge, self.small) {
            (Some(huge), Some(small)) if huge > small => PageSize::Small,
            _ => PageSize::Huge,
        }
    }
}

impl PageCosts {
    /// Returns the cheaper kind so far; huge pages while one of them is unknown.
    pub(super) fn cheaper(&self) -> PageSize {
        self.costs.lock().unwrap_or_else(PoisonError::into_inner).cheaper()
    }

    /// Returns the kind for the next chunk.
    pub(super) fn choose(&self) -> PageSize {
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        costs.chunks = costs.chunks.wrapping_add(1);
        if costs.huge.is_some() && costs.small.is_none() {
            return PageSize::Small;
        }
        let is_known = costs.small.is_some() && costs.huge.is_some();
        let is_sample = is_known && costs.chunks.is_multiple_of(CHUNKS_TO_A_SAMPLE);
        let cheaper = costs.cheaper();
        if is_sample { cheaper.other() } else { cheaper }
    }

    /// Records the cost of a chunk in nanoseconds of CPU time for each byte.
    pub(super) fn learn(&self, size: PageSize, cost: f64) {
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = costs.of(size);
        *mean = Some(mean.map_or(cost, |mean| mean + (cost - mean) * NEW_SHARE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of the chunks had huge pages.
    fn huge_chunks(costs: &PageCosts, chunks: u32, huge: f64, small: f64) -> u32 {
        let mut count = 0;
        for _ in 0..chunks {
            let size = costs.choose();
            count += u32::from(size == PageSize::Huge);
            costs.learn(size, if size == PageSize::Huge { huge } else { small });
        }
        count
    }

    #[test]
    fn the_cheaper_kind_is_used_and_the_other_one_tried_again() {
        let costs = PageCosts::default();
        assert_eq!(costs.choose(), PageSize::Huge, "nothing is known");
        let costs = PageCosts::default();
        let huge = huge_chunks(&costs, 320, 0.08, 0.42);
        assert!((300..320).contains(&huge), "{huge}");
        // The kernel has none left: a few measurements tell.
        let huge = huge_chunks(&costs, 320, 4.0, 0.42);
        assert!((5..20).contains(&huge), "{huge}");
        // It has some again.
        let huge = huge_chunks(&costs, 3200, 0.08, 0.42);
        assert!(huge > 2000, "{huge}");
    }

    #[test]
    fn one_slow_chunk_does_not_decide() {
        let costs = PageCosts::default();
        huge_chunks(&costs, 100, 0.08, 0.42);
        costs.learn(PageSize::Huge, 1.0);
        let huge = huge_chunks(&costs, 100, 0.08, 0.42);
        assert!(huge > 90, "{huge}");
    }
}
