//! Plan of a pool: the commands that create it, in order, and their hash.

use super::check::{Leaf, Refused, check};
use super::layout::{Class, Dataset, Layout, Settings};
use crate::tool::command_line;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

/// Version of the plan, part of its hash. Changes when the same layout leads to
/// other commands.
const FORMAT: &str = "zgate-plan-1";

/// One command of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Purpose of the command.
    pub title: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Command that undoes it.
    pub undo: Vec<String>,
    /// Paths that must exist afterwards, with their sizes in bytes.
    #[serde(skip)]
    pub yields: Vec<(PathBuf, u64)>,
}

impl Step {
    fn new(title: impl Into<String>, command: &[&str]) -> Self {
        Self {
            title: title.into(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            undo: Vec::new(),
            yields: Vec::new(),
        }
    }

    /// Returns the command as typed in a shell.
    #[must_use]
    pub fn line(&self) -> String {
        let words: Vec<&str> = self.command.iter().map(String::as_str).collect();
        words.split_first().map_or(String::new(), |(program, rest)| command_line(program, rest))
    }
}

/// A device that must be found on the machine before the plan is executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceIdentity {
    /// Name in the layout.
    pub name: String,
    /// Path of the device.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Physical sector size in bytes.
    pub sector_bytes: u64,
}

/// Commands that create a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Name of the pool.
    pub pool: String,
    /// Devices that the plan uses.
    pub devices: Vec<DeviceIdentity>,
    /// Commands in order.
    pub steps: Vec<Step>,
    /// Remarks on choices that work but have a price.
    pub remarks: Vec<String>,
    /// SHA-256 over devices and commands, in hexadecimal.
    pub hash: String,
    /// Set if files take the place of disks.
    #[serde(skip)]
    pub files: bool,
}

