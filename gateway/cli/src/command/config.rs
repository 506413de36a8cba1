//! `zgate config`: examines a configuration without starting anything.

use super::USUAL_CONFIG;
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
    #[arg(long, value_name = "FILE", default_value = USUAL_CONFIG)]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The faults of the file.
pub(crate) fn run(command: &ConfigCommand) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
        ConfigCommand::Check(file) => {
            let config = zgate_config::load(&file.config)?;
            zgate_gateway::check(&config)?;
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
