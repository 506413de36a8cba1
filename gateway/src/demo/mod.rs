//! `zgate demo`: the real gateway on a scratch directory, a model written to
//! it, read back by another process over NFSv4.1, and compared.

mod client;
mod lun;
mod model;

pub(crate) use client::{ClientArgs, run as run_client};
pub(crate) use model::progress;

use crate::lifecycle::run::{ExportSettings, Gateway, Settings};
use crate::observe::http;
use crate::serve::connections::ConnectionLimits;
use clap::Args;
use model::Manifest;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use zgate_nfs::namespace::ClientRule;
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::v4::server::Identity;
use zgate_nfs::v4::state::grace::GracePeriod;

/// Where the demo hangs its export.
const PSEUDO_PATH: &str = "/models";

/// What the demo can be told.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Size of the generated model, for example 256MiB or 4GiB
    #[arg(long, default_value = "1GiB", value_parser = parse_size)]
    size: u64,
    /// Serve this directory (read-only) instead of a generated model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Exit after verification: 0 when every checksum agrees
    #[arg(long)]
    once: bool,
    /// Where the scratch directory is made
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

/// Reads "256MiB", "4GiB", "1000000".
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        other => return Err(format!("unknown unit {other}; use KiB, MiB or GiB")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no size; try 512MiB"))?;
    let bytes = number.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))?;
    if bytes < 1 << 20 { Err("at least 1MiB".to_owned()) } else { Ok(bytes) }
}

/// Runs the demo. True: every checksum agreed.
///
/// # Errors
/// Naming the thing, the reason and the next step.
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
    let gateway = start(args, &path, read_only, scratch.path())?;
    let address = *gateway.addresses.first().ok_or_else(|| io::Error::other("no listener"))?;
    let metrics = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.metrics_port);
    let http = http::start(metrics, gateway.shared.clone())?;
    let portal = gateway
        .shared
        .block
        .portals()
        .first()
        .ok_or_else(|| io::Error::other("no iSCSI portal"))?
        .address;
    let agreed = verify(args, (address, portal), &manifest, scratch.path())?;
    if !args.once {
        explain(args, (address, portal), http.address);
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
            let hint = "; give a directory you may write to with --dir";
            io::Error::new(error.kind(), format!("cannot use {}: {error}{hint}", dir.display()))
        }),
        None => builder.tempdir(),
    }
}

fn start(args: &DemoArgs, path: &Path, read_only: bool, scratch: &Path) -> io::Result<Gateway> {
    let settings = Settings {
        rdma: Default::default(),
        buffer_bytes: 0,
        fair_shares: true,
        state_dir: scratch.join("state"),
        nfs: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port)],
        interfaces: Vec::new(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        lease_seconds: 90,
        grace: GracePeriod { seconds: 90, max_seconds: 270 },
        identity: Identity {
            owner_major: b"zgate-demo".to_vec(),
            owner_minor: 0,
            scope: b"zgate-demo".to_vec(),
        },
        connections: ConnectionLimits { total: 256, per_client: 256 },
        engine: zgate_io::EngineChoice::Auto,
        worker_threads: 8,
        poll_microseconds: 50,
        core_nice: 0,
        fd_cache_entries: 4096,
        drain: Duration::from_secs(5),
    };
    let export = ExportSettings {
        path: path.to_owned(),
        pseudo_path: PSEUDO_PATH.to_owned(),
        id: None,
        clients: vec![ClientRule::open_to_all()],
        read_only,
        max_transfer_bytes: 1 << 20,
        versions: Versions::ALL,
        tcp: true,
        rdma: false,
        delegations: true,
        delegated_times: false,
        sync_names: false,
        reserved_port_only: false,
        snapshots_visible: false,
        direct_io: zgate_posix::DirectIo::Never,
        dataset: None,
    };
    let portal = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.iscsi_port);
    Gateway::start(&settings, &[export], &lun::settings(scratch, portal)?, &[])
}

/// Another process reads everything back and compares.
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
