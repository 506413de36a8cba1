//! `zgate demo`: the real gateway on a scratch directory with a generated
//! model, which another process reads over NFSv4.1 and compares.

mod client;
mod lun;
mod model;
mod stop;

pub(crate) use client::{ClientArgs, run as run_client};
pub(crate) use model::progress;

use crate::screen::units::bytes as amount;
use clap::Args;
use model::Manifest;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use stop::Stop;
use zgate_config::{ByteSize, Config, ExportConfig};
use zgate_gateway::Running;

/// Pseudo path of the demo's export.
const PSEUDO_PATH: &str = "/models";

/// Time between two looks at the client process.
const LOOK: Duration = Duration::from_millis(50);

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

/// Runs the demo until it ends or a signal stops it; then nothing of it is left. True:
/// all checksums match.
///
/// # Errors
/// The thing, the reason and the next step.
pub(crate) fn run(args: &DemoArgs) -> io::Result<bool> {
    // First: a signal must not end the process while its files are there.
    run_until(args, &Stop::on_signals()?)
}

fn run_until(args: &DemoArgs, stop: &Stop) -> io::Result<bool> {
    let scratch = scratch_dir(args.dir.as_deref())?;
    let (path, manifest, read_only) = match &args.model {
        Some(dir) => (dir.clone(), Manifest::of(dir, stop)?, true),
        None => {
            require_space(scratch.path(), args.size)?;
            let dir = scratch.path().join("model");
            std::fs::create_dir(&dir)?;
            (dir.clone(), Manifest::generate(&dir, args.size, stop)?, false)
        }
    };
    let gateway = Running::start(&config(args, &path, read_only, scratch.path())?, true)?;
    let none = |what: &str| io::Error::other(format!("no {what}"));
    let address = *gateway.nfs_addresses().first().ok_or_else(|| none("listener"))?;
    let portal = gateway.portals().next().ok_or_else(|| none("iSCSI portal"))?;
    let agreed = verify(args, (address, portal), &manifest, scratch.path(), stop);
    if agreed.is_ok() && !args.once {
        explain(args, (address, portal), gateway.http_address());
        stop.wait();
    }
    // Before its files are removed.
    gateway.stop();
    agreed
}

/// Refuses a model that the file system of the scratch directory has no room for.
fn require_space(scratch: &Path, size: u64) -> io::Result<()> {
    let space = rustix::fs::statvfs(scratch)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = size.saturating_add(lun::MOVED_BYTES);
    if needed <= free {
        return Ok(());
    }
    let reason = format!(
        "the model and the disk need {}, and {} has {} free; choose a smaller --size, or with \
         --dir a directory that has more space",
        amount(needed),
        scratch.parent().unwrap_or(scratch).display(),
        amount(free)
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, reason))
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
    stop: &Stop,
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
    let (said, succeeded) = output(command.stderr(Stdio::inherit()).spawn()?, stop)?;
    if args.json {
        io::stdout().write_all(&said)?;
    } else if let Ok(report) = serde_json::from_slice::<client::Report>(&said) {
        println!("{report}");
    }
    Ok(succeeded)
}

/// Waits for a process; returns its output and whether it succeeded. It is ended once
/// the demo is to stop.
fn output(mut process: Child, stop: &Stop) -> io::Result<(Vec<u8>, bool)> {
    let mut pipe = process.stdout.take();
    // It may say more than a pipe holds.
    let reading = std::thread::spawn(move || {
        let mut said = Vec::new();
        pipe.as_mut().map_or(Ok(0), |pipe| pipe.read_to_end(&mut said)).map(|_| said)
    });
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if let Err(stopped) = stop.check() {
            process.kill()?;
            process.wait()?;
            return Err(stopped);
        }
        stop.wait_at_most(LOOK);
    };
    let said = reading.join().map_err(|_| io::Error::other("the client's output is lost"))??;
    if !status.success() {
        // Ctrl-C ends both processes, and this one may hear of the other's end first.
        stop.wait_at_most(LOOK);
        stop.check()?;
    }
    Ok((said, status.success()))
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

    fn args(size: u64, dir: &Path) -> DemoArgs {
        DemoArgs {
            size,
            model: None,
            once: true,
            dir: Some(dir.to_owned()),
            port: 0,
            iscsi_port: 0,
            metrics_port: 0,
            json: true,
        }
    }

    #[test]
    fn a_demo_that_is_stopped_while_it_writes_the_model_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        stop.ask();
        let error = run_until(&args(1 << 20, dir.path()), &stop).unwrap_err();
        assert!(error.to_string().starts_with("stopped by a signal"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // Nor while it reads a model of the user, which stays.
        let model = tempfile::tempdir().unwrap();
        std::fs::write(model.path().join("a"), b"a").unwrap();
        let of_user =
            DemoArgs { model: Some(model.path().to_owned()), ..args(1 << 20, dir.path()) };
        let error = run_until(&of_user, &stop).unwrap_err();
        assert!(error.to_string().starts_with("stopped by a signal"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(model.path().join("a").exists());
    }

    #[test]
    fn a_client_process_ends_with_the_demo() {
        let stop = Stop::default();
        let process = |command: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).stdout(Stdio::piped()).spawn().unwrap()
        };
        assert_eq!(output(process("echo said"), &stop).unwrap(), (b"said\n".to_vec(), true));
        assert!(!output(process("exit 1"), &stop).unwrap().1);
        stop.ask();
        // The second one has ended before anybody looks. Not by SIGINT, which a shell's
        // background processes ignore.
        for command in ["exec sleep 1000", "kill -TERM $$"] {
            let error = output(process(command), &stop).unwrap_err();
            assert!(error.to_string().starts_with("stopped by a signal"), "{error}");
        }
    }

    #[test]
    fn a_model_larger_than_the_free_space_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = run_until(&args(1 << 62, dir.path()), &Stop::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let said = error.to_string();
        let needed = amount((1 << 62) + lun::MOVED_BYTES);
        assert!(said.contains(&format!("need {needed}, and ")), "{said}");
        assert!(said.contains(&format!("and {} has ", dir.path().display())), "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
