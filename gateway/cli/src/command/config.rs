//! `zgate config`: examines a configuration without starting anything.

use super::USUAL_CONFIG;
use clap::{Args, Subcommand};
use std::error::Error;
use std::path::{Path, PathBuf};
use zgate_config::ConfigError;

/// Subcommand of `zgate config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read and check a file
    Check(File),
    /// Print a file with all defaults
    Show(File),
    /// Show what would change, and when it takes effect
    Diff {
        /// The file in use
        old: PathBuf,
        /// The new file
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
    #[arg(default_value = USUAL_CONFIG)]
    file: PathBuf,
    /// The configuration file, as `zgate serve` takes it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl File {
    fn path(&self) -> &Path {
        self.config.as_ref().unwrap_or(&self.file)
    }
}

/// Runs the subcommand. With `--json`, the problems of the file are its output.
///
/// # Errors
/// The problems of the file.
pub(crate) fn run(command: &ConfigCommand) -> Result<bool, Box<dyn Error>> {
    let (ConfigCommand::Check(File { json, .. })
    | ConfigCommand::Show(File { json, .. })
    | ConfigCommand::Diff { json, .. }) = command;
    let problems = match answer(command) {
        Ok(()) => return Ok(true),
        Err(error) if *json => error.downcast::<ConfigError>()?.problems,
        Err(error) => return Err(error),
    };
    let answer = serde_json::json!({ "valid": false, "problems": problems });
    println!("{}", serde_json::to_string_pretty(&answer)?);
    Ok(false)
}

fn answer(command: &ConfigCommand) -> Result<(), Box<dyn Error>> {
    match command {
        ConfigCommand::Check(file) => {
            let config = zgate_config::examine(file.path(), zgate_gateway::check)?;
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
                    "{}: valid, {}, {}",
                    file.path().display(),
                    counted(config.exports.len(), "export"),
                    counted(config.targets.len(), "target")
                );
            }
        }
        ConfigCommand::Show(file) => {
            let config = zgate_config::load(file.path())?;
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
    Ok(())
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
