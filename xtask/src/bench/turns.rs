//! `bench zfs` and `bench rdma`: compare this gateway with the kernel's server
//! and its target, alternating on one pool in one virtual machine: over TCP, and
//! over RDMA on one soft-RoCE device.

use super::chart;
use super::stats::{MeanRatio, mean_ratio, median};
use crate::lab::{self, LabArgs};
use crate::servers::zgate;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// A scenario that measures, and the server that zgate is compared with.
#[derive(Clone, Copy, Debug)]
struct Compared {
    scenario: &'static str,
    peer: &'static str,
    transport: &'static str,
}

const NFS: Compared = Compared { scenario: "figures/nfs", peer: "knfsd", transport: "NFS/TCP" };
const ISCSI: Compared = Compared { scenario: "figures/iscsi", peer: "LIO", transport: "iSCSI" };
const NFS_RDMA: Compared =
    Compared { scenario: "figures/rdma", peer: "knfsd", transport: "NFS/RDMA" };
const ISER: Compared = Compared { scenario: "figures/iser", peer: "LIO", transport: "iSER" };

/// Comparison by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    /// All protocols and transports.
    Zfs,
    /// RDMA only.
    Rdma,
}

impl Turns {
    fn compared(self) -> &'static [Compared] {
        match self {
            Self::Zfs => &[NFS, ISCSI, NFS_RDMA, ISER],
            Self::Rdma => &[NFS_RDMA, ISER],
        }
    }

    fn default_json(self) -> PathBuf {
        let name = match self {
            Self::Zfs => "zfs",
            Self::Rdma => "rdma",
        };
        format!("docs/bench/{name}.json").into()
    }
}

/// Arguments of `bench zfs` and `bench rdma`.
#[derive(Args, Debug)]
pub(crate) struct TurnsArgs {
    /// A gateway that is built already, instead of a build of this tree as packages carry it
    #[arg(long)]
    zgate: Option<PathBuf>,
    /// Rounds of ten turns a server and load; about two minutes each in a scenario
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=25))]
    rounds: u8,
    /// Directory for the lab's results
    #[arg(long, default_value = "target/lab")]
    out: PathBuf,
    /// File for the figures [default: zfs.json or rdma.json in docs/bench]
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the benchmark.
///
/// # Errors
/// As for the lab.
pub(crate) fn run(turns: Turns, args: &TurnsArgs) -> io::Result<()> {
    let compared = turns.compared();
    let scenarios: Vec<_> = compared.iter().map(|one| one.scenario).collect();
    let binary = match &args.zgate {
        Some(binary) => binary.clone(),
        None => zgate::build_as_packaged()?,
    };
    lab::run(&LabArgs::of(&scenarios, Some(binary), args.out.clone(), args.rounds))?;
    let results: Value = serde_json::from_slice(&fs::read(args.out.join("results.json"))?)?;
    let rows: Vec<Row> = compared.iter().flat_map(|one| rows(&results, *one)).collect();
    let doc = json!({
        "accel": results["accel"],
        "versions": results["versions"],
        "loads": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
    });
    let json = args.json.clone().unwrap_or_else(|| turns.default_json());
    fs::write(&json, format!("{}\n", serde_json::to_string_pretty(&doc)?))?;
    chart::draw(&json)?;
    writeln!(io::stdout(), "{}", table(&rows))
}

/// One load of both servers, in one unit.
struct Row {
    compared: Compared,
    load: String,
    unit: String,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Row {
    /// Returns the ratio of our median to the peer's.
    fn ratio(&self) -> f64 {
        median(&self.ours) / median(&self.theirs)
    }

    /// Returns the mean ratio within rounds: the speed of machines changes
    /// between rounds.
    fn mean_ratio(&self) -> MeanRatio {
        mean_ratio(&self.ours, &self.theirs)
    }

    fn to_json(&self) -> Value {
        let MeanRatio { mean, range: (low, high) } = self.mean_ratio();
        json!({
            "transport": self.compared.transport, "load": self.load, "unit": self.unit,
            "peer": self.compared.peer,
            "zgate": self.ours, "peers": self.theirs, "ratio_of_medians": self.ratio(),
            "mean_ratio": mean, "mean_ratio_range": [low, high],
        })
    }
}

/// Returns the measurements of both servers of a scenario, by load and unit.
fn rows(results: &Value, compared: Compared) -> Vec<Row> {
    let scenarios = results["scenarios"].as_array().into_iter().flatten();
    let figures = scenarios
        .filter(|one| one["scenario"] == compared.scenario)
        .flat_map(|one| one["figures"].as_array().into_iter().flatten());
    let mut by_load: BTreeMap<(String, String), BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for figure in figures {
        let (Some(name), Some(value), Some(unit)) =
            (figure["name"].as_str(), figure["value"].as_f64(), figure["unit"].as_str())
        else {
            continue;
        };
        if let Some((server, load)) = name.split_once(": ") {
            let servers = by_load.entry((load.to_owned(), unit.to_owned())).or_default();
            servers.entry(server.to_owned()).or_default().push(value);
        }
    }
    let row = |((load, unit), mut servers): (_, BTreeMap<String, _>)| {
        let (ours, theirs) = (servers.remove("zgate")?, servers.remove(compared.peer)?);
        Some(Row { compared, load, unit, ours, theirs })
    };
    by_load.into_iter().filter_map(row).collect()
}

/// Returns a table of medians, their ratio and the mean ratio within rounds.
fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| transport | load | unit | zgate | peer | | ratio | mean in rounds |\n\
         | --- | --- | --- | ---: | --- | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let (ours, theirs) = (median(&row.ours), median(&row.theirs));
        let MeanRatio { mean, range: (low, high) } = row.mean_ratio();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {ours:.1} | {} | {theirs:.1} | {:.2} | {mean:.2} ({low:.2} to {high:.2}) |",
            row.compared.transport,
            row.load,
            row.unit,
            row.compared.peer,
            row.ratio(),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_stand_in_a_row_with_their_medians() {
        let results = json!({"scenarios": [{"scenario": "figures/rdma", "figures": [
            {"name": "zgate: read 1 MiB", "value": 12.0, "unit": "MiB/s"},
            {"name": "knfsd: read 1 MiB", "value": 10.0, "unit": "MiB/s"},
            {"name": "zgate: read 1 MiB", "value": 13.0, "unit": "MiB/s"},
            {"name": "knfsd: read 1 MiB", "value": 8.0, "unit": "MiB/s"},
            {"name": "zgate: read 1 MiB", "value": 10.0, "unit": "MiB/s"},
            {"name": "knfsd: read 1 MiB", "value": 10.0, "unit": "MiB/s"},
            {"name": "zgate: copied by the gateway", "value": 0.0, "unit": "bytes"},
        ]}]});
        let rows = rows(&results, NFS_RDMA);
        let shown = table(&rows);
        let row = "| NFS/RDMA | read 1 MiB | MiB/s | 12.0 | knfsd | 10.0 | 1.20 | 1.25 (0.68 to 2.30) |\n";
        assert!(shown.ends_with(row), "{shown}");
        assert_eq!(rows.len(), 1);
    }
}
