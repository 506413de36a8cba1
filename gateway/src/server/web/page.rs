//! The page: drawn here as a whole, so that it works without a script. The
//! script replaces its contents each second with those of a new one.

use super::chart::{Chart, Curve};
use super::doctor::Examination;
use super::latest::Collected;
use super::overview::Overview;
use super::state::{WebState, unknown};
use super::tables;
use super::units::{count, latency, per_second, rate, short, span};
use crate::server::limits::{COLLECT_TIMEOUT, MAX_PAGE_ROWS};
use crate::server::throughput::{HistoryPoint, Throughput};
use crate::server::verdict::Verdict;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The style sheet.
pub(super) async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page.css")).into_response()
}

/// The script.
pub(super) async fn script() -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page.js")).into_response()
}

/// The page.
pub(super) async fn page(State(web): State<Arc<WebState>>) -> Response {
    let Some(collected) = web.overview().await else { return unknown() };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_secs());
    let doctor = web.doctor.last();
    let points = web.history.points();
    let main = contents(&collected.value, collected.age(), (&points, now), doctor.as_deref());
    Html(document(&collected.value, &main).into_string()).into_response()
}

fn document(overview: &Overview, main: &Markup) -> Markup {
    let verdict = verdict(overview.status.health.verdict).1;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "zgate: " (verdict) }
                link rel="stylesheet" href="/page.css";
                noscript { meta http-equiv="refresh" content="10"; }
                script src="/page.js" defer {}
            }
            body {
                main { (main) }
                footer {
                    span id="refresh" role="status" {}
                    " zgate " (overview.status.version) " · "
                    a href="/api/v1/openapi.json" { "API" } " · " a href="/metrics" { "metrics" }
                }
            }
        }
    }
}

/// Returns the class and the word of a verdict.
fn verdict(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Healthy => ("good", "healthy"),
        Verdict::Degraded => ("warn", "degraded"),
        Verdict::Failing => ("bad", "failing"),
    }
}

/// Draws everything that changes.
fn contents(
    overview: &Overview,
    age: Duration,
    (points, now): (&[HistoryPoint], u64),
    doctor: Option<&Collected<Examination>>,
) -> Markup {
    let (class, word) = verdict(overview.status.health.verdict);
    html! {
        header {
            h1 { "zgate" }
            span class={ "verdict " (class) } { (word) }
            span class="since" { "up " (span(overview.status.uptime_seconds)) }
        }
        @if age > COLLECT_TIMEOUT {
            p class="problem bad" {
                "These figures are " (span(age.as_secs())) " old: something that hangs, such as a \
                 pool, keeps newer ones from being collected."
            }
        }
        (problems(overview))
        (tiles(overview))
        (charts(points, now))
        (tables::all(overview))
        (tables::doctor(doctor))
    }
}

fn problems(overview: &Overview) -> Markup {
    let problems = &overview.status.health.problems;
    let hidden = overview.totals.problems.saturating_sub(MAX_PAGE_ROWS);
    html! {
        @if !problems.is_empty() {
            ul class="problems" {
                @for problem in problems.iter().take(MAX_PAGE_ROWS) {
                    li class={ "problem " (verdict(problem.severity).0) } { (problem.text) }
                }
                @if hidden > 0 { li { "and " (hidden) " more: see " code { "zgate status" } } }
            }
        }
    }
}

/// Figures of the last seconds, and totals.
fn tiles(overview: &Overview) -> Markup {
    let Overview { status, totals } = overview;
    let now = status.throughput.as_ref();
    let figure = |value: fn(&Throughput) -> String| now.map_or_else(|| "–".to_owned(), value);
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "idle".to_owned(), latency);
    let addresses = status.nfs_addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    let tile = |name: &str, value: String, more: String| {
        html! { div class="tile" { span { (name) } b { (value) } small { (more) } } }
    };
    html! {
        div class="tiles" {
            (tile(
                "Read",
                figure(|now| rate(now.read.bytes_per_second)),
                format!("99 % within {}", time(now.and_then(|now| now.read.percentile_99_seconds))),
            ))
            (tile(
                "Written",
                figure(|now| rate(now.write.bytes_per_second)),
                format!("99 % within {}", time(now.and_then(|now| now.write.percentile_99_seconds))),
            ))
            (tile(
                "Requests/s",
                figure(|now| per_second(now.requests_per_second)),
                count(status.connections, "connection"),
            ))
            (tile("Clients", totals.clients.to_string(), format!("NFS at {}", short(&addresses.join(" ")))))
            (tile("Initiators", totals.sessions.to_string(), count(totals.luns, "LUN")))
            @if status.grace_seconds_left > 0 {
                (tile("Grace period", span(status.grace_seconds_left), "clients reclaim".to_owned()))
            }
        }
    }
}

