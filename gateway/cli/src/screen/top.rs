//! The screen of `zgate top`: clients, exports, initiators and LUNs by their
//! load, from two samples of the gateway's counters.

use super::answer::Throughput;
use super::units::{byte_rate, latency, rate};
use super::{Column, Output, Text, table};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::HashMap;

/// Counters of the gateway at one moment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Sample {
    at_seconds: f64,
    throughput: Option<Value>,
    clients: Vec<Row>,
    exports: Vec<Row>,
    initiators: Vec<Row>,
    luns: Vec<Row>,
}

/// Counters of one client, export, initiator or LUN.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    #[serde(flatten)]
    figures: Figures,
    /// Fields that name it.
    #[serde(flatten)]
    identity: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Figures {
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
    busy_nanoseconds: u64,
    running: u64,
}

/// Load of one client, export, initiator or LUN between two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Load {
    #[serde(flatten)]
    identity: Map<String, Value>,
    requests_per_second: f64,
    read_bytes_per_second: f64,
    written_bytes_per_second: f64,
    /// Mean time of a request; none if none has ended.
    mean_seconds: Option<f64>,
    /// Mean number of requests in progress, or those in progress at the end if
    /// they are more: requests that hang have no time yet.
    queue: f64,
}

/// Load of everything between two samples.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    interval_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    throughput: Option<Value>,
    clients: Vec<Load>,
    exports: Vec<Load>,
    initiators: Vec<Load>,
    luns: Vec<Load>,
}

/// Figure by which rows are sorted, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Requests per second.
    #[default]
    Iops,
    /// Bytes per second.
    Bytes,
    /// Mean latency.
    Latency,
    /// Requests in progress.
    Queue,
    /// Name.
    Name,
}

/// Part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Everything.
    #[default]
    All,
    /// NFS clients.
    Clients,
    /// Exports.
    Exports,
    /// iSCSI initiators.
    Initiators,
    /// Logical units.
    Luns,
}

impl View {
    /// Returns the view that follows.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::All => Self::Clients,
            Self::Clients => Self::Exports,
            Self::Exports => Self::Initiators,
            Self::Initiators => Self::Luns,
            Self::Luns => Self::All,
        }
    }
}

/// One table: its view, and the columns that name a row.
struct Section {
    view: View,
    names: &'static [(Column, &'static str)],
}

const SECTIONS: [Section; 4] = [
    Section {
        view: View::Clients,
        names: &[(Column::Left("CLIENT"), "address"), (Column::Left("NAME"), "name")],
    },
    Section { view: View::Exports, names: &[(Column::Left("EXPORT"), "pseudo_path")] },
    Section {
        view: View::Initiators,
        names: &[
            (Column::Left("INITIATOR"), "initiator"),
            (Column::Left("TARGET"), "target"),
            (Column::Left("ADDRESS"), "address"),
        ],
    },
    Section {
        view: View::Luns,
        names: &[(Column::Left("TARGET"), "target"), (Column::Right("LUN"), "number")],
    },
];

impl Row {
    /// Returns a text that is different for each row of a table.
    fn key(&self) -> String {
        let names = ["address", "pseudo_path", "initiator", "tsih", "target", "number"];
        let values = names.iter().filter_map(|name| self.identity.get(*name));
        values.map(|value| value.to_string() + "\n").collect()
    }

    fn since(&self, before: Figures, seconds: f64) -> Load {
        let now = self.figures;
        // A client that has connected again begins anew.
        let began_anew = now.requests < before.requests;
        let before = if began_anew { Figures::default() } else { before };
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let requests = grown(now.requests, before.requests);
        let busy_seconds = grown(now.busy_nanoseconds, before.busy_nanoseconds) / 1e9;
        Load {
            identity: self.identity.clone(),
            requests_per_second: requests / seconds,
            read_bytes_per_second: grown(now.read_bytes, before.read_bytes) / seconds,
            written_bytes_per_second: grown(now.written_bytes, before.written_bytes) / seconds,
            mean_seconds: (requests > 0.0).then(|| busy_seconds / requests),
            queue: (busy_seconds / seconds).max(now.running as f64),
        }
    }
}

