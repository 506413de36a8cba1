//! stunnel as packaged by Debian: TLS in front of a server that has none.

use super::{Scratch, ServerProcess};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// Starts it before `server`, with a certificate and its key in PEM.
///
/// # Errors
/// If it is not installed or does not start.
pub(crate) fn start(
    name: &'static str,
    scratch: &Scratch,
    server: SocketAddr,
    (certificate, key): (&Path, &Path),
) -> io::Result<ServerProcess> {
    let port = super::zgate::free_port()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let config = scratch.path().join(format!("stunnel-{port}.conf"));
    let text = format!(
        "foreground = yes\npid =\ndebug = err\n\
         [nfs]\naccept = {address}\nconnect = {server}\ncert = {}\nkey = {}\n\
         sslVersionMin = TLSv1.3\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n",
        certificate.display(),
        key.display(),
    );
    fs::write(&config, text)?;
    let mut command = Command::new("stunnel");
    command.arg(&config);
    let log = scratch.path().join(format!("stunnel-{port}.log"));
    ServerProcess::start(name, command, address, &log)
}