fn charts(points: &[HistoryPoint], now: u64) -> Markup {
    let throughput = Chart {
        title: "Throughput",
        curves: &[
            Curve {
                name: "read",
                class: "read",
                value: |point| Some(point.throughput.read.bytes_per_second),
            },
            Curve {
                name: "written",
                class: "write",
                value: |point| Some(point.throughput.write.bytes_per_second),
            },
        ],
        text: rate,
        least_top: 1e6,
    };
    let times = Chart {
        title: "Latency",
        curves: &[
            Curve {
                name: "reads, 99 %",
                class: "read",
                value: |point| point.throughput.read.percentile_99_seconds,
            },
            Curve {
                name: "writes, 99 %",
                class: "write",
                value: |point| point.throughput.write.percentile_99_seconds,
            },
            Curve {
                name: "reads, median",
                class: "read median",
                value: |point| point.throughput.read.median_seconds,
            },
            Curve {
                name: "writes, median",
                class: "write median",
                value: |point| point.throughput.write.median_seconds,
            },
        ],
        text: latency,
        least_top: 1e-3,
    };
    html! { div class="charts" { (throughput.draw(points, now)) (times.draw(points, now)) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::HISTORY_POINTS;
    use crate::server::web::sample::{HOSTILE, overview, point};

    fn drawn(overview: &Overview, age: Duration) -> String {
        let points: Vec<_> =
            (0..HISTORY_POINTS as u64).map(|at| point(at * 5, 1e9, Some(0.1))).collect();
        document(overview, &contents(overview, age, (&points, 3600), None)).into_string()
    }

    #[test]
    fn text_of_peers_is_escaped_wherever_it_stands() {
        let overview = overview(2, 2, 2);
        let page = drawn(&overview, Duration::ZERO);
        assert!(!page.contains(HOSTILE) && !page.contains("<img"), "{page}");
        let escaped =
            "&lt;img src=x onerror=alert(1)&gt;&quot;'&amp;&lt;/td&gt;&lt;/table&gt;&lt;script&gt;";
        // A problem, an export, two clients, two initiators, two LUNs, a device, a schedule.
        assert_eq!(page.matches(escaped).count(), 10, "{page}");
        // The page has one script, of its own.
        assert_eq!(page.matches("<script").count(), 1);
        // Nothing is loaded from elsewhere, and nothing stands inline.
        assert!(!page.contains("//") && !page.contains(" style="), "{page}");
        for part in
            ["failing", "up 1 d 1 h", "1.00 GB/s", "2.0 ms", "lease ran out", "DEGRADED", "90 %"]
        {
            assert!(page.contains(part), "{part:?} is missing in {page}");
        }
        assert!(!page.contains("These figures are"));
        let old = drawn(&overview, Duration::from_secs(125));
        assert!(old.contains("These figures are 2 min old"), "{old}");
    }

    #[test]
    fn tables_of_ten_thousand_are_cut_with_their_number() {
        let overview = overview(10_000, 5000, 10_000);
        let page = drawn(&overview, Duration::ZERO);
        for table in ["zgate clients", "zgate sessions"] {
            let note =
                format!("200 of 10000 are shown; the API shows up to 1000, <code>{table}</code>");
            assert!(page.contains(&note), "{note}");
        }
        assert!(page.contains("200 of 5000 are shown"));
        assert_eq!(page.matches("<tr>").count(), 7 + 3 * MAX_PAGE_ROWS + 5);
        assert!(page.len() < 1 << 20, "{}", page.len());
    }
}
