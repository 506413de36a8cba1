//! The metrics against what is shipped to look at them: docs/METRICS.md names
//! those that are declared, the dashboard shows each of them, and no query of
//! the dashboard or of the alert rules names a metric or a label that does not
//! exist. What the rules count exists before it happens.

use super::run::Gateway;
use super::settings::settings;
use crate::exports::open::Opening;
use crate::exports::settings::ExportSet;
use crate::iscsi;
use crate::observe::documented;
use crate::observe::metric::{Metric, MetricType};
use crate::observe::{pool_metrics, process_metrics};
use crate::schedule::metrics as schedule_metrics;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

const DASHBOARD: &str = include_str!("../../../deploy/grafana/zgate.json");
const ALERTS: &str = include_str!("../../../deploy/prometheus/zgate-alerts.yml");
/// Labels that Prometheus adds to each sample.
const ADDED_LABELS: [&str; 2] = ["instance", "job"];
/// Functions and operators of PromQL that the queries use. `resets` is none of them: the
/// counter of one protocol stays 0, and is not reset, where only the other one is used.
const WORDS: [&str; 18] = [
    "sum",
    "min",
    "max",
    "count",
    "by",
    "and",
    "or",
    "rate",
    "increase",
    "delta",
    "changes",
    "time",
    "histogram_quantile",
    "label_values",
    "avg",
    "clamp_min",
    "bool",
    "unless",
];

fn declared() -> Vec<Metric> {
    let mut all = super::metrics::ALL.to_vec();
    all.extend_from_slice(super::client_metrics::ALL);
    all.extend_from_slice(pool_metrics::ALL);
    all.extend_from_slice(process_metrics::ALL);
    all.extend(schedule_metrics::declared());
    all
}

/// Returns the labels of a series, or `None` if no metric has a series of that
/// name.
fn labels_of(series: &str) -> Option<BTreeSet<&'static str>> {
    let mut labels = BTreeSet::from(ADDED_LABELS);
    // Prometheus' own: whether a scrape was answered.
    if series == "up" {
        return Some(labels);
    }
    let found = declared().into_iter().find(|metric| match metric.kind {
        MetricType::Histogram => {
            let rest = series.strip_prefix(metric.name);
            rest.is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest))
        }
        _ => metric.name == series,
    })?;
    labels.extend(found.labels);
    labels.extend(series.ends_with("_bucket").then_some("le"));
    Some(labels)
}

/// Names in a query of PromQL.
#[derive(Debug, Default)]
struct Query<'a> {
    /// Each series, with the labels that select from it.
    series: Vec<(&'a str, Vec<&'a str>)>,
    /// Labels of all `by (…)`.
    grouping: BTreeSet<&'a str>,
    is_grouped: bool,
}

/// Splits names off a query. What is quoted or in brackets are values.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => 2 + rest[1..].find('"').unwrap(),
            '[' => 1 + rest.find(']').unwrap(),
            c if is_word(c) || c == '$' => {
                1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1)
            }
            c => c.len_utf8(),
        };
        let token = &rest[..end];
        let is_name = first.is_ascii_alphabetic() || "{}()".contains(first);
        tokens.extend(is_name.then_some(token));
        rest = &rest[end..];
    }
    tokens
}

impl<'a> Query<'a> {
    fn parse(text: &'a str) -> Self {
        let mut query = Self::default();
        let mut tokens = tokens(text).into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                "by" => {
                    assert_eq!(tokens.next(), Some("("), "{text}");
                    query.is_grouped = true;
                    query.grouping.extend(tokens.by_ref().take_while(|token| *token != ")"));
                }
                "{" | "}" | "(" | ")" => {}
                word if WORDS.contains(&word) => {}
                series => {
                    let mut selects = Vec::new();
                    if tokens.next_if_eq(&"{").is_some() {
                        selects.extend(tokens.by_ref().take_while(|token| *token != "}"));
                    }
                    query.series.push((series, selects));
                }
            }
        }
        query
    }

    /// Checks the names; returns the labels of the result.
    fn check(&self, text: &str) -> BTreeSet<&'a str> {
        let mut of_all: Option<BTreeSet<&str>> = None;
        for (series, selects) in &self.series {
            let labels = labels_of(series);
            let labels = labels.unwrap_or_else(|| panic!("no metric {series}: {text}"));
            for label in selects.iter().chain(&self.grouping) {
                assert!(labels.contains(label), "{series} has no label {label}: {text}");
            }
            of_all = Some(match of_all {
                None => labels,
                Some(before) => before.intersection(&labels).copied().collect(),
            });
        }
        let of_all = of_all.unwrap_or_else(|| panic!("no metric: {text}"));
        if self.is_grouped { self.grouping.clone() } else { of_all }
    }
}

/// Returns the names between `open` and `close`.
fn placeholders<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    text.split(open).skip(1).map(|rest| rest.split(close).next().unwrap().trim()).collect()
}

