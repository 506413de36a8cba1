//! Curves of the last hour, as SVG that is drawn here: no script, no library.

use crate::server::limits::{HISTORY_POINTS, HISTORY_STEP};
use crate::server::throughput::HistoryPoint;
use maud::{Markup, html};
use std::fmt::Write;

/// Width of the drawing: one unit for each point of the history.
const WIDTH: f64 = HISTORY_POINTS as f64;
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
        let top = round_up(highest);
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
                            path class={ "curve " (curve.class) } d=(path(curve, points, now, top)) {}
                        }
                    }
                }
                div class="times" { span { "1 h ago" } span { "30 min" } span { "now" } }
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

/// Returns the path of a curve, with a gap where there are no values.
fn path(curve: &Curve, points: &[HistoryPoint], now: u64, top: f64) -> String {
    let step = HISTORY_STEP.as_secs_f64();
    let mut path = String::new();
    let mut before: Option<u64> = None;
    for point in points {
        let age = now.saturating_sub(point.unix_seconds) as f64;
        let Some(value) = (curve.value)(point).filter(|_| age <= WIDTH * step) else {
            before = None;
            continue;
        };
        let (x, y) = (WIDTH - age / step, HEIGHT * (1.0 - value / top));
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
        assert_eq!(path(&READ, &points, now, 100.0), "M718.0 60.0h0L719.0 0.0L720.0 120.0");
        assert_eq!(path(&READ_TIME, &points, now, 1.0), "");
        let gap = [sample::point(now - 100, 0.0, None), sample::point(now, 0.0, None)];
        assert_eq!(path(&READ, &gap, now, 1.0), "M700.0 120.0h0M720.0 120.0h0");
        // A clock that was set back does not draw to the right of the present.
        let later = [sample::point(now + 500, 0.0, None)];
        assert_eq!(path(&READ, &later, now, 1.0), "M720.0 120.0h0");
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
