//! Charts of the benchmarks, drawn from their JSON results as SVG files beside
//! them.

use clap::Args;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

const FONT: &str = "sans-serif";
/// Height of one bar with its space, in pixels.
const ROW_PIXELS: u32 = 26;
const WIDTH_PIXELS: u32 = 900;
const LINES_HEIGHT_PIXELS: u32 = 420;
/// Room for the names of bars, in pixels.
const NAMES_PIXELS: u32 = 330;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Arguments of `bench charts`.
#[derive(Args, Debug)]
pub(crate) struct ChartsArgs {
    /// Directory of the JSON results, and of the charts
    #[arg(default_value = "docs/bench")]
    dir: PathBuf,
}

/// Draws the chart of each result.
///
/// # Errors
/// The error of a file.
pub(crate) fn run(args: &ChartsArgs) -> io::Result<()> {
    for entry in fs::read_dir(&args.dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json")
            && let Some(chart) = draw(&path)?
        {
            writeln!(io::stdout(), "{}", chart.display())?;
        }
    }
    Ok(())
}

/// Draws the chart of a JSON result beside it; `None` if there is nothing to
/// draw.
///
/// # Errors
/// The error of a file.
pub(crate) fn draw(json: &Path) -> io::Result<Option<PathBuf>> {
    let result: Value = serde_json::from_slice(&fs::read(json)?)?;
    let out = json.with_extension("svg");
    let panels = panels(&result);
    if !panels.is_empty() {
        lines(&out, &panels)?;
        return Ok(Some(out));
    }
    let bars = bars_of(&result);
    if bars.rows.is_empty() {
        return Ok(None);
    }
    bars.draw(&out)?;
    Ok(Some(out))
}

/// Bars with a mark.
#[derive(Debug, Default, PartialEq)]
struct Bars {
    title: String,
    rows: Vec<(String, f64)>,
    /// Value of a line across all bars.
    mark: Option<f64>,
}