#[test]
fn names_of_a_query_are_found() {
    let text =
        "sum by (le, op) (rate(zgate_a_bucket{instance=~\"$instance\", op=~\"A|B\"}[5m])) > 0.5";
    let query = Query::parse(text);
    assert_eq!(query.series, [("zgate_a_bucket", vec!["instance", "op"])]);
    assert_eq!(query.grouping, BTreeSet::from(["le", "op"]));
    assert_eq!(labels_of("zgate_nfs_operation_seconds"), None);
    let bucket = labels_of("zgate_nfs_operation_seconds_bucket").unwrap();
    assert_eq!(bucket, BTreeSet::from(["instance", "job", "le", "op"]));
}

#[test]
fn the_documented_metrics_are_the_declared_ones() {
    let documented: BTreeSet<_> = documented::rows().iter().map(|row| row.name).collect();
    let declared: BTreeSet<_> = declared().iter().map(|metric| metric.name).collect();
    // The tables of labels have fewer columns.
    assert_eq!(documented, declared);
}

#[test]
fn the_dashboard_shows_every_metric_and_nothing_else() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}: its id is another's, too");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = target["expr"].as_str().unwrap();
            let query = Query::parse(text);
            let labels = query.check(text);
            for label in placeholders(target["legendFormat"].as_str().unwrap(), "{{", '}') {
                assert!(labels.contains(label), "{label} of the legend is not in: {text}");
            }
            shown.extend(query.series.iter().map(|(series, _)| (*series).to_owned()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(text) = variable["query"]["query"].as_str() else { continue };
        let query = Query::parse(text);
        // label_values(SERIES, LABEL)
        let [(series, _), (label, _)] = query.series[..] else { panic!("{text}") };
        assert!(labels_of(series).is_some_and(|labels| labels.contains(label)), "{text}");
    }
    for metric in declared() {
        let is_shown = shown.iter().any(|series| {
            series
                .strip_prefix(metric.name)
                .is_some_and(|rest| rest.is_empty() || matches!(metric.kind, MetricType::Histogram))
        });
        assert!(is_shown, "{} is on no panel", metric.name);
    }
}

/// Returns name and text of each alert rule.
fn alerts() -> BTreeMap<&'static str, &'static str> {
    let rules = ALERTS.split("- alert: ").skip(1);
    rules.map(|rule| rule.split_once('\n').unwrap()).collect()
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let alerts = alerts();
    assert!(alerts.len() > 20, "{alerts:?}");
    for (name, rule) in alerts {
        let expression = rule.split_once("expr: ").unwrap().1;
        // Up to the next key of the rule, or a remark.
        let ends = ["\n        for:", "\n        labels:", "\n        #"];
        let end = ends.iter().filter_map(|end| expression.find(end)).min().unwrap();
        let text = expression[..end].trim_start_matches(">-");
        let labels = Query::parse(text).check(text);
        for label in placeholders(rule, "$labels.", ' ') {
            assert!(labels.contains(label.trim_end_matches('}')), "{name}: no label {label}");
        }
    }
}

/// Returns series, label and value of all that the alerts count with `increase`.
fn counted_by_alerts() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut counted = Vec::new();
    for call in ALERTS.split("increase(").skip(1) {
        let selection = call.split('[').next().unwrap();
        let Some((series, labels)) = selection.trim_end_matches('}').split_once('{') else {
            continue;
        };
        for label in labels.split(',') {
            let (name, values) = label.split_once('=').unwrap();
            let values = values.trim_start_matches('~').trim_matches('"');
            counted.extend(values.split('|').map(|value| (series, name, value)));
        }
    }
    counted
}

/// Returns the page of a gateway with a disk, to which nobody has come yet.
fn fresh_page() -> String {
    let dir = tempfile::tempdir().unwrap();
    let (state, disk) = (dir.path().join("state"), dir.path().join("disk.img"));
    File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\ncores = 1\n\
         worker_threads = 1\npoll_microseconds = 0\ncore_nice = 0\ndrain_seconds = 1\n\
         [iscsi]\nlisten = [\"127.0.0.1:0\"]\n\
         [[target]]\nname = \"iqn.2026-11.test.zgate:fresh\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = {disk:?}\ndirect = \"never\"\n",
    );
    let config = zgate_config::parse(&text, Path::new("x")).unwrap();
    let block = iscsi::settings::settings(&config).unwrap();
    let gateway = Gateway::start(
        &settings(&config),
        &ExportSet::default(),
        &block,
        (&[], &[]),
        Opening::StrictStart,
        |_| Ok(()),
    )
    .unwrap();
    let page = super::metrics::render(&gateway.shared);
    gateway.stop();
    page
}

#[test]
fn the_first_incident_is_an_increase() {
    let (page, counted) = (fresh_page(), counted_by_alerts());
    assert!(counted.len() > 8, "{counted:?}");
    for (series, label, value) in counted {
        let label = format!("{label}=\"{value}\"");
        let is_shown = page.lines().any(|line| {
            let sample = line.split_once('{');
            sample.is_some_and(|(name, rest)| name == series && rest.contains(&label))
        });
        assert!(is_shown, "{series} with {label} does not exist before it is counted: {page}");
    }
}

#[test]
fn no_two_panels_have_the_same_number() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len());
}
