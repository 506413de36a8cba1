//! `zgate config`: looking at a configuration without starting anything.

use clap::{Args, Subcommand};
use std::io;
use std::path::PathBuf;

/// What to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read and check a file
    Check(File),
    /// Print a file with all defaults
    Show(File),
    /// What would change, and when it takes effect
    Diff {
        /// The file in use
        old: PathBuf,
        /// The file to come
        new: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A configuration file.
#[derive(Args, Debug)]
pub(crate) struct File {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/zgate/zgate.toml")]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Exported directories must be there, and the gateway's user must be able to
/// look into them.
pub(super) fn check_directories(config: &zgate_config::Config) -> io::Result<()> {
    for export in &config.exports {
        let Some(path) = &export.path else { continue };
        std::fs::read_dir(path).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "create or mount it, or correct the path",
                io::ErrorKind::NotADirectory => "export the directory it lies in",
                io::ErrorKind::PermissionDenied => "run as a user who may read it",
                _ => "look at what it lies on",
            };
            let reason =
                format!("export {}: path {}: {error}; {hint}", export.pseudo, path.display());
            io::Error::new(error.kind(), reason)
        })?;
    }
    Ok(())
}

/// Runs it.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn run(command: &ConfigCommand) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
        ConfigCommand::Check(file) => {
            let config = zgate_config::load(&file.config)?;
            crate::follow::plan::Plan::of(&config)?;
            check_directories(&config)?;
            if file.json {
                println!(
                    "{}",
                    serde_json::json!({
                        "valid": true,
                        "exports": config.exports.len(),
                        "targets": config.targets.len(),
                    })
                );
            } else {
                println!(
                    "{}: valid, {} exports, {} targets",
                    file.config.display(),
                    config.exports.len(),
                    config.targets.len()
                );
            }
        }
        ConfigCommand::Show(file) => {
            let config = zgate_config::load(&file.config)?;
            if file.json {
                println!("{}", serde_json::to_string_pretty(&config)?);
            } else {
                print!("{}", toml::to_string(&config)?);
            }
        }
        ConfigCommand::Diff { old, new, json } => {
            let changes = zgate_config::diff(&zgate_config::load(old)?, &zgate_config::load(new)?);
            if *json {
                println!("{}", serde_json::to_string_pretty(&changes)?);
            } else {
                for change in &changes {
                    println!(
                        "{}: {} -> {} ({})",
                        change.key, change.old, change.new, change.effect
                    );
                }
                println!("{} changes", changes.len());
            }
        }
    }
    Ok(true)
}
