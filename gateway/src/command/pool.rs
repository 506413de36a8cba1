//! `zgate pool`: from a layout to the commands that make a pool, and running
//! them.

use crate::schedule;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use zgate_control::provision::{
    ApplyError, Layout, Plan, Progress, SystemMachine, apply, disks, plan,
};

/// `zgate pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// The disks of this machine as a layout describes them, and which are empty
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the commands that make the pool a layout describes; touches nothing
    Plan(PlanArgs),
    /// Run them: on empty disks, when the plan's hash is repeated
    Apply(ApplyArgs),
}

/// Which layout.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The layout; deploy/layouts has examples
    layout: PathBuf,
    /// Files take the place of disks, for trying things out
    #[arg(long)]
    allow_files: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which layout, as it was planned.
#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// The hash `zgate pool plan` printed
    #[arg(long, value_name = "HEX")]
    hash: String,
}

/// Runs it.
///
/// # Errors
/// Everything that speaks against it.
pub(crate) fn run(command: &PoolCommand) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
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
        .map_err(|error| format!("no disk has a name by id: {error}"))?;
    if json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(true);
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
        Ok(()) => println!("pool {} is made", plan.pool),
        Err(error) => {
            if let ApplyError::Step { done, undo, .. } = &error {
                stopped(done, undo, json);
            }
            return Err(error.into());
        }
    }
    Ok(true)
}

fn stopped(done: &[String], undo: &[String], json: bool) {
    if json {
        println!("{}", serde_json::json!({ "done": done, "undo": undo }));
        return;
    }
    eprintln!("Done before it stopped:");
    for title in done {
        eprintln!("  {title}");
    }
    eprintln!("What takes it back, in this order; look before you run it:");
    for line in undo {
        eprintln!("  {line}");
    }
}