fn loads(now: &[Row], before: &[Row], seconds: f64) -> Vec<Load> {
    let before: HashMap<_, _> = before.iter().map(|row| (row.key(), row.figures)).collect();
    let load = |row: &Row| {
        let figures = before.get(&row.key()).copied().unwrap_or_default();
        row.since(figures, seconds)
    };
    now.iter().map(load).collect()
}

impl Report {
    /// Computes the load between two samples.
    pub(crate) fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = (now.at_seconds - before.at_seconds).max(1e-3);
        Self {
            interval_seconds: seconds,
            throughput: now.throughput.clone(),
            clients: loads(&now.clients, &before.clients, seconds),
            exports: loads(&now.exports, &before.exports, seconds),
            initiators: loads(&now.initiators, &before.initiators, seconds),
            luns: loads(&now.luns, &before.luns, seconds),
        }
    }

    /// Sorts the rows of all tables.
    pub(crate) fn sort(&mut self, by: Sort) {
        for rows in [&mut self.clients, &mut self.exports, &mut self.initiators, &mut self.luns] {
            // Equal rows keep the order of the gateway, which is by name.
            rows.sort_by(|a, b| Load::order(a, b, by));
        }
    }

    fn rows(&self, view: View) -> &[Load] {
        match view {
            View::All => &[],
            View::Clients => &self.clients,
            View::Exports => &self.exports,
            View::Initiators => &self.initiators,
            View::Luns => &self.luns,
        }
    }

    /// Returns the screen; of each table at most `most` rows.
    pub(crate) fn text(&self, output: Output, view: View, most: usize) -> String {
        let mut text = String::new();
        let throughput = self
            .throughput
            .clone()
            .and_then(|value| serde_json::from_value::<Throughput>(value).ok());
        if let Some(throughput) = throughput {
            text += &throughput.line();
            text.push('\n');
        }
        for section in SECTIONS.iter().filter(|one| [View::All, one.view].contains(&view)) {
            let rows = self.rows(section.view);
            // A table that was asked for is there, even without rows.
            if rows.is_empty() && view == View::All {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text += &section.text(output, rows, most);
        }
        if text.is_empty() { "nothing is exported\n".to_owned() } else { text }
    }
}

impl Load {
    fn order(a: &Self, b: &Self, by: Sort) -> Ordering {
        let figure = |load: &Self| match by {
            Sort::Iops => load.requests_per_second,
            Sort::Bytes => load.read_bytes_per_second + load.written_bytes_per_second,
            Sort::Latency => load.mean_seconds.unwrap_or(-1.0),
            Sort::Queue => load.queue,
            Sort::Name => 0.0,
        };
        figure(b).total_cmp(&figure(a))
    }

    fn cells(&self, section: &Section) -> Vec<Text> {
        let name = |(_, key): &(Column, &str)| match self.identity.get(*key) {
            None => Text::from("-"),
            Some(value) => value.as_str().map_or_else(|| value.to_string(), str::to_owned).into(),
        };
        let mut cells: Vec<Text> = section.names.iter().map(name).collect();
        cells.extend(
            [
                rate(self.requests_per_second),
                byte_rate(self.read_bytes_per_second),
                byte_rate(self.written_bytes_per_second),
                latency(self.mean_seconds),
                rate(self.queue),
            ]
            .map(Text::from),
        );
        cells
    }
}

