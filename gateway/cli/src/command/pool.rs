//! `zgate pool`: shows pools; derives from a layout the commands that create a
//! pool, and runs them.

use super::dataset::{self, PoolArgs};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use zgate_control::provision::{
    ApplyError, Layout, Plan, Progress, SystemMachine, apply, disks, plan,
};
use zgate_gateway::schedule;

/// `zgate pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Show this machine's pools and their devices
    List(PoolArgs),
    /// List the disks of this machine as a layout describes them, and which are
    /// empty
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the commands that create the pool of a layout; changes nothing
    Plan(PlanArgs),
    /// Run them on empty disks, if the plan's hash is repeated
    Apply(ApplyArgs),
}

/// Arguments of `zgate pool plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The layout; examples are in deploy/layouts
    layout: PathBuf,
    /// Use files in place of disks, for tests
    #[arg(long)]
    allow_files: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `zgate pool apply`.
#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// The hash `zgate pool plan` printed
    #[arg(long, value_name = "HEX")]
    hash: String,
}

/// Runs the subcommand.
///
/// # Errors
/// All reasons against it.
pub(crate) fn run(command: &PoolCommand) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
        PoolCommand::List(args) => dataset::pools(args),
        PoolCommand::Devices { json } => devices(*json),
        PoolCommand::Plan(args) => {
            let plan = read(&args.layout, args.allow_files)?;
            if args.json {
                println!("{}", serde_json::to_string_pretty(&plan)?);
            } else {
                print!("{plan}");
            }
            Ok(true)
        }
        PoolCommand::Apply(args) => make(args),
    }
}

fn devices(json: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let found = disks(&schedule::tool(), &SystemMachine)
        .map_err(|error| format!("cannot list /dev/disk/by-id: {error}"))?;
    if json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(true);
    }
    if found.is_empty() {
        println!("# no disk of this machine has a name in /dev/disk/by-id");
    }
    for (index, disk) in found.iter().enumerate() {
        println!("[[device]]\nname = \"disk{index}\"\n{disk}");
    }
    Ok(true)
}

fn read(path: &Path, files: bool) -> Result<Plan, Box<dyn std::error::Error>> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let layout = Layout::parse(&text).map_err(|error| format!("{shown}: {error}"))?;
    Ok(plan(&layout, files).map_err(|error| format!("{shown}: {error}"))?)
}

fn make(args: &ApplyArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let plan = read(&args.plan.layout, args.plan.allow_files)?;
    let json = args.plan.json;
    let mut progress = |progress: Progress<'_>| {
        if let (Progress::Begins(number, count, step), false) = (progress, json) {
            println!("[{number}/{count}] {}\n        {}", step.title, step.line());
        }
    };
    let made = apply(&plan, &args.hash, &schedule::tool(), &SystemMachine, &mut progress);
    match made {
        Ok(()) if json => println!("{}", serde_json::json!({ "made": plan.pool })),
        Ok(()) => println!("pool {} was created", plan.pool),
        Err(error) => {
            let ApplyError::Step { done, undo, .. } = &error else { return Err(error.into()) };
            if json {
                let (done, undo) = (done.as_slice(), undo.as_slice());
                println!("{}", stopped_json(&error, done, undo));
                eprintln!("zgate: {error}");
                return Ok(false);
            }
            stopped(done, undo);
            return Err(error.into());
        }
    }
    Ok(true)
}

/// Returns the one document that a command prints which has stopped in a step.
fn stopped_json(error: &ApplyError, done: &[String], undo: &[String]) -> serde_json::Value {
    serde_json::json!({ "error": error.to_string(), "done": done, "undo": undo })
}

fn stopped(done: &[String], undo: &[String]) {
    eprintln!("Completed steps:");
    for title in done {
        eprintln!("  {title}");
    }
    eprintln!("Commands that undo them, in this order; check before running them:");
    for line in undo {
        eprintln!("  {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_stops_in_a_step_prints_one_document() {
        let (done, undo) = (vec!["first".to_owned()], vec!["zpool destroy p".to_owned()]);
        let error = ApplyError::Step {
            number: 2,
            title: "second".to_owned(),
            reason: "no".to_owned(),
            done: done.clone(),
            undo: undo.clone(),
        };
        let said = stopped_json(&error, &done, &undo);
        assert_eq!(
            (&said["done"][0], &said["undo"][0]),
            (&"first".into(), &"zpool destroy p".into())
        );
        assert_eq!(said["error"], error.to_string());
    }
}
