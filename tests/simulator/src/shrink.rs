//! A failing schedule cut to the steps and faults that it needs.

use crate::invariant::Invariant;
use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::run::run;
use std::collections::BTreeSet;

/// Most runs of one reduction.
const MAX_RUNS: usize = 400;

struct Shrinker<'a> {
    plan: &'a Plan,
    invariant: Invariant,
    mutant: Option<Mutant>,
    runs: usize,
}

/// Steps and faults that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Numbers of steps.
    pub steps: BTreeSet<u32>,
    /// Numbers of faults.
    pub faults: BTreeSet<u32>,
}

impl Kept {
    /// Everything in a schedule.
    #[must_use]
    pub fn all(plan: &Plan) -> Self {
        let steps = plan.step_numbers().into_iter().collect();
        Self { steps, faults: plan.fault_numbers().into_iter().collect() }
    }

    /// As the command line takes it: `s1,s7,f2`.
    #[must_use]
    pub fn text(&self) -> String {
        let steps = self.steps.iter().map(|number| format!("s{number}"));
        let faults = self.faults.iter().map(|number| format!("f{number}"));
        steps.chain(faults).collect::<Vec<_>>().join(",")
    }

    /// Reads [`Self::text`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut kept = Self { steps: BTreeSet::new(), faults: BTreeSet::new() };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (kind, number) = part.split_at_checked(1)?;
            let number = number.parse().ok()?;
            match kind {
                "s" => kept.steps.insert(number),
                "f" => kept.faults.insert(number),
                _ => return None,
            };
        }
        Some(kept)
    }
}

/// Cuts a schedule that violates the invariant: first faults, then steps, in
/// ever smaller groups, as long as the same invariant is violated.
#[must_use]
pub fn shrink(plan: &Plan, invariant: Invariant, mutant: Option<Mutant>) -> Kept {
    let mut shrinker = Shrinker { plan, invariant, mutant, runs: 0 };
    let mut kept = Kept::all(plan);
    loop {
        let before = kept.clone();
        let steps = kept.steps.clone();
        kept.faults = shrinker
            .cut(&kept.faults, |faults| Kept { steps: steps.clone(), faults: faults.clone() });
        let faults = kept.faults.clone();
        kept.steps = shrinker
            .cut(&kept.steps, |steps| Kept { steps: steps.clone(), faults: faults.clone() });
        if kept == before || shrinker.runs >= MAX_RUNS {
            return kept;
        }
    }
}

impl Shrinker<'_> {
    fn fails(&mut self, kept: &Kept) -> bool {
        self.runs += 1;
        let outcome = run(&self.plan.only(&kept.steps, &kept.faults), self.mutant);
        outcome.violation.is_some_and(|violation| violation.invariant == self.invariant)
    }

    fn cut(
        &mut self,
        numbers: &BTreeSet<u32>,
        kept: impl Fn(&BTreeSet<u32>) -> Kept,
    ) -> BTreeSet<u32> {
        let mut left: Vec<u32> = numbers.iter().copied().collect();
        let mut size = left.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < left.len() && self.runs < MAX_RUNS {
                let mut fewer = left.clone();
                fewer.drain(at..(at + size).min(left.len()));
                if self.fails(&kept(&fewer.iter().copied().collect())) {
                    left = fewer;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        left.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_survives_the_command_line() {
        let kept = Kept { steps: BTreeSet::from([3, 12]), faults: BTreeSet::from([1]) };
        assert_eq!(kept.text(), "s3,s12,f1");
        assert_eq!(Kept::parse("s3,s12,f1"), Some(kept));
        assert_eq!(Kept::parse("x3"), None);
        assert_eq!(Kept::parse("s"), None);
    }
}
