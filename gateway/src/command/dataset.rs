//! `zgate pools`, `datasets`, `release` and `resume`.

use super::live::{self, LiveArgs};
use crate::admin::{Request, ask};
use clap::Args;
use std::sync::Arc;
use zgate_control::{
    Dataset, DatasetKind, DatasetName, DatasetPattern, Discovery, Pool, SystemTool, VdevClass,
};

/// How pools are shown.
#[derive(Args, Debug)]
pub(crate) struct PoolArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which datasets are shown, and how.
#[derive(Args, Debug)]
pub(crate) struct DatasetArgs {
    /// A dataset, or a pattern of many as in the configuration; all when left
    /// out
    pattern: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is let go of.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// A dataset; everything below it as well
    dataset: DatasetName,
    /// Serve it again after so many seconds, if it has not moved before
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    live: LiveArgs,
}

/// What is served again.
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// A dataset; everything below it as well
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
/// What `zpool` says.
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
        size(pool.allocated_bytes),
        size(pool.size_bytes),
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
            println!("  {what}: {}{disks}, {}, {}", vdev.name, vdev.health, size(vdev.size_bytes));
        }
    }
    if !pool.has_log() {
        println!("  no SLOG: synchronous writes wait for the data disks");
    }
}

/// Prints datasets of this machine.
///
/// # Errors
/// What `zfs` says, or what is wrong with the pattern.
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
            format!("{place}, recordsize {}", size(*recordsize_bytes))
        }
        DatasetKind::Volume { volsize_bytes, volblocksize_bytes } => {
            format!("zvol of {}, volblocksize {}", size(*volsize_bytes), size(*volblocksize_bytes))
        }
    };
    let warning = if dataset.loses_sync_writes() { " (loses acknowledged writes)" } else { "" };
    println!(
        "{}: {kind}, {} used, compression {}, sync {}{warning}",
        dataset.name,
        size(dataset.used_bytes),
        dataset.compression,
        dataset.sync
    );
}

/// Has a running gateway let go of a dataset. False: something still uses it.
///
/// # Errors
/// What the gateway says.
pub(crate) fn release(args: &ReleaseArgs) -> Outcome {
    let dataset = args.dataset.to_string();
    let request = Request::Release { dataset, seconds: args.seconds };
    let value = ask(args.live.socket(), &request)?;
    live::show(&args.live, &value)?;
    Ok(value["free"] == true)
}

/// Has a running gateway serve a dataset again.
///
/// # Errors
/// What the gateway says.
pub(crate) fn resume(args: &ResumeArgs) -> Outcome {
    live::run(&args.live, &Request::Resume { dataset: args.dataset.to_string() })
}

/// With a unit, one digit after the point.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(131_072), "128.0 KiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
    }
}
