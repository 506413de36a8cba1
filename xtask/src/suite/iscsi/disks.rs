//! A gateway with the disks that the suites test.

use crate::servers::scratch::run as succeed;
use crate::servers::{ServerProcess, zgate};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Target that every initiator may use.
pub(crate) const OPEN: &str = "iqn.2026-11.test.zgate:open";
/// Target that requires CHAP.
pub(crate) const GUARDED: &str = "iqn.2026-11.test.zgate:guarded";
/// Target that only one initiator may use.
pub(crate) const NAMED: &str = "iqn.2026-11.test.zgate:named";
/// Name of that initiator.
pub(crate) const FRIEND: &str = "iqn.2026-11.test.zgate:friend";
/// Size of a tested disk, in bytes.
pub(crate) const DISK_BYTES: u64 = 1 << 30;
/// Size of the other disks, in bytes.
const SMALL_BYTES: u64 = 64 << 20;

/// Storage of the tested disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Files.
    File,
    /// Loop devices over files.
    Loop,
}

/// Transport of a suite, which itself speaks TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP to the gateway.
    Tcp,
    /// TCP to a bridge, and iSER on the emulated fabric from there.
    Iser,
}

/// LUNs of the open target's disks.
pub(crate) mod lun {
    /// Physical blocks of 4096 bytes.
    pub(crate) const LARGE_PHYSICAL: u16 = 0;
    /// Physical blocks of 512 bytes.
    pub(crate) const SMALL_PHYSICAL: u16 = 1;
    /// Read-only disk.
    pub(crate) const READ_ONLY: u16 = 2;
}

/// A loop device, removed on drop.
#[derive(Debug)]
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(file: &Path) -> io::Result<Self> {
        let shown = succeed(Command::new("losetup").args(["-f", "--show"]).arg(file))?;
        Ok(Self(PathBuf::from(shown.trim())))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A server that still uses it releases it when it ends.
        let _ = succeed(Command::new("losetup").arg("-d").arg(&self.0));
    }
}

/// A running gateway and its disks.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) server: ServerProcess,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) admin: PathBuf,
    pub(crate) binary: PathBuf,
    /// Address for the suites, if it is not the gateway itself.
    bridge: Option<SocketAddr>,
    metrics: SocketAddr,
    _loops: Vec<LoopDevice>,
}

impl Rig {
    /// Starts the gateway.
    ///
    /// # Errors
    /// Its log, if it does not start.
    pub(crate) fn start(binary: &Path, backing: Backing, over: Transport) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-iscsi-").tempdir()?;
        let mut loops = Vec::new();
        let mut paths = Vec::new();
        for (name, bytes) in [("large", DISK_BYTES), ("small", DISK_BYTES), ("fixed", SMALL_BYTES)]
        {
            let file = dir.path().join(name);
            fs::File::create(&file)?.set_len(bytes)?;
            if backing == Backing::Loop {
                let device = LoopDevice::over(&file)?;
                paths.push(device.0.clone());
                loops.push(device);
            } else {
                paths.push(file);
            }
        }
        secret(&dir.path().join("in.secret"), IN_SECRET)?;
        secret(&dir.path().join("out.secret"), OUT_SECRET)?;
        let (nfs, portal) = (zgate::free_port()?, zgate::free_port()?);
        let metrics = zgate::free_port()?;
        let config = dir.path().join("zgate.toml");
        let iser = match over {
            Transport::Tcp => None,
            Transport::Iser => Some(local(zgate::free_port()?)),
        };
        fs::write(&config, text(dir.path(), &paths, (nfs, portal, metrics), iser))?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "info");
        let address = local(portal);
        let log = dir.path().join("zgate.log");
        let server = ServerProcess::start("zgate", command, address, &log)?;
        let bridge = iser.map(|iser| {
            // It starts listening after the TCP portal.
            let deadline = Instant::now() + Duration::from_secs(10);
            while TcpStream::connect(iser).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
            zgate_test_iser::bridge::start(iser)
        });
        let (admin, binary) = (dir.path().join("admin.sock"), binary.to_owned());
        let (bridge, metrics) = (bridge.transpose()?, local(metrics));
        Ok(Self { server, dir, admin, binary, bridge, metrics, _loops: loops })
    }

    /// Returns the URL of a LUN, with a user and further options if required.
    pub(crate) fn url(&self, user: &str, target: &str, lun: u16, more: &str) -> String {
        let portal = self.bridge.unwrap_or(self.server.address);
        format!("iscsi://{user}{portal}/{target}/{lun}{more}")
    }

    /// Runs a live command of the gateway; returns its JSON.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn live(&self, words: &[&str]) -> io::Result<serde_json::Value> {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--json").arg("--socket").arg(&self.admin);
        Ok(serde_json::from_str(&succeed(&mut command)?)?)
    }

    /// Returns how many logins the gateway has refused for a reason.
    ///
    /// # Errors
    /// If its metrics do not say so.
    pub(crate) fn refused_logins(&self, reason: &str) -> io::Result<u64> {
        let mut stream = TcpStream::connect(self.metrics)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let line = format!("zgate_iscsi_logins_refused_total{{reason=\"{reason}\"}} ");
        let count = page.lines().find_map(|one| one.strip_prefix(&line)?.parse().ok());
        count.ok_or_else(|| io::Error::other(format!("no {line}in the metrics")))
    }
}

/// Secret that the initiator presents.
pub(crate) const IN_SECRET: &str = "inbound-secret";
/// Secret that the target presents.
pub(crate) const OUT_SECRET: &str = "outbound-secret";

fn secret(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn text(
    dir: &Path,
    paths: &[PathBuf],
    (nfs, portal, metrics): (u16, u16, u16),
    iser: Option<SocketAddr>,
) -> String {
    let iser = iser.map(|iser| format!("iser_listen = [\"{iser}\"]\n")).unwrap_or_default();
    let dir = dir.display();
    let path = |at: usize| paths.get(at).map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        r#"[server]
listen = ["127.0.0.1:{nfs}"]
state_dir = "{dir}/state"
admin_socket = "{dir}/admin.sock"
metrics_listen = "127.0.0.1:{metrics}"

[rdma]
fabric = "emulated"

[iscsi]
listen = ["127.0.0.1:{portal}"]
{iser}thin_warning_percent = 0

[[target]]
name = "{OPEN}"
allow_any_initiator = true

  [[target.lun]]
  number = {large}
  path = "{}"
  removable = true
  physical_block_bytes = 4096

  [[target.lun]]
  number = {small}
  path = "{}"
  removable = true
  physical_block_bytes = 512

  [[target.lun]]
  number = {read_only}
  path = "{}"
  read_only = true

[[target]]
name = "{GUARDED}"

  [[target.lun]]
  number = 0
  path = "{dir}/guarded"
  size = "16MiB"

  [[target.initiator]]
  name = "iqn.*"
  clients = ["127.0.0.0/8"]
  chap = {{ user = "joe", secret_file = "{dir}/in.secret" }}
  mutual_chap = {{ user = "gate", secret_file = "{dir}/out.secret" }}

[[target]]
name = "{NAMED}"

  [[target.lun]]
  number = 0
  path = "{dir}/named0"
  size = "16MiB"

  [[target.lun]]
  number = 1
  path = "{dir}/named1"
  size = "16MiB"

  [[target.initiator]]
  name = "{FRIEND}"
  luns = [1]
"#,
        path(0),
        path(1),
        path(2),
        large = lun::LARGE_PHYSICAL,
        small = lun::SMALL_PHYSICAL,
        read_only = lun::READ_ONLY,
    )
}
