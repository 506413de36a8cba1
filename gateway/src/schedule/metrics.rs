//! Metrics of snapshot schedules, one series for each dataset with a schedule.

use super::{View, Views};
use crate::observe::metric::{Metric, MetricType, Page};
use std::fmt;
use std::sync::PoisonError;

macro_rules! metrics {
    ($($name:literal $kind:ident $help:literal $value:expr;)*) => {
        /// All of them, with what a schedule has.
        const ALL: &[(Metric, fn(&View) -> u64)] = &[$((
            Metric { name: $name, kind: MetricType::$kind, labels: &["dataset"], help: $help },
            $value,
        )),*];
    };
}

metrics! {
    "zgate_snapshot_schedule_snapshots" Gauge "Snapshots there were when the schedule was last looked at"
        |view| view.figures.snapshots as u64;
    "zgate_snapshot_schedule_taken_total" Counter "Snapshots the schedule took"
        |view| view.figures.taken_total;
    "zgate_snapshot_schedule_pruned_total" Counter "Snapshots the schedule destroyed"
        |view| view.figures.pruned_total;
    "zgate_snapshot_schedule_failures_total" Counter "Looks at the schedule in which something did not work"
        |view| view.figures.failures_total;
    "zgate_snapshot_schedule_last_success_timestamp_seconds" Gauge "When everything worked last; 0: not yet"
        |view| u64::try_from(view.figures.last_success_unix_seconds).unwrap_or(0);
}

/// All metrics; none if there is no schedule.
pub(crate) fn render(page: &mut Page<'_>, schedules: &Views) -> fmt::Result {
    let views = schedules.lock().unwrap_or_else(PoisonError::into_inner);
    for (metric, value) in ALL.iter().filter(|_| !views.is_empty()) {
        let mut samples = page.metric(*metric)?;
        for view in views.iter() {
            samples.add(&[("dataset", &view.dataset)], value(view))?;
        }
    }
    Ok(())
}

/// Returns the declarations of all of them.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Metric> {
    ALL.iter().map(|(metric, _)| *metric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::documented::assert_documented;
    use crate::observe::metric::page_text;
    use std::sync::{Arc, Mutex};

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        assert_documented(&declared());
    }

    #[test]
    fn each_schedule_has_a_line_of_each() {
        assert_eq!(page_text(|page| render(page, &Arc::default())), "# EOF\n");
        let view = |dataset: &str, taken_total| View {
            dataset: dataset.to_owned(),
            figures: crate::schedule::Figures { taken_total, ..Default::default() },
            ..View::default()
        };
        let views = Arc::new(Mutex::new(vec![view("llm/vm", 3), view("zfast", 0)]));
        let out = page_text(move |page| render(page, &views));
        assert!(
            out.contains("zgate_snapshot_schedule_taken_total{dataset=\"llm/vm\"} 3\n"),
            "{out}"
        );
        assert_eq!(out.matches("dataset=\"zfast\"").count(), ALL.len());
    }
}
