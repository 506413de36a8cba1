//! `zgate config`: examines a configuration without starting anything.

use super::{USUAL_CONFIG, problems};
use clap::{Args, Subcommand};
use std::error::Error;
use std::path::{Path, PathBuf};
use zgate_config::{Change, Config, ConfigError, ConfigFiles, Notices};

/// Subcommand of `zgate config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read and check a file and those of conf.d; what keeps the gateway from starting is
    /// an error, all else a warning
    Check(CheckArgs),
    /// Print the configuration with all defaults, and with what conf.d adds
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

/// Arguments of `zgate config check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    file: File,
    /// Absent paths, devices, host names and addresses are errors, as for
    /// `zgate serve --strict`; so are certificates out of date and unknown authorities
    #[arg(long)]
    strict: bool,
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
    let (ConfigCommand::Check(CheckArgs { file: File { json, .. }, .. })
    | ConfigCommand::Show(File { json, .. })
    | ConfigCommand::Diff { json, .. }) = command;
    let mut warnings = Notices::default();
    let problems = match answer(command, &mut warnings) {
        Ok(()) => return Ok(true),
        Err(error) if *json => error.downcast::<ConfigError>()?.problems,
        Err(error) => {
            problems::print_warnings(&warnings);
            return Err(error);
        }
    };
    let mut answer = serde_json::json!({ "valid": false, "problems": problems });
    if matches!(command, ConfigCommand::Check(_)) {
        answer["warnings"] = serde_json::to_value(&warnings.found)?;
    }
    println!("{}", serde_json::to_string_pretty(&answer)?);
    Ok(false)
}

/// Examines a file; returns how many items are absent, too. What is absent or in
/// doubt is among `warnings`, or with `--strict` an error; targets without initiators and
/// weak secrets are no more than warnings.
fn check(args: &CheckArgs, warnings: &mut Notices) -> Result<(Config, usize), ConfigError> {
    let (mut absent, mut doubtful, mut awaited) = (Vec::new(), Vec::new(), None);
    let mut access = Vec::new();
    let files = ConfigFiles::read(args.file.path())?;
    let examined = files.check(|config| {
        let mut wrong = zgate_gateway::check(config);
        absent = zgate_gateway::absent_now(config);
        doubtful = zgate_gateway::doubtful(config);
        access = zgate_gateway::access_doubts(config);
        awaited = zgate_gateway::missing_state_dir(config);
        if args.strict {
            wrong.extend(awaited.take());
            wrong.append(&mut absent);
            wrong.append(&mut doubtful);
        }
        wrong
    });
    for item in &mut absent {
        item.problem += "; the gateway starts without it and serves it once it is there";
    }
    for item in &mut doubtful {
        item.problem += "; the gateway starts with it";
    }
    let absent_count = absent.len();
    absent.append(&mut doubtful);
    // Of a value that could not be read, nothing is known.
    if examined.is_ok() {
        absent.append(&mut access);
    }
    absent.extend(awaited);
    *warnings = files.notices(absent);
    Ok((examined?, absent_count))
}

fn answer(command: &ConfigCommand, warnings: &mut Notices) -> Result<(), Box<dyn Error>> {
    match command {
        ConfigCommand::Check(args) => {
            let (config, absent) = check(args, warnings)?;
            let file = &args.file;
            if file.json {
                println!(
                    "{}",
                    serde_json::json!({
                        "valid": true,
                        "exports": config.exports.len(),
                        "targets": config.targets.len(),
                        "warnings": warnings.found,
                    })
                );
            } else {
                problems::print_warnings(warnings);
                println!(
                    "{}: valid, {}, {}{}",
                    file.path().display(),
                    counted(config.exports.len(), "export"),
                    counted(config.targets.len(), "target"),
                    if absent > 0 { format!(", {absent} absent now") } else { String::new() }
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
            // The files of the directory stay when the new one takes the place of
            // the old one.
            let new = ConfigFiles::read_as(new, old)?.check(|_| Vec::new())?;
            let changes = zgate_config::diff(&zgate_config::load(old)?, &new);
            if *json {
                println!("{}", serde_json::to_string_pretty(&changes)?);
            } else {
                changes.iter().for_each(|change| println!("{}", line(change)));
                println!("{}", counted(changes.len(), "change"));
            }
        }
    }
    Ok(())
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns one line about a key that differs.
fn line(change: &Change) -> String {
    let Change { key, old, new, effect } = change;
    let value = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    format!("{key}: {} -> {} ({effect})", value(old), value(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_absent_had_no_value() {
        let parse = |text: &str| zgate_config::parse(text, Path::new("x")).unwrap();
        let new = parse("[server]\nid_domain = \"example.org\"\n");
        let lines: Vec<_> = zgate_config::diff(&parse(""), &new).iter().map(line).collect();
        assert_eq!(lines, ["server.id_domain: none -> \"example.org\" (live)"]);
        assert_eq!(counted(lines.len(), "change"), "1 change");
    }
}
