//! Execution of a plan: only the plan whose hash was repeated, only on the
//! disks it describes, and only if they are empty.

use super::machine::{Machine, signatures};
use super::plan::{Plan, Step};
use crate::tool::Tool;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Number of checks for a new partition, and the time between them.
const LOOKS: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Progress of an execution.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A step begins: its number from 1, and the number of steps.
    Begins(usize, usize, &'a Step),
    /// A step is done.
    Done(usize, usize, &'a Step),
}

/// Reason for which a pool was not created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The repeated hash is not the plan's.
    #[error("refused: the plan's hash is {is}, not {said}; run `zgate pool plan` again")]
    Hash {
        /// Hash of this plan.
        is: String,
        /// Hash that was repeated.
        said: String,
    },
    /// The disks are not those of the plan, or not empty. Nothing was done.
    #[error("refused, nothing was done:\n  {}", .0.join("\n  "))]
    Machine(Vec<String>),
    /// A step failed; the steps before it are done.
    #[error("step {number}, {title}, failed: {reason}")]
    Step {
        /// Number of the step, from 1.
        number: usize,
        /// Title of the step.
        title: String,
        /// Error of the command.
        reason: String,
        /// Titles of the steps that are done.
        done: Vec<String>,
        /// Commands that undo them, in order.
        undo: Vec<String>,
    },
}

/// Executes a plan.
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
        Ok(_) => found.push(format!("pool {} exists already", plan.pool)),
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
            wrong("is not a whole disk".to_owned());
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
            Err(error) => wrong(format!("cannot tell whether it is empty: {error}")),
        }
    }
    if plan.files {
        // Partitions of a file are files beside it: none of them may exist.
        for (path, _) in plan.steps.iter().flat_map(|step| &step.yields) {
            if path.symlink_metadata().is_ok() {
                found.push(format!("{} exists already", path.display()));
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

/// Waits for a new partition, which appears a moment after it was created.
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

/// Builds the error of a failed step. The step may be done in part: its own
/// undo commands are listed as well.
fn stopped(plan: &Plan, index: usize, reason: String) -> ApplyError {
    let done = plan.steps[..index].iter().map(|step| step.title.clone()).collect();
    let undo = plan.steps[..=index].iter().rev().flat_map(|step| step.undo.clone()).collect();
    let title = plan.steps[index].title.clone();
    ApplyError::Step { number: index + 1, title, reason, done, undo }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