/// Returns the bars of a result: rates relative to a peer, or the rates of all
/// clients.
fn bars_of(result: &Value) -> Bars {
    let loads = result["loads"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ratios = |key: &str, name: &dyn Fn(&Value) -> String| {
        let row = |load: &Value| Some((name(load), load[key].as_f64()?));
        loads.iter().filter_map(row).collect::<Vec<_>>()
    };
    let to_peer = ratios("rate_to_peer", &|load| text(&load["load"]));
    let in_turns = ratios("mean_ratio", &|load| {
        let [transport, load, unit] = [&load["transport"], &load["load"], &load["unit"]].map(text);
        format!("{transport}, {load}, {unit}")
    });
    let rates = ratios("gigabytes_per_second", &|load| text(&load["loader"]));
    let peers = peers(loads);
    if !to_peer.is_empty() {
        let title = format!("zgate: rate relative to {peers} (longer is faster)");
        Bars { title, rows: to_peer, mark: Some(1.0) }
    } else if !in_turns.is_empty() {
        let title =
            format!("zgate relative to {peers}: rates (longer is better) and CPU (shorter)");
        Bars { title, rows: in_turns, mark: Some(1.0) }
    } else {
        Bars { title: "Loading a model: GB/s".to_owned(), rows: rates, mark: None }
    }
}

/// Returns the names of the servers that zgate is compared with.
fn peers(loads: &[Value]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for load in loads {
        for name in [&load["server"], &load["peer"]].into_iter().filter_map(Value::as_str) {
            if name != "zgate" && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.join(", ")
}

impl Bars {
    fn draw(&self, out: &Path) -> io::Result<()> {
        let height = 70 + ROW_PIXELS * self.rows.len() as u32;
        let area = SVGBackend::new(out, (WIDTH_PIXELS, height)).into_drawing_area();
        self.plot(&area).map_err(failed)?;
        area.present().map_err(failed)
    }

    fn plot(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let count = self.rows.len();
        let longest = self.rows.iter().map(|row| row.1).fold(self.mark.unwrap_or(0.0), f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 17))
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(NAMES_PIXELS)
            .build_cartesian_2d(0.0..longest * 1.1, 0.0..count as f64)?;
        chart.configure_mesh().disable_y_mesh().disable_y_axis().y_labels(0).draw()?;
        for (index, (name, value)) in self.rows.iter().enumerate() {
            let low = (count - 1 - index) as f64;
            let is_behind = self.mark.is_some_and(|mark| *value < mark);
            let colour = if is_behind { RGBColor(214, 120, 60) } else { RGBColor(60, 110, 190) };
            let corners = [(0.0, low + 0.15), (*value, low + 0.85)];
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            let label = format!("{value:.2}");
            chart.draw_series([Text::new(
                label,
                (*value + longest * 0.01, low + 0.75),
                (FONT, 13),
            )])?;
            let (_, y) = chart.backend_coord(&(0.0, low + 0.7));
            area.draw(&Text::new(name.clone(), (12, y), (FONT, 13)))?;
        }
        if let Some(mark) = self.mark {
            let ends = [(mark, 0.0), (mark, count as f64)];
            chart.draw_series(LineSeries::new(ends, BLACK.stroke_width(2)))?;
        }
        Ok(())
    }
}

/// Lines of one chart, on logarithmic axes.
#[derive(Debug, PartialEq)]
struct Panel {
    title: String,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Returns the panels of a result with `panels`.
fn panels(result: &Value) -> Vec<Panel> {
    let points = |line: &Value| {
        let pair = |point: &Value| Some((point[0].as_f64()?, point[1].as_f64()?));
        line["points"].as_array()?.iter().map(pair).collect::<Option<Vec<_>>>()
    };
    let panel = |panel: &Value| {
        let line = |line: &Value| Some((line["name"].as_str()?.to_owned(), points(line)?));
        let lines = panel["lines"].as_array()?.iter().filter_map(line).collect();
        Some(Panel { title: panel["title"].as_str()?.to_owned(), lines })
    };
    result["panels"].as_array().into_iter().flatten().filter_map(panel).collect()
}

fn lines(out: &Path, panels: &[Panel]) -> io::Result<()> {
    let height = LINES_HEIGHT_PIXELS * panels.len() as u32;
    let area = SVGBackend::new(out, (WIDTH_PIXELS, height)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    for (area, panel) in area.split_evenly((panels.len(), 1)).iter().zip(panels) {
        panel.plot(area).map_err(failed)?;
    }
    area.present().map_err(failed)
}

impl Panel {
    fn plot(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let all = || self.lines.iter().flat_map(|(_, points)| points);
        let Some(((x_low, x_high), (y_low, y_high))) =
            extent(all().map(|point| point.0)).zip(extent(all().map(|point| point.1)))
        else {
            return Ok(());
        };
        let (x, y): (Range<f64>, Range<f64>) =
            (x_low..(x_high * 4.0).max(2.0), y_low / 2.0..y_high * 2.0);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 17))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(60)
            .build_cartesian_2d(x.log_scale(), y.log_scale())?;
        chart.configure_mesh().light_line_style(WHITE).draw()?;
        for (number, (name, points)) in self.lines.iter().enumerate() {
            let colour = Palette99::pick(number).to_rgba();
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
            chart.draw_series(dots)?;
            if let Some((x, y)) = points.last() {
                let style = (FONT, 13).into_font().color(&colour);
                chart.draw_series([Text::new(format!("  {name}"), (*x, *y), style)])?;
            }
        }
        Ok(())
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| *value > 0.0).fold(None, |known, value| match known {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("cannot draw: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_kind_of_result_has_its_chart() {
        let of_peers = json!({"loads": [
            {"load": "read", "server": "tgt", "rate_to_peer": null},
            {"load": "read", "server": "zgate", "rate_to_peer": 2.5},
        ]});
        let bars = bars_of(&of_peers);
        assert_eq!(bars.rows, [("read".to_owned(), 2.5)]);
        assert!(bars.title.contains("tgt") && bars.mark == Some(1.0));
        let turns = json!({"loads": [{"load": "read", "transport": "NFS/TCP", "unit": "MiB/s",
            "peer": "knfsd", "mean_ratio": 0.5}]});
        assert_eq!(bars_of(&turns).rows, [("NFS/TCP, read, MiB/s".to_owned(), 0.5)]);
        let loader = json!({"loads": [{"loader": "nfs-cat", "gigabytes_per_second": 3.0}]});
        assert_eq!(bars_of(&loader).rows, [("nfs-cat".to_owned(), 3.0)]);
        assert_eq!(bars_of(&json!({"attack": 1})).rows, []);
    }

    #[test]
    fn charts_are_written_beside_their_results() {
        let dir = tempfile::tempdir().unwrap();
        let (bars, lines, none) =
            (dir.path().join("a.json"), dir.path().join("b.json"), dir.path().join("c.json"));
        fs::write(&bars, r#"{"loads":[{"loader":"one","gigabytes_per_second":3.0}]}"#).unwrap();
        let growth = r#"{"panels":[{"title":"A","lines":[{"name":"reads","points":[[1,2],[100,3]]}]},
            {"title":"nothing","lines":[]}]}"#;
        fs::write(&lines, growth).unwrap();
        fs::write(&none, "{}").unwrap();
        run(&ChartsArgs { dir: dir.path().to_owned() }).unwrap();
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text("a.svg").starts_with("<svg") && text("a.svg").contains("one"));
        assert!(text("b.svg").contains("reads"));
        assert!(!dir.path().join("c.svg").exists());
    }
}
