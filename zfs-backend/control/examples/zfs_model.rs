//! `zfs` and `zpool` as programs over the model of ZFS, for tests of a whole gateway
//! on a machine without ZFS. Zvols have their content in files.
//!
//! `ZFS_MODEL` names a directory. `pool` in it has the name of the pool, and
//! `datasets` those that exist from the beginning; `journal` gets the commands that
//! changed something, and `zvol/NAME` is the content of a zvol or snapshot.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use zgate_control::volume::model::Model;
use zgate_control::{Tool, ToolError};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let program = arguments[0].rsplit('/').next().unwrap_or_default().to_owned();
    let dir = PathBuf::from(std::env::var_os("ZFS_MODEL").unwrap_or_default());
    let (text, failed) = match run(&dir, &program, &arguments[1..]) {
        Ok(ended) => ended,
        Err(error) => return fail(&format!("zfs_model: {error}")),
    };
    let printed = io::stdout().write_all(text.as_bytes());
    match failed {
        None if printed.is_ok() => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
        Some(ToolError::Failed { said, .. }) => fail(&said),
        Some(error) => fail(&error.to_string()),
    }
}

fn fail(said: &str) -> ExitCode {
    // There is nobody else to tell.
    let _ = writeln!(io::stderr(), "{said}");
    ExitCode::FAILURE
}

/// Returns what a program prints, and its failure.
fn run(dir: &Path, program: &str, arguments: &[String]) -> io::Result<(String, Option<ToolError>)> {
    let pool = fs::read_to_string(dir.join("pool"))?;
    if program == "zpool" {
        if arguments.first().is_some_and(|one| one == "events") {
            // It follows events, of which there are none.
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        return Ok((pool, None));
    }
    let lock = File::create(dir.join("lock"))?;
    lock.lock()?;
    let datasets = fs::read_to_string(dir.join("datasets"))?;
    let model = Model::with(&datasets.lines().collect::<Vec<_>>());
    let journal = dir.join("journal");
    let earlier = fs::read_to_string(&journal).unwrap_or_default();
    for line in earlier.lines() {
        let arguments: Vec<&str> = line.split('\t').collect();
        if let Err(error) = model.run("zfs", &arguments) {
            return Err(io::Error::other(format!("{line}: {error}")));
        }
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let before = model.names();
    let (text, failed) = model.run_in_part("zfs", &arguments);
    if failed.is_none() && !matches!(arguments.first(), Some(&("list" | "get" | "program"))) {
        let mut journal = File::options().create(true).append(true).open(&journal)?;
        journal.write_all((arguments.join("\t") + "\n").as_bytes())?;
        content(&dir.join("zvol"), &model, &before, &arguments)?;
    }
    Ok((text, failed))
}

/// Brings the files in line with the names: what is new gets the content of its
/// origin, what is gone is removed.
fn content(dir: &Path, model: &Model, before: &[String], arguments: &[&str]) -> io::Result<()> {
    let now = model.names();
    let new: Vec<_> = now.iter().filter(|name| !before.contains(name)).collect();
    let gone: Vec<_> = before.iter().filter(|name| !now.contains(name)).collect();
    match arguments {
        ["rename", from, to] => rename(&dir.join(from), &dir.join(to))?,
        ["promote", ..] => {
            // Snapshots have moved from the origin to its clone.
            for from in &gone {
                let part = from.split('@').next_back();
                if let Some(to) = new.iter().find(|to| to.split('@').next_back() == part) {
                    rename(&dir.join(from), &dir.join(to))?;
                }
            }
        }
        ["clone", .., from, to] => copy(&dir.join(from), &dir.join(to))?,
        ["snapshot", ..] => {
            for name in new {
                let of = name.split('@').next().unwrap_or_default();
                copy(&dir.join(of), &dir.join(name))?;
            }
        }
        ["rollback", to] => {
            let of = to.split('@').next().unwrap_or_default();
            copy(&dir.join(to), &dir.join(of))?;
        }
        _ => {}
    }
    let last = arguments.last().copied().unwrap_or_default();
    if let Some(bytes) = model.volume_bytes(last) {
        let path = dir.join(last);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        File::options().create(true).append(true).open(path)?.set_len(bytes)?;
    }
    for name in gone {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if from.exists() { fs::rename(from, to) } else { Ok(()) }
}

/// Copies the content, and keeps the file of the destination: it may be open.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.exists() {
        return Ok(());
    }
    let status = Command::new("cp").arg("--sparse=always").arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("cp failed")) }
}