/// Makes a plan. With `files` the devices are files, and their partitions are
/// files beside them.
///
/// # Errors
/// All problems of the layout: ambiguity, lack of space, data loss.
pub fn plan(layout: &Layout, files: bool) -> Result<Plan, Refused> {
    let leaves = check(layout, files)?;
    let mut steps = Vec::new();
    for (index, device) in layout.devices.iter().enumerate() {
        let mut own: Vec<&Leaf> = leaves.values().filter(|leaf| leaf.device == index).collect();
        own.sort_by_key(|leaf| leaf.start_mib);
        if device.partitions.is_empty() {
            continue;
        }
        if files {
            steps.extend(own.into_iter().map(file_part));
        } else {
            steps.push(partition(&device.name, &text(&device.path), &own));
        }
    }
    if !files && !steps.is_empty() {
        let mut settle =
            Step::new("wait for the partitions", &["udevadm", "settle", "--timeout=30"]);
        settle.yields =
            steps.iter_mut().flat_map(|step| std::mem::take(&mut step.yields)).collect();
        steps.push(settle);
    }
    steps.push(create_pool(layout, &leaves, files));
    steps.extend(layout.datasets.iter().map(|dataset| create_dataset(&layout.pool.name, dataset)));
    let devices: Vec<_> = layout
        .devices
        .iter()
        .map(|device| DeviceIdentity {
            name: device.name.clone(),
            path: device.path.clone(),
            size_bytes: device.size.0,
            sector_bytes: device.sector_bytes,
        })
        .collect();
    let hash = hash(&devices, &steps);
    let remarks = remarks(layout);
    Ok(Plan { pool: layout.pool.name.clone(), devices, steps, remarks, hash, files })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn file_part(leaf: &Leaf) -> Step {
    let (size, path) = (leaf.size_bytes.to_string(), text(&leaf.path));
    let mut step = Step::new(format!("make {}", leaf.name), &["truncate", "--size", &size, &path]);
    step.undo = vec![command_line("rm", &[&path])];
    step.yields = vec![(leaf.path.clone(), leaf.size_bytes)];
    step
}

/// Partitions a device. With sizes in MiB parted takes start and end exactly,
/// and leaves the last sector before the end to the partition (parted's manual,
/// `unit`).
fn partition(name: &str, path: &str, leaves: &[&Leaf]) -> Step {
    let mut step = Step::new(
        format!("partition {name}"),
        &["parted", "--script", "--align", "optimal", path, "mklabel", "gpt"],
    );
    for leaf in leaves {
        let start = leaf.start_mib.unwrap_or(1);
        let end = start + leaf.size_bytes / super::size::MIB;
        let part = leaf.name.split_once('.').map_or(leaf.name.as_str(), |(_, part)| part);
        step.command.extend(["mkpart".to_owned(), part.to_owned()]);
        step.command.extend([format!("{start}MiB"), format!("{end}MiB")]);
        step.yields.push((leaf.path.clone(), leaf.size_bytes));
    }
    step.undo = vec![command_line("wipefs", &["--all", path])];
    step
}

fn options(flag: &str, settings: &Settings, command: &mut Vec<String>) {
    for (name, value) in settings {
        command.extend([flag.to_owned(), format!("{name}={value}")]);
    }
}

fn create_pool(layout: &Layout, leaves: &HashMap<String, Leaf>, files: bool) -> Step {
    let pool = &layout.pool;
    let mut step = Step::new(format!("create the pool {}", pool.name), &["zpool", "create"]);
    options("-o", &pool.properties, &mut step.command);
    options("-O", &pool.filesystem, &mut step.command);
    step.command.extend(["-m".to_owned(), pool.mountpoint.clone(), pool.name.clone()]);
    step.undo = vec![command_line("zpool", &["destroy", &pool.name])];
    for class in [Class::Data, Class::Special, Class::Log, Class::Cache, Class::Spare] {
        let mut named = false;
        for vdev in layout.vdevs.iter().filter(|vdev| vdev.class == class) {
            if !named {
                step.command.extend(class.word().map(str::to_owned));
                named = true;
            }
            step.command.extend(vdev.grouping.word().map(str::to_owned));
            for leaf in vdev.devices.iter().filter_map(|name| leaves.get(name)) {
                step.command.push(text(&leaf.path));
                // On a whole disk ZFS creates a partition by itself.
                let whole = !files && leaf.start_mib.is_none();
                let labelled = text(&leaf.path) + if whole { "-part1" } else { "" };
                step.undo.push(command_line("zpool", &["labelclear", "-f", &labelled]));
                if whole {
                    step.undo.push(command_line("wipefs", &["--all", &text(&leaf.path)]));
                }
            }
        }
    }
    step
}

fn create_dataset(pool: &str, dataset: &Dataset) -> Step {
    let name = format!("{pool}/{}", dataset.name);
    let kind = if dataset.size.is_some() { "volume" } else { "file system" };
    let mut step = Step::new(format!("create the {kind} {name}"), &["zfs", "create"]);
    if dataset.sparse == Some(true) {
        step.command.push("-s".to_owned());
    }
    options("-o", &dataset.properties, &mut step.command);
    if let Some(size) = dataset.size {
        step.command.extend(["-V".to_owned(), size.to_string()]);
    }
    step.command.push(name);
    step
}

fn hash(devices: &[DeviceIdentity], steps: &[Step]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{FORMAT}\n"));
    for device in devices {
        let path = device.path.display();
        hash.update(format!("device {path} {} {}\n", device.size_bytes, device.sector_bytes));
    }
    for step in steps {
        hash.update(format!("{}\n", step.line()));
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn remarks(layout: &Layout) -> Vec<String> {
    let mut remarks = Vec::new();
    for dataset in &layout.datasets {
        let sync = dataset.properties.get("sync").map(ToString::to_string);
        if sync.as_deref() == Some("disabled") {
            remarks.push(format!(
                "{}/{}: sync=disabled: a power failure loses the last seconds of acknowledged \
                 writes",
                layout.pool.name, dataset.name
            ));
        }
        if dataset.sparse == Some(true) {
            remarks.push(format!(
                "{}/{}: sparse: its writes fail when the pool is full",
                layout.pool.name, dataset.name
            ));
        }
    }
    for vdev in layout.vdevs.iter().filter(|vdev| vdev.class == Class::Log) {
        if vdev.grouping.tolerates(vdev.devices.len()) == 0 {
            remarks.push(format!(
                "log {}: not mirrored: if it fails together with the machine, the last seconds of \
                 acknowledged writes are lost",
                vdev.devices.join(", ")
            ));
        }
    }
    remarks
}

/// Prints the plan for `zgate pool plan`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# pool {}, on these devices:", self.pool)?;
        for device in &self.devices {
            let path = device.path.display();
            writeln!(
                f,
                "#   {}: {path}, {} bytes, sectors of {}",
                device.name, device.size_bytes, device.sector_bytes
            )?;
        }
        for remark in &self.remarks {
            writeln!(f, "# remark: {remark}")?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "\n# {} of {}: {}", index + 1, self.steps.len(), step.title)?;
            writeln!(f, "{}", step.line())?;
        }
        writeln!(f, "\n# hash: {}", self.hash)
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
