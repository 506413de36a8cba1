//! `zgate pool list`, `datasets`, `release`, `resume` and `replaced`.

use super::live;
use super::live::LiveArgs;
use crate::screen::reload::Released;
use clap::Args;
use indicatif::BinaryBytes;
use std::sync::Arc;
use zgate_control::{
    Dataset, DatasetKind, DatasetName, DatasetPattern, Discovery, Pool, SystemTool, VdevClass,
};
use zgate_gateway::admin::{Request, ask};

/// Arguments of `zgate pool list`.
#[derive(Args, Debug)]
pub(crate) struct PoolArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `zgate datasets`.
#[derive(Args, Debug)]
pub(crate) struct DatasetArgs {
    /// A dataset, or a pattern as in the configuration; all if omitted
    pattern: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `zgate release`.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// A dataset; includes everything below it
    dataset: DatasetName,
    /// Serve it again after this many seconds, unless it has moved before
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    live: LiveArgs,
}

/// Arguments of `zgate resume`.
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// A dataset; includes everything below it
    dataset: DatasetName,
    #[command(flatten)]
    live: LiveArgs,
}

/// Arguments of `zgate replaced`.
#[derive(Args, Debug)]
pub(crate) struct ReplacedArgs {
    /// A dataset; does not include what is below it
    dataset: DatasetName,
    #[command(flatten)]
    live: LiveArgs,
}

type Outcome = Result<bool, Box<dyn std::error::Error>>;

fn discovery() -> Discovery {
    Discovery::new(Arc::new(SystemTool::default()))
}

/// Prints the pools of this machine.
///
/// # Errors
/// The error of `zpool`.
pub(crate) fn pools(args: &PoolArgs) -> Outcome {
    let pools = discovery().pools()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&pools)?);
        return Ok(true);
    }
    if pools.is_empty() {
        println!("no pool is imported");
    }
    pools.iter().for_each(print_pool);
    Ok(true)
}

fn print_pool(pool: &Pool) {
    println!(
        "{}: {}, {} of {} used ({} %)",
        pool.name,
        pool.health,
        BinaryBytes(pool.allocated_bytes),
        BinaryBytes(pool.size_bytes),
        pool.capacity_percent
    );
    for (class, what) in [
        (VdevClass::Data, "data"),
        (VdevClass::Special, "special"),
        (VdevClass::Dedup, "dedup"),
        (VdevClass::Log, "SLOG"),
        (VdevClass::Cache, "L2ARC"),
        (VdevClass::Spare, "spare"),
    ] {
        for vdev in pool.of_class(class) {
            let disks = match vdev.disks.len() {
                0 => String::new(),
                count => format!(" of {count} disks"),
            };
            println!(
                "  {what}: {}{disks}, {}, {}",
                vdev.name,
                vdev.health,
                BinaryBytes(vdev.size_bytes)
            );
        }
    }
    if !pool.has_log() {
        println!("  no SLOG: synchronous writes wait for the data disks");
    }
}

/// Prints datasets of this machine.
///
/// # Errors
/// The error of `zfs`, or the fault of the pattern.
pub(crate) fn datasets(args: &DatasetArgs) -> Outcome {
    let found = match &args.pattern {
        None => discovery().datasets()?,
        Some(text) => {
            let pattern: DatasetPattern = text.parse()?;
            let mut found = discovery().datasets_below(pattern.base())?;
            found.retain(|dataset| pattern.matches(&dataset.name));
            found
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(true);
    }
    if found.is_empty() {
        println!("no dataset");
    }
    found.iter().for_each(print_dataset);
    Ok(true)
}

fn print_dataset(dataset: &Dataset) {
    let kind = match &dataset.kind {
        DatasetKind::Filesystem { recordsize_bytes, .. } => {
            let place =
                dataset.mounted_at().map_or("not mounted".into(), |at| at.display().to_string());
            format!("{place}, recordsize {}", BinaryBytes(*recordsize_bytes))
        }
        DatasetKind::Volume { volsize_bytes, volblocksize_bytes } => {
            format!(
                "zvol of {}, volblocksize {}",
                BinaryBytes(*volsize_bytes),
                BinaryBytes(*volblocksize_bytes)
            )
        }
    };
    let warning = if dataset.loses_sync_writes() { " (loses acknowledged writes)" } else { "" };
    println!(
        "{}: {kind}, {} used, compression {}, sync {}{warning}",
        dataset.name,
        BinaryBytes(dataset.used_bytes),
        dataset.compression,
        dataset.sync
    );
}

/// Makes a running gateway release a dataset. False: it is still in use.
///
/// # Errors
/// The gateway's error.
pub(crate) fn release(args: &ReleaseArgs) -> Outcome {
    let dataset = args.dataset.to_string();
    let request = Request::Release { dataset, seconds: args.seconds };
    let value = ask(args.live.socket(), &request)?;
    let free = value["free"] == true;
    live::show_as(&args.live, &value, |released: Released, output| {
        released.text(args.dataset.as_str(), output)
    })?;
    Ok(free)
}

/// Makes a running gateway serve a dataset again.
///
/// # Errors
/// The gateway's error.
pub(crate) fn resume(args: &ResumeArgs) -> Outcome {
    live::run(&args.live, &Request::Resume { dataset: args.dataset.to_string() })
}

/// Makes a running gateway tell clients that the content of a dataset was replaced.
///
/// # Errors
/// The gateway's error.
pub(crate) fn replaced(args: &ReplacedArgs) -> Outcome {
    live::run(&args.live, &Request::Replaced { dataset: args.dataset.to_string() })
}
