//! NFS-Ganesha as packaged by Debian: the peer of the NFS benchmarks.

use super::{Scratch, ServerProcess};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

/// Name in reports.
pub(crate) const NAME: &str = "nfs-ganesha";

/// Starts it on the scratch directory, exported as `/export`.
///
/// # Errors
/// If it is not installed or does not start.
pub(crate) fn start(scratch: &Scratch) -> io::Result<ServerProcess> {
    let port = super::zgate::free_port()?;
    let config = scratch.path().join("ganesha.conf");
    let recovery = scratch.path().join("ganesha-recovery");
    fs::create_dir_all(&recovery)?;
    let text = format!(
        r#"NFS_CORE_PARAM {{
  NFS_Protocols = 4; NFS_Port = {port}; MNT_Port = 0; Bind_addr = 127.0.0.1;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
  fsid_device = true; mount_path_pseudo = true;
}}
NFSV4 {{
  Graceless = true; Lease_Lifetime = 20; Grace_Period = 20; RecoveryBackend = fs;
  RecoveryRoot = "{recovery}";
  Minor_Versions = 0,1,2; Delegations = true; Only_Numeric_Owners = true;
}}
EXPORT {{
  Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RW;
  Squash = No_Root_Squash; SecType = sys, none; Protocols = 4; Transports = TCP;
  FSAL {{ Name = VFS; }}
}}
"#,
        recovery = recovery.display(),
        export = scratch.export().display(),
    );
    fs::write(&config, text)?;
    let log = scratch.path().join("ganesha.log");
    let mut command = Command::new("ganesha.nfsd");
    command
        .arg("-F")
        .arg("-f")
        .arg(&config)
        .arg("-L")
        .arg(&log)
        .arg("-p")
        .arg(scratch.path().join("ganesha.pid"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    ServerProcess::start(NAME, command, address, &log)
}