impl Section {
    fn text(&self, output: Output, rows: &[Load], most: usize) -> String {
        use Column::Right;
        let figures = ["IOPS", "READ", "WRITE", "LATENCY", "QUEUE"].map(Right);
        let columns: Vec<_> = self.names.iter().map(|(column, _)| *column).chain(figures).collect();
        let shown = rows.iter().take(most).map(|row| row.cells(self)).collect();
        let mut text = table(output, &columns, shown);
        if rows.len() > most {
            text += &format!("... and {} more\n", rows.len() - most);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(name: Value, requests: u64, read_bytes: u64, busy_nanoseconds: u64) -> Value {
        let mut row = name;
        let figures = json!({
            "requests": requests, "read_bytes": read_bytes, "written_bytes": 0,
            "busy_nanoseconds": busy_nanoseconds, "running": 1,
        });
        row.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
        row
    }

    fn sample(at: f64, clients: Vec<Value>, luns: Vec<Value>) -> Sample {
        let value = json!({
            "at_seconds": at, "clients": clients, "exports": [], "initiators": [], "luns": luns,
        });
        serde_json::from_value(value).unwrap()
    }

    fn two_samples() -> Report {
        let client = |host: u8| json!({ "address": format!("10.0.0.{host}"), "connections": 1 });
        let lun = json!({ "target": "iqn.2026-11.test:vm", "number": 3 });
        let before = sample(
            100.0,
            vec![row(client(1), 10, 0, 0), row(client(2), 500, 0, 0)],
            vec![row(lun.clone(), 0, 0, 0)],
        );
        let now = sample(
            102.0,
            vec![
                // Eight seconds of work in two: four requests at a time.
                row(client(1), 30, 8_000_000, 8_000_000_000),
                // Connected again meanwhile.
                row(client(2), 200, 4096, 20_000_000),
                row(client(3), 4, 4096, 0),
            ],
            vec![row(lun, 0, 0, 0)],
        );
        Report::between(&before, &now)
    }

    #[test]
    fn loads_are_differences_by_time() {
        let mut report = two_samples();
        report.sort(Sort::Iops);
        let expected = "\
CLIENT    NAME  IOPS       READ  WRITE    LATENCY  QUEUE
10.0.0.2  -      100  2.05 kB/s  0 B/s     100 us    1.0
10.0.0.1  -       10  4.00 MB/s  0 B/s  400.00 ms    4.0
10.0.0.3  -      2.0  2.05 kB/s  0 B/s       0 us    1.0

TARGET               LUN  IOPS   READ  WRITE  LATENCY  QUEUE
iqn.2026-11.test:vm    3     0  0 B/s  0 B/s        -    1.0
";
        assert_eq!(report.text(Output::default(), View::All, 10), expected);
    }

    #[test]
    fn rows_are_sorted_by_any_figure_and_limited() {
        let mut report = two_samples();
        let first = |report: &Report| report.clients[0].identity["address"].clone();
        for (by, host) in [(Sort::Bytes, 1), (Sort::Iops, 2), (Sort::Latency, 1), (Sort::Queue, 1)]
        {
            report.sort(by);
            assert_eq!(first(&report), format!("10.0.0.{host}"), "{by:?}");
        }
        let text = report.text(Output::default(), View::Clients, 2);
        assert!(text.ends_with("... and 1 more\n") && !text.contains("LUN"), "{text}");
        let text = report.text(Output::default(), View::Exports, 2);
        assert!(text.starts_with("EXPORT"), "{text}");
        let views = (0..5).scan(View::All, |view, _| {
            *view = view.next();
            Some(*view)
        });
        assert_eq!(views.last(), Some(View::All));
    }

    #[test]
    fn a_script_gets_names_and_rates() {
        let json = serde_json::to_value(two_samples()).unwrap();
        assert_eq!(json["interval_seconds"], 2.0);
        let client = &json["clients"][0];
        assert_eq!(client["address"], "10.0.0.1");
        assert_eq!(client["requests_per_second"], 10.0);
        assert_eq!(client["read_bytes_per_second"], 4e6);
        assert_eq!(json["luns"][0]["mean_seconds"], Value::Null);
        assert!(client.get("requests").is_none(), "{client}");
    }
}
