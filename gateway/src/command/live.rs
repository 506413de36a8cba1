//! Commands to a running gateway.

use crate::admin::{Request, ask};
use clap::Args;
use std::path::PathBuf;

/// Which gateway.
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
    /// The admin socket.
    pub(super) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Whether JSON is wanted.
    pub(super) fn json(&self) -> bool {
        self.json
    }
}

/// Which export to mount or which target to attach, and how.
#[derive(Args, Debug)]
pub(crate) struct HintArgs {
    /// Pseudo path of an export, or name of an iSCSI target
    export: String,
    /// How clients name this server
    #[arg(long, default_value = "SERVER")]
    server: String,
    #[command(flatten)]
    live: LiveArgs,
}

/// Asks and prints.
///
/// # Errors
/// Naming the socket and the next step.
pub(crate) fn run(args: &LiveArgs, request: &Request) -> Result<bool, Box<dyn std::error::Error>> {
    let value = ask(&args.socket, request)?;
    show(args, &value)?;
    Ok(true)
}

/// Prints an answer.
///
/// # Errors
/// When it cannot be written as JSON.
pub(super) fn show(args: &LiveArgs, value: &serde_json::Value) -> serde_json::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        print_value(value, 0);
    }
    Ok(())
}

/// What a thing is called comes first.
const NAMES: [&str; 6] = ["pseudo_path", "name", "target", "match", "key", "id"];

/// Key and value a line, nested things indented.
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

/// A list of plain values fits on a line.
fn words(value: &serde_json::Value) -> Option<String> {
    let items = value.as_array().filter(|items| !items.is_empty())?;
    let nested = items.iter().any(|item| item.is_object() || item.is_array());
    (!nested).then(|| items.iter().map(plain).collect::<Vec<_>>().join(" "))
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The port clients reach NFS at.
fn nfs_port(live: &LiveArgs) -> Result<u16, Box<dyn std::error::Error>> {
    let status = ask(&live.socket, &Request::Status)?;
    let address = status["nfs_addresses"][0].as_str().unwrap_or_default();
    let port = address.parse::<std::net::SocketAddr>().map(|address| address.port());
    port.map_err(|_| "the gateway does not listen for NFS".into())
}

/// Prints the lines that mount an export.
///
/// # Errors
/// When there is no such export.
pub(crate) fn mount_hint(args: &HintArgs) -> Result<bool, Box<dyn std::error::Error>> {
    if ["iqn.", "eui.", "naa."].iter().any(|kind| args.export.starts_with(kind)) {
        return super::block::attach_hint(&args.export, &args.server, &args.live);
    }
    let exports = ask(&args.live.socket, &Request::Exports)?;
    let known = exports.as_array().into_iter().flatten();
    let found = known.into_iter().find(|export| export["pseudo_path"] == args.export.as_str());
    let Some(found) = found else {
        return Err(
            format!("there is no export {}; `zgate exports` lists them", args.export).into()
        );
    };
    let versions: Vec<_> =
        found["versions"].as_array().into_iter().flatten().filter_map(|v| v.as_str()).collect();
    let lines = hints(&args.export, &args.server, nfs_port(&args.live)?, &versions);
    let warning = found["dataset"]["warning"].as_str();
    if args.live.json {
        let mut lines: serde_json::Map<_, _> =
            lines.into_iter().map(|(kind, line)| (kind.to_owned(), line.into())).collect();
        lines.extend(warning.map(|warning| ("warning".to_owned(), warning.into())));
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        for (kind, line) in lines {
            let kind = match kind {
                "linux" => "Linux",
                "macos" => "macOS",
                _ => "NFSv3",
            };
            println!("{kind}  {line}");
        }
        if let Some(warning) = warning {
            println!("note   {warning}");
        }
    }
    Ok(true)
}

/// The lines for the versions an export is offered over.
fn hints(export: &str, server: &str, port: u16, versions: &[&str]) -> Vec<(&'static str, String)> {
    // The usual port is the clients' default for version 4, which asks nobody.
    let named = if port == 2049 { String::new() } else { format!(",port={port}") };
    let three = versions.contains(&"3");
    let mut lines = Vec::new();
    let newest = ["4.2", "4.1", "4.0"].into_iter().find(|version| versions.contains(version));
    if let Some(newest) = newest {
        let options = format!("vers={newest},proto=tcp,nconnect=4,hard{named}");
        lines.push(("linux", format!("mount -t nfs -o {options} {server}:{export} /mnt")));
    }
    // macOS speaks 4.0 of version 4.
    let macos = match (versions.contains(&"4.0"), three) {
        (true, _) => Some(format!("vers=4,resvport{named}")),
        (false, true) => Some(format!("vers=3,tcp,resvport,nolocks,port={port},mountport={port}")),
        (false, false) => None,
    };
    if let Some(options) = macos {
        lines.push(("macos", format!("mount_nfs -o {options} {server}:{export} /tmp/mnt")));
    }
    if three {
        let options =
            format!("vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock");
        lines.push(("nfsv3", format!("mount -t nfs -o {options} {server}:{export} /mnt")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_are_offered_are_hinted_at() {
        let kinds = |versions: &[&str]| {
            let lines = hints("/a", "nas", 2049, versions);
            lines.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&["3", "4.0", "4.1", "4.2"]), ["linux", "macos", "nfsv3"]);
        assert_eq!(kinds(&["4.1"]), ["linux"]);
        assert_eq!(kinds(&["3"]), ["macos", "nfsv3"]);
        let lines = hints("/a", "nas", 20490, &["4.0", "4.1"]);
        assert!(lines[0].1.contains("vers=4.1,") && lines[0].1.contains(",port=20490 nas:/a"));
        let three = hints("/a", "nas", 2049, &["3"]);
        assert!(three[0].1.contains("mountport=2049"));
    }
}
