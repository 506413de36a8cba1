//! Running a plan: only the one whose hash was repeated, only on the disks it
//! describes, only when they are empty.

use super::machine::{Machine, signatures};
use super::plan::{Plan, Step};
use crate::tool::Tool;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How often a partition is looked for, and how long apart.
const LOOKS: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Where it stands.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A step begins: its number from 1, of how many.
    Begins(usize, usize, &'a Step),
    /// It is done.
    Done(usize, usize, &'a Step),
}

/// Why a pool was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The hash is another one.
    #[error("refused: the plan's hash is {is}, not {said}; look at `zgate pool plan` again")]
    Hash {
        /// Of this plan.
        is: String,
        /// What was repeated.
        said: String,
    },
    /// The machine is another one, or the disks are not empty. Nothing was done.
    #[error("refused, nothing was done:\n  {}", .0.join("\n  "))]
    Machine(Vec<String>),
    /// A step failed; those before it are done.
    #[error("step {number}, {title}, failed: {reason}")]
    Step {
        /// Its number, from 1.
        number: usize,
        /// What it was to do.
        title: String,
        /// What was said.
        reason: String,
        /// The steps that were done.
        done: Vec<String>,
        /// The commands that take them back, in order.
        undo: Vec<String>,
    },
}

/// Runs a plan.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    plan: &Plan,
    repeated_hash: &str,
    tool: &dyn Tool,
    machine: &dyn Machine,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), ApplyError> {
    if !repeated_hash.eq_ignore_ascii_case(&plan.hash) {
        let said = repeated_hash.to_owned();
        return Err(ApplyError::Hash { is: plan.hash.clone(), said });
    }
    let refusals = refusals(plan, tool, machine);
    if !refusals.is_empty() {
        return Err(ApplyError::Machine(refusals));
    }
    let count = plan.steps.len();
    for (index, step) in plan.steps.iter().enumerate() {
        progress(Progress::Begins(index + 1, count, step));
        if let Err(reason) = run(step, tool, machine) {
            return Err(stopped(plan, index, reason));
        }
        progress(Progress::Done(index + 1, count, step));
    }
    Ok(())
}

fn refusals(plan: &Plan, tool: &dyn Tool, machine: &dyn Machine) -> Vec<String> {
    let mut found = Vec::new();
    match tool.run("zpool", &["list", "-H", "-o", "name", &plan.pool]) {
        Ok(_) => found.push(format!("pool {} is there already", plan.pool)),
        Err(error) if error.is_absent() => {}
        Err(error) => found.push(error.to_string()),
    }
    let mut seen: HashMap<PathBuf, &str> = HashMap::new();
    for device in &plan.devices {
        let path = device.path.display().to_string();
        let mut wrong = |text: String| found.push(format!("{} ({path}): {text}", device.name));
        let look = match machine.look(&device.path) {
            Ok(look) => look,
            Err(error) => {
                wrong(error);
                continue;
            }
        };
        if look.size_bytes != device.size_bytes {
            wrong(format!("has {} bytes, not {}", look.size_bytes, device.size_bytes));
        }
        if let Some(sector) = look.sector_bytes
            && sector != device.sector_bytes
        {
            wrong(format!("has sectors of {sector} bytes, not {}", device.sector_bytes));
        }
        if look.sector_bytes.is_none() && !plan.files {
            wrong("is no whole disk".to_owned());
        }
        for occupant in &look.occupants {
            wrong(format!("not empty: {occupant}"));
        }
        if let Some(other) = seen.insert(look.canonical, &device.name) {
            wrong(format!("is the same disk as {other}"));
        }
        match signatures(tool, &path) {
            Ok(signatures) => {
                signatures.into_iter().for_each(|what| wrong(format!("not empty: {what}")))
            }
            Err(error) => wrong(format!("nobody knows whether it is empty: {error}")),
        }
    }
    if plan.files {
        // Parts of a file are files beside it: none may be there.
        for (path, _) in plan.steps.iter().flat_map(|step| &step.yields) {
            if path.symlink_metadata().is_ok() {
                found.push(format!("{} is there already", path.display()));
            }
        }
    }
    found
}

fn run(step: &Step, tool: &dyn Tool, machine: &dyn Machine) -> Result<(), String> {
    let words: Vec<&str> = step.command.iter().map(String::as_str).collect();
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    tool.run(program, arguments).map_err(|error| error.to_string())?;
    step.yields.iter().try_for_each(|(path, size)| await_size(path, *size, machine))
}

/// A new partition appears a moment after it was made.
fn await_size(path: &Path, size_bytes: u64, machine: &dyn Machine) -> Result<(), String> {
    let mut last = String::new();
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(BETWEEN_LOOKS);
        }
        match machine.look(path) {
            Ok(found) if found.size_bytes == size_bytes => return Ok(()),
            Ok(found) => last = format!("has {} bytes, not {size_bytes}", found.size_bytes),
            Err(error) => last = error,
        }
    }
    Err(format!("{}: {last}", path.display()))
}

/// What failed may have been done in part: its own undoing is named as well.
fn stopped(plan: &Plan, index: usize, reason: String) -> ApplyError {
    let done = plan.steps[..index].iter().map(|step| step.title.clone()).collect();
    let undo = plan.steps[..=index].iter().rev().flat_map(|step| step.undo.clone()).collect();
    let title = plan.steps[index].title.clone();
    ApplyError::Step { number: index + 1, title, reason, done, undo }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
