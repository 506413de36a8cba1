//! `bench rdma`: NFS/RDMA of this gateway and of the kernel's server on one
//! soft-RoCE device in one virtual machine, side by side.

use crate::lab::{self, LabArgs};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

const SCENARIO: &str = "figures/rdma";

/// What `bench rdma` can be told.
#[derive(Args, Debug)]
pub(crate) struct RdmaArgs {
    /// A gateway that is built already, instead of a release build of this tree
    #[arg(long)]
    zgate: Option<PathBuf>,
    /// Where results go
    #[arg(long, default_value = "target/lab")]
    out: PathBuf,
}

/// Runs it.
///
/// # Errors
/// As the lab.
pub(crate) fn run(args: &RdmaArgs) -> io::Result<()> {
    lab::run(&LabArgs::of(SCENARIO, args.zgate.clone(), args.out.clone()))?;
    let results: Value = serde_json::from_slice(&fs::read(args.out.join("results.json"))?)?;
    writeln!(io::stdout(), "{}", table(&results))
}

/// Both servers beside each other, by load and unit.
fn table(results: &Value) -> String {
    let scenarios = results["scenarios"].as_array().into_iter().flatten();
    let figures = scenarios
        .filter(|one| one["scenario"] == SCENARIO)
        .flat_map(|one| one["figures"].as_array().into_iter().flatten());
    let mut rows: BTreeMap<(String, String), BTreeMap<String, f64>> = BTreeMap::new();
    for figure in figures {
        let (Some(name), Some(value), Some(unit)) =
            (figure["name"].as_str(), figure["value"].as_f64(), figure["unit"].as_str())
        else {
            continue;
        };
        if let Some((server, load)) = name.split_once(": ") {
            let row = rows.entry((load.to_owned(), unit.to_owned())).or_default();
            row.insert(server.to_owned(), value);
        }
    }
    let mut out = String::from(
        "| load | unit | zgate | knfsd | ratio |\n| --- | --- | ---: | ---: | ---: |\n",
    );
    for ((load, unit), servers) in &rows {
        let (Some(ours), Some(theirs)) = (servers.get("zgate"), servers.get("knfsd")) else {
            continue;
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {load} | {unit} | {ours} | {theirs} | {:.2} |", ours / theirs);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_stand_in_a_row() {
        let results = serde_json::json!({"scenarios": [{"scenario": SCENARIO, "figures": [
            {"name": "zgate: read 1 MiB", "value": 12.0, "unit": "MiB/s"},
            {"name": "knfsd: read 1 MiB", "value": 10.0, "unit": "MiB/s"},
            {"name": "zgate: copied by the gateway", "value": 0.0, "unit": "bytes"},
        ]}]});
        assert!(table(&results).ends_with("| read 1 MiB | MiB/s | 12 | 10 | 1.20 |\n"));
    }
}
