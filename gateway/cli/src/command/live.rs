//! Commands to a running gateway.

use crate::screen::Output;
use crate::screen::access::AccessRules;
use crate::screen::answer::Status;
use crate::screen::clients::Clients;
use crate::screen::exports::{AbsentExport, Exports};
use crate::screen::reload::Reloaded;
use crate::screen::sessions::Sessions;
use crate::screen::targets::Targets;
use clap::Args;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use zgate_gateway::admin::{MAX_ALIVE_SECONDS, Request, ask, silent_cores};

/// Arguments that name a running gateway.
#[derive(Args, Debug)]
pub(crate) struct LiveArgs {
    /// The gateway's admin socket
    #[arg(long, value_name = "PATH", default_value = "/run/zgate/admin.sock")]
    socket: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LiveArgs {
    /// Returns the admin socket.
    pub(super) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Returns whether JSON is requested.
    pub(super) fn json(&self) -> bool {
        self.json
    }
}

/// Sends the request and prints the answer.
///
/// # Errors
/// The socket and the next step.
pub(crate) fn run(args: &LiveArgs, request: &Request) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, request)?;
    show(args, &value)?;
    Ok(true)
}

/// Prints an answer as JSON, or as the text that `text` makes of it. An answer
/// of a gateway of another version, which it does not know, is printed as it is.
pub(super) fn show_as<T: DeserializeOwned>(
    args: &LiveArgs,
    value: &serde_json::Value,
    text: impl FnOnce(T, Output) -> String,
) -> serde_json::Result<()> {
    match serde_json::from_value(value.clone()) {
        Ok(answer) if !args.json => print!("{}", text(answer, Output::standard())),
        _ => show(args, value)?,
    }
    Ok(())
}

/// Arguments of `zgate status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Print nothing; fail unless the gateway answers and all its cores do
    #[arg(long, conflicts_with = "json")]
    alive: bool,
    /// Seconds in which the cores must answer, with --alive; up to 600
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "alive",
        default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=MAX_ALIVE_SECONDS)
    )]
    within: u64,
    #[command(flatten)]
    live: LiveArgs,
}

/// Prints health, throughput and what there is.
///
/// # Errors
/// The socket and the next step; with `--alive`, the cores that do not answer.
pub(crate) fn status(args: &StatusArgs) -> Result<bool, Box<dyn std::error::Error>> {
    if args.alive {
        let silent = silent_cores(&args.live.socket, args.within)?;
        if silent.is_empty() {
            return Ok(true);
        }
        let silent: Vec<_> = silent.iter().map(u64::to_string).collect();
        return Err(format!("cores that do not answer: {}", silent.join(" ")).into());
    }
    let value = ask(&args.live.socket, &Request::Status)?;
    show_as(&args.live, &value, |status: Status, output| status.text(output))?;
    Ok(true)
}

/// Prints the exports, as text also those that are absent.
///
/// # Errors
/// The socket and the next step.
pub(crate) fn exports(args: &LiveArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, &Request::Exports)?;
    let absent = if args.json {
        Vec::new()
    } else {
        AbsentExport::all(&ask(&args.socket, &Request::Status)?)
    };
    show_as(args, &value, |exports: Exports, output| exports.text(&absent, output))?;
    Ok(true)
}

/// Prints the NFS clients.
///
/// # Errors
/// The socket and the next step.
pub(crate) fn clients(args: &LiveArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, &Request::Clients)?;
    show_as(args, &value, |clients: Clients, output| clients.text(output))?;
    Ok(true)
}

/// Prints the iSCSI targets.
///
/// # Errors
/// The socket and the next step.
pub(crate) fn targets(args: &LiveArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, &Request::Targets)?;
    show_as(args, &value, |targets: Targets, output| targets.text(output))?;
    Ok(true)
}

/// Prints the iSCSI sessions.
///
/// # Errors
/// The socket and the next step.
pub(crate) fn sessions(args: &LiveArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, &Request::Sessions)?;
    show_as(args, &value, |sessions: Sessions, output| sessions.text(output))?;
    Ok(true)
}

/// Prints the access rules of the iSCSI targets.
///
/// # Errors
/// The socket and the next step.
pub(super) fn access(args: &LiveArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, &Request::Acl)?;
    show_as(args, &value, |rules: AccessRules, output| rules.text(output))?;
    Ok(true)
}

/// Arguments of `zgate reload`.
#[derive(Args, Debug)]
pub(crate) struct ReloadArgs {
    /// Also take away what clients and initiators use
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    live: LiveArgs,
}

/// Makes the gateway reload its configuration; prints what has changed.
///
/// # Errors
/// The gateway's error.
pub(crate) fn reload(args: &ReloadArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.live.socket, &Request::Reload { force: args.force })?;
    show_as(&args.live, &value, |reloaded: Reloaded, output| reloaded.text(output))?;
    Ok(true)
}

/// Arguments of `zgate handover`.
#[derive(Args, Debug)]
pub(crate) struct HandoverArgs {
    /// Seconds after which clients are served again, if the gateway has not been
    /// stopped; up to 600
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    seconds: u64,
    /// Serve clients again at once
    #[arg(long, conflicts_with = "seconds")]
    cancel: bool,
    #[command(flatten)]
    live: LiveArgs,
}

/// Makes the gateway finish what runs and keep its clients waiting; returns whether
/// everything ended in time.
///
/// # Errors
/// The gateway's error.
pub(crate) fn handover(args: &HandoverArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let seconds = if args.cancel { 0 } else { args.seconds };
    let value = ask(&args.live.socket, &Request::Handover { seconds })?;
    show(&args.live, &value)?;
    Ok(value["unfinished"] == 0 && value["undelivered"] == 0)
}

/// Prints an answer.
///
/// # Errors
/// If it cannot be written as JSON.
pub(super) fn show(args: &LiveArgs, value: &serde_json::Value) -> serde_json::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        print_value(value, 0);
    }
    Ok(())
}

/// Keys that name an object; printed first.
const NAMES: [&str; 6] = ["pseudo_path", "name", "target", "match", "key", "id"];

/// Prints one key and value per line, with nested values indented.
fn print_value(value: &serde_json::Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        serde_json::Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| NAMES.iter().position(|name| name == key).unwrap_or(9));
            for (key, value) in fields {
                if let Some(words) = words(value) {
                    println!("{indent}{key}: {words}");
                } else if value.is_object() || value.is_array() {
                    println!("{indent}{key}:");
                    print_value(value, depth + 1);
                } else {
                    println!("{indent}{key}: {}", plain(value));
                }
            }
        }
        serde_json::Value::Array(items) => {
            if items.is_empty() {
                println!("{indent}none");
            }
            for (index, item) in items.iter().enumerate() {
                if index > 0 && item.is_object() {
                    println!();
                }
                print_value(item, depth);
            }
        }
        other => println!("{indent}{}", plain(other)),
    }
}

/// Formats a list of plain values on one line.
fn words(value: &serde_json::Value) -> Option<String> {
    let items = value.as_array().filter(|items| !items.is_empty())?;
    let nested = items.iter().any(|item| item.is_object() || item.is_array());
    (!nested).then(|| items.iter().map(plain).collect::<Vec<_>>().join(" "))
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
