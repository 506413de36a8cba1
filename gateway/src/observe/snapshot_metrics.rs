//! Metrics of snapshot schedules, one series for each dataset with a schedule.

use super::exposition::{Metric, head};
use crate::schedule::{View, Views};
use std::fmt::Write;
use std::sync::PoisonError;

macro_rules! metrics {
    ($($name:literal $kind:literal $help:literal $value:expr;)*) => {
        /// All of them, with what a schedule has.
        const ALL: &[(Metric, fn(&View) -> i64)] =
            &[$((Metric { name: $name, kind: $kind, help: $help }, $value)),*];
    };
}

metrics! {
    "zgate_snapshot_schedule_snapshots" "gauge" "Snapshots there were when the schedule was last looked at"
        |view| i64::try_from(view.figures.snapshots).unwrap_or(i64::MAX);
    "zgate_snapshot_schedule_taken_total" "counter" "Snapshots the schedule took"
        |view| i64::try_from(view.figures.taken_total).unwrap_or(i64::MAX);
    "zgate_snapshot_schedule_pruned_total" "counter" "Snapshots the schedule destroyed"
        |view| i64::try_from(view.figures.pruned_total).unwrap_or(i64::MAX);
    "zgate_snapshot_schedule_failures_total" "counter" "Looks at the schedule in which something did not work"
        |view| i64::try_from(view.figures.failures_total).unwrap_or(i64::MAX);
    "zgate_snapshot_schedule_last_success_timestamp_seconds" "gauge" "When everything worked last; 0: not yet"
        |view| view.figures.last_success_unix_seconds;
}

/// All metrics; nothing where there is no schedule. A dataset's name holds
/// nothing that would have to be escaped in a label.
pub(super) fn render(out: &mut String, schedules: &Views) {
    let views = schedules.lock().unwrap_or_else(PoisonError::into_inner);
    if views.is_empty() {
        return;
    }
    for (metric, value) in ALL {
        head(out, *metric);
        for view in views.iter() {
            // Writing to a String cannot fail.
            let _ =
                writeln!(out, "{}{{dataset=\"{}\"}} {}", metric.name, view.dataset, value(view));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        let docs = include_str!("../../../docs/METRICS.md");
        for (metric, _) in ALL {
            assert!(docs.contains(&format!("`{}`", metric.name)), "{} is missing", metric.name);
            assert_eq!(metric.kind == "counter", metric.name.ends_with("_total"));
        }
    }

    #[test]
    fn each_schedule_has_a_line_of_each() {
        let mut out = String::new();
        render(&mut out, &Arc::default());
        assert!(out.is_empty());
        let view = |dataset: &str, taken_total| View {
            dataset: dataset.to_owned(),
            figures: crate::schedule::Figures { taken_total, ..Default::default() },
            ..View::default()
        };
        render(&mut out, &Arc::new(Mutex::new(vec![view("llm/vm", 3), view("zfast", 0)])));
        assert!(
            out.contains("zgate_snapshot_schedule_taken_total{dataset=\"llm/vm\"} 3\n"),
            "{out}"
        );
        assert_eq!(out.matches("dataset=\"zfast\"").count(), ALL.len());
    }
}
