//! The gateway, started as an operator would start it.

use super::{Scratch, ServerProcess};
use crate::cargo;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

pub(crate) use zgate_test_initiator::ports::free_port;

/// Options of a gateway for a suite.
#[derive(Clone, Debug)]
pub(crate) struct ZgateOptions {
    /// Name in reports; also separates the files of two gateways on one scratch
    /// file system.
    pub(crate) name: &'static str,
    /// Lease and grace period, in seconds.
    pub(crate) lease_seconds: u32,
    /// Longest grace period, in seconds; `None` omits the key, which older
    /// builds do not know.
    pub(crate) grace_max_seconds: Option<u32>,
    /// Value of `ZGATE_LOG`.
    pub(crate) log: &'static str,
    /// Port of NFS over the emulated fabric.
    pub(crate) rdma_port: Option<u16>,
    /// Keys of the gateway: its export then accepts Kerberos, too.
    pub(crate) keytab: Option<PathBuf>,
    /// Certificate of the gateway: it then accepts TLS, too.
    pub(crate) tls: Option<TlsOptions>,
    /// Variables of the process.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
    /// Set if names are written to stable storage before the reply.
    pub(crate) sync_names: bool,
}

/// Certificate of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct TlsOptions {
    /// The certificate, in PEM.
    pub(crate) certificate: PathBuf,
    /// Its key, in PEM.
    pub(crate) key: PathBuf,
    /// Set if the kernel may encrypt what is sent.
    pub(crate) kernel_records: bool,
}

/// Values of `security` without and with Kerberos.
const OTHER_FLAVORS: &str = r#""sys", "none""#;
const KERBEROS_FLAVORS: &str = r#""krb5p", "krb5i", "krb5", "sys", "none""#;

impl Default for ZgateOptions {
    fn default() -> Self {
        Self {
            name: "zgate",
            lease_seconds: 90,
            grace_max_seconds: None,
            log: "warn",
            rdma_port: None,
            keytab: None,
            tls: None,
            environment: Vec::new(),
            sync_names: true,
        }
    }
}

/// Builds the binary that suites test, with a short build time.
///
/// # Errors
/// If it does not build.
pub(crate) fn build() -> io::Result<PathBuf> {
    cargo::build("zgate", "release")
}

/// Builds the binary as packages contain it, with link-time optimisation, for
/// comparisons of speed.
///
/// # Errors
/// If it does not build.
pub(crate) fn build_as_packaged() -> io::Result<PathBuf> {
    cargo::build("zgate", "dist")
}

/// Starts a gateway that exports the scratch directory as `/export`.
///
/// # Errors
/// Its log, if it does not start.
pub(crate) fn start(
    binary: &std::path::Path,
    scratch: &Scratch,
    options: &ZgateOptions,
) -> io::Result<ServerProcess> {
    let port = free_port()?;
    restart(binary, scratch, options, port)
}

/// Starts it on a given port again, after it was killed.
///
/// # Errors
/// As [`start`].
pub(crate) fn restart(
    binary: &std::path::Path,
    scratch: &Scratch,
    options: &ZgateOptions,
    port: u16,
) -> io::Result<ServerProcess> {
    let config = write_config(scratch, options, port)?;
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", options.log);
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let log = scratch.path().join(format!("{}.log", options.name));
    ServerProcess::start(options.name, command, address, &log)
}

/// Writes the configuration.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn write_config(
    scratch: &Scratch,
    options: &ZgateOptions,
    port: u16,
) -> io::Result<PathBuf> {
    let dir = scratch.path().join(options.name);
    fs::create_dir_all(&dir)?;
    let config = dir.join("zgate.toml");
    let longest = options.grace_max_seconds.map(|most| format!("grace_max_seconds = {most}\n"));
    let text = format!(
        r#"[server]
listen = ["127.0.0.1:{port}"]
state_dir = "{state}"
lease_seconds = {lease}
grace_seconds = {lease}
{longest}admin_socket = "{admin}"
metrics_listen = "127.0.0.1:0"

[[export]]
path = "{export}"
pseudo = "/export"
sync_names = {sync_names}
clients = [{{ match = "127.0.0.0/8", access = "rw", squash = "none", security = [{flavors}] }}]
"#,
        state = dir.join("state").display(),
        lease = options.lease_seconds,
        sync_names = options.sync_names,
        flavors = if options.keytab.is_some() { KERBEROS_FLAVORS } else { OTHER_FLAVORS },
        longest = longest.unwrap_or_default(),
        admin = dir.join("admin.sock").display(),
        export = scratch.export().display(),
    );
    let rdma = options.rdma_port.map_or(String::new(), |port| {
        format!("\n[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n")
    });
    let kerberos = options.keytab.as_ref().map_or(String::new(), |keytab| {
        format!("\n[kerberos]\nkeytab = \"{}\"\n", keytab.display())
    });
    let tls = options.tls.as_ref().map_or(String::new(), |tls| {
        format!(
            "\n[tls]\ncertificate = \"{}\"\nkey = \"{}\"\nkernel_records = {}\n",
            tls.certificate.display(),
            tls.key.display(),
            tls.kernel_records
        )
    });
    fs::write(&config, text + &rdma + &kerberos + &tls)?;
    Ok(config)
}
