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
    if args.json {
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print_value(&value, 0);
    }
    Ok(true)
}

/// Key and value a line, nested things indented.
fn print_value(value: &serde_json::Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                if value.is_object() || value.is_array() {
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
    let known = exports.as_array().is_some_and(|exports| {
        exports.iter().any(|export| export["pseudo_path"] == args.export.as_str())
    });
    if !known {
        return Err(
            format!("there is no export {}; `zgate exports` lists them", args.export).into()
        );
    }
    let port = nfs_port(&args.live)?;
    let (server, export) = (&args.server, &args.export);
    // The usual port is the clients' default for version 4, which asks nobody.
    let named = if port == 2049 { String::new() } else { format!(",port={port}") };
    let linux =
        format!("mount -t nfs -o vers=4.2,proto=tcp,nconnect=4,hard{named} {server}:{export} /mnt");
    let macos = format!("mount_nfs -o vers=4,resvport{named} {server}:{export} /tmp/mnt");
    let v3 = format!(
        "mount -t nfs -o vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock \
         {server}:{export} /mnt"
    );
    if args.live.json {
        let lines = serde_json::json!({ "linux": linux, "macos": macos, "nfsv3": v3 });
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        println!("Linux  {linux}\nmacOS  {macos}\nNFSv3  {v3}");
    }
    Ok(true)
}
