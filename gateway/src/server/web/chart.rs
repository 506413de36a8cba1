//! Curves of the last hour, as SVG that is drawn here: no script, no library.

use crate::server::limits::{HISTORY_POINTS, HISTORY_STEP};
use crate::server::throughput::HistoryPoint;
use maud::{Markup, html};
use std::fmt::Write;

/// Width of the drawing: one unit for each point of the history.
const WIDTH: f64 = HISTORY_POINTS as f64;
/// Most time that a chart shows.
const HOUR_SECONDS: u64 = 3600;
/// Height of the drawing.
const HEIGHT: f64 = 120.0;

/// One curve.
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// Class of the style sheet: colour and dashes.
    pub(super) class: &'static str,
    pub(super) value: fn(&HistoryPoint) -> Option<f64>,
}

/// A chart: its curves, on one scale from zero.
pub(super) struct Chart<'a> {
    pub(super) title: &'static str,
    pub(super) curves: &'a [Curve],
    pub(super) text: fn(f64) -> String,
    /// Least value at the top.
    pub(super) least_top: f64,
}

impl Chart<'_> {
    /// Draws the points of the hour before `now`, in seconds since 1970.
    pub(super) fn draw(&self, points: &[HistoryPoint], now: u64) -> Markup {
        let values = self.curves.iter().flat_map(|curve| points.iter().filter_map(curve.value));
        let highest = values.fold(self.least_top, f64::max);
        let (top, seconds) = (round_up(highest), shown_seconds(points, now));
        let label = format!("{} of the last hour, at most {}", self.title, (self.text)(highest));
        html! {
            figure {
                figcaption {
                    b { (self.title) }
                    @for curve in self.curves {
                        span class={ "key " (curve.class) } { (curve.name) }
                    }
                }
                div class="plot" {
                    span class="top" { ((self.text)(top)) }
                    span class="middle" { ((self.text)(top / 2.0)) }
                    svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                        aria-label=(label) {
                        @for line in [0.0, HEIGHT / 2.0, HEIGHT] {
                            path class="grid" d={ "M0 " (line) "H" (WIDTH) } {}
                        }
                        @for curve in self.curves {
                            path class={ "curve " (curve.class) } d=(path(curve, points, (now, seconds), top)) {}
                        }
                    }
                }
                div class="times" {
                    span { (seconds / 60) " min ago" }
                    span { "now" }
                }
            }
        }
    }
}

/// Returns the next of 1, 2 and 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(value)
}

/// Returns the time that a chart shows, in seconds: an hour, or less while the
/// history is short.
fn shown_seconds(points: &[HistoryPoint], now: u64) -> u64 {
    let oldest = points.first().map_or(0, |point| now.saturating_sub(point.unix_seconds));
    let spans = [300, 900, 1800];
    spans.into_iter().find(|span| oldest <= *span).unwrap_or(HOUR_SECONDS)
}

/// Returns the path of a curve, with a gap where there are no values.
fn path(curve: &Curve, points: &[HistoryPoint], (now, seconds): (u64, u64), top: f64) -> String {
    let mut path = String::new();
    let mut before: Option<u64> = None;
    for point in points {
        let age = now.saturating_sub(point.unix_seconds);
        let Some(value) = (curve.value)(point).filter(|_| age <= seconds) else {
            before = None;
            continue;
        };
        let x = WIDTH * (1.0 - age as f64 / seconds as f64);
        let y = HEIGHT * (1.0 - value / top);
        // Points that are missing in between: the gateway was not there, or hung.
        let joined = before
            .is_some_and(|at| point.unix_seconds.saturating_sub(at) <= 3 * HISTORY_STEP.as_secs());
        // A point alone is a dot: a line without length, with round ends.
        let part = if joined { 'L' } else { 'M' };
        let _ = write!(path, "{part}{x:.1} {y:.1}{}", if joined { "" } else { "h0" });
        before = Some(point.unix_seconds);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::web::sample;

    const READ: Curve = Curve {
        name: "read",
        class: "read",
        value: |point| Some(point.throughput.read.bytes_per_second),
    };
    const READ_TIME: Curve = Curve {
        name: "read",
        class: "read",
        value: |point| point.throughput.read.percentile_99_seconds,
    };

    #[test]
    fn curves_end_at_the_present_and_have_gaps() {
        let now = 100_000;
        let points: Vec<_> = [(3700, 1.0), (10, 50.0), (5, 100.0), (0, 0.0)]
            .map(|(age, bytes)| sample::point(now - age, bytes, None))
            .into();
        assert_eq!(path(&READ, &points, (now, 3600), 100.0), "M718.0 60.0h0L719.0 0.0L720.0 120.0");
        assert_eq!(path(&READ_TIME, &points, (now, 3600), 1.0), "");
        let gap = [sample::point(now - 100, 0.0, None), sample::point(now, 0.0, None)];
        assert_eq!(path(&READ, &gap, (now, 3600), 1.0), "M700.0 120.0h0M720.0 120.0h0");
        // A clock that was set back does not draw to the right of the present.
        let later = [sample::point(now + 500, 0.0, None)];
        assert_eq!(path(&READ, &later, (now, 3600), 1.0), "M720.0 120.0h0");
    }

    #[test]
    fn a_short_history_fills_the_chart() {
        let now = 100_000;
        let from = |age| [sample::point(now - age, 1.0, None), sample::point(now, 1.0, None)];
        let spans = [0, 300, 301, 1801, 3600, 9000].map(|age| shown_seconds(&from(age), now));
        assert_eq!(spans, [300, 300, 900, 3600, 3600, 3600]);
        assert_eq!(shown_seconds(&[], now), 300);
        assert_eq!(path(&READ, &from(10), (now, 20), 1.0), "M360.0 0.0h0L720.0 0.0");
    }

    #[test]
    fn scales_end_at_round_numbers() {
        let tops = [1.0, 1.1, 2.0, 4.9, 7.0, 1e9, 0.003].map(round_up);
        assert_eq!(tops, [1.0, 2.0, 2.0, 5.0, 10.0, 1e9, 0.005]);
    }

    #[test]
    fn an_hour_of_points_is_a_small_drawing() {
        let points: Vec<_> =
            (0..HISTORY_POINTS as u64).map(|at| sample::point(at * 5, at as f64, None)).collect();
        let curves = [READ, READ_TIME];
        let chart = Chart {
            title: "Reads",
            curves: &curves,
            text: |value| value.to_string(),
            least_top: 1.0,
        };
        let drawn = chart.draw(&points, 3600).into_string();
        assert!(drawn.len() < 20_000, "{}", drawn.len());
        assert!(drawn.contains("at most 719"), "{drawn}");
    }
}
