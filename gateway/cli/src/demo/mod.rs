//! `zgate demo`: the real gateway on a scratch directory with a generated
//! model, which another process reads over NFSv4.1 and compares.

mod client;
mod lun;
mod model;

pub(crate) use client::{ClientArgs, run as run_client};
pub(crate) use model::progress;

use clap::Args;
use model::Manifest;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zgate_config::{ByteSize, Config, ExportConfig};
use zgate_gateway::Running;

/// Pseudo path of the demo's export.
const PSEUDO_PATH: &str = "/models";

/// Arguments of the demo.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Size of the generated model, for example 256MiB or 4GiB
    #[arg(long, default_value = "1GiB", value_parser = parse_size)]
    size: u64,
    /// Serve this directory (read-only) instead of a generated model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Exit after verification: 0 if all checksums match
    #[arg(long)]
    once: bool,
    /// Directory in which the scratch directory is created
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Port for NFS on 127.0.0.1
    #[arg(long, default_value_t = 12_049)]
    port: u16,
    /// Port for iSCSI on 127.0.0.1; 0: any free one
    #[arg(long, default_value_t = 0)]
    iscsi_port: u16,
    /// Port for metrics and status on 127.0.0.1
    #[arg(long, default_value_t = 9_469)]
    metrics_port: u16,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Parses "256MiB", "4GiB", "1000000".
fn parse_size(text: &str) -> Result<u64, String> {
    let ByteSize(bytes) = text.parse()?;
    if bytes < 1 << 20 { Err("at least 1MiB".to_owned()) } else { Ok(bytes) }
}

/// Runs the demo. True: all checksums match.
///
/// # Errors
/// The thing, the reason and the next step.
pub(crate) fn run(args: &DemoArgs) -> io::Result<bool> {
    let scratch = scratch_dir(args.dir.as_deref())?;
    let (path, manifest, read_only) = match &args.model {
        Some(dir) => (dir.clone(), Manifest::of(dir)?, true),
        None => {
            let dir = scratch.path().join("model");
            std::fs::create_dir(&dir)?;
            (dir.clone(), Manifest::generate(&dir, args.size)?, false)
        }
    };
    let gateway = Running::start(&config(args, &path, read_only, scratch.path())?, true)?;
    let none = |what: &str| io::Error::other(format!("no {what}"));
    let address = *gateway.nfs_addresses().first().ok_or_else(|| none("listener"))?;
    let portal = gateway.portals().next().ok_or_else(|| none("iSCSI portal"))?;
    let agreed = verify(args, (address, portal), &manifest, scratch.path())?;
    if !args.once {
        explain(args, (address, portal), gateway.http_address());
        wait_for_signal()?;
    }
    gateway.stop();
    Ok(agreed)
}

fn scratch_dir(below: Option<&Path>) -> io::Result<tempfile::TempDir> {
    let builder = &mut tempfile::Builder::new();
    let builder = builder.prefix("zgate-demo-");
    match below {
        Some(dir) => builder.tempdir_in(dir).map_err(|error| {
            let hint = "; pass a directory you can write to with --dir";
            io::Error::new(error.kind(), format!("cannot use {}: {error}{hint}", dir.display()))
        }),
        None => builder.tempdir(),
    }
}

/// Returns the configuration of a gateway that is open to everyone on loopback.
fn config(args: &DemoArgs, path: &Path, read_only: bool, scratch: &Path) -> io::Result<Config> {
    let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let mut config = Config::default();
    let server = &mut config.server;
    server.state_dir = scratch.join("state");
    // The gateway makes none in an empty directory: a mount may be missing there.
    std::fs::create_dir_all(&server.state_dir)?;
    server.listen = vec![local(args.port)];
    server.metrics_listen = local(args.metrics_port);
    server.server_owner = "zgate-demo".to_owned();
    server.server_scope = "zgate-demo".to_owned();
    (server.max_connections, server.max_connections_per_client) = (256, 256);
    (server.lease_seconds, server.grace_seconds) = (90, 90);
    server.worker_threads = 8;
    server.poll_microseconds = 50;
    server.core_nice = 0;
    server.fd_cache_entries = 4096;
    server.drain_seconds = 5;
    let export = format!(
        "pseudo = \"{PSEUDO_PATH}\"\nread_only = {read_only}\ntransports = [\"tcp\"]\n\
         sync_names = false\n\
         clients = [{{ match = \"*\", access = \"rw\", squash = \"none\", \
         security = [\"sys\", \"none\"] }}]\n"
    );
    let mut export: ExportConfig = toml::from_str(&export).map_err(io::Error::other)?;
    export.path = Some(path.to_owned());
    config.exports.push(export);
    config.iscsi.listen = vec![local(args.iscsi_port)];
    config.iscsi.max_sessions = 64;
    config.iscsi.thin_warning_percent = 0;
    config.targets.push(lun::target(scratch)?);
    Ok(config)
}

/// Starts another process that reads everything back and compares.
fn verify(
    args: &DemoArgs,
    (address, portal): (SocketAddr, SocketAddr),
    manifest: &Manifest,
    scratch: &Path,
) -> io::Result<bool> {
    let list = scratch.join("manifest.json");
    std::fs::write(&list, serde_json::to_vec(manifest)?)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("demo-client")
        .args(["--portal", &portal.to_string()])
        .args(["--address", &address.to_string(), "--export", PSEUDO_PATH, "--manifest"])
        .arg(&list)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if !args.json {
        command.arg("--progress");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if args.json {
        io::stdout().write_all(&output.stdout)?;
    } else if let Ok(report) = serde_json::from_slice::<client::Report>(&output.stdout) {
        println!("{report}");
    }
    Ok(output.status.success())
}

fn explain(args: &DemoArgs, (address, portal): (SocketAddr, SocketAddr), http: SocketAddr) {
    if args.json {
        return;
    }
    let port = address.port();
    println!("\nMount it (as root):");
    println!(
        "  Linux  mount -t nfs -o vers=4.2,proto=tcp,port={port} 127.0.0.1:{PSEUDO_PATH} /mnt"
    );
    println!("  macOS  mount_nfs -o vers=4,port={port} 127.0.0.1:{PSEUDO_PATH} /tmp/models");
    println!(
        "  v3     mount -t nfs -o vers=3,nolock,port={port},mountport={port} 127.0.0.1:{PSEUDO_PATH} /mnt"
    );
    println!("iSCSI    iscsi-inq iscsi://{portal}/{}/0", lun::TARGET);
    println!("Metrics  http://{http}/metrics");
    println!("Status   http://{http}/status");
    println!("Press Ctrl-C to stop; the scratch directory is removed then.");
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) fn wait_for_signal() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            result = tokio::signal::ctrl_c() => result,
            _ = terminate.recv() => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("1073741824"), Ok(1 << 30));
        assert!(parse_size("1KiB").is_err());
        assert!(parse_size("lots").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }
}
