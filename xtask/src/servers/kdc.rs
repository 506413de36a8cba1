//! A Kerberos realm of a suite's own: MIT's KDC on loopback, with a database in
//! a directory that is removed with it.

use super::scratch::run;
use super::zgate::free_port;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REALM: &str = "ZGATE.TEST";
/// Principals of the gateway, by the names under which clients know it.
const SERVERS: [&str; 2] = ["nfs/127.0.0.1", "nfs/localhost"];
/// A service whose keys the gateway does not have.
const OTHER_SERVICE: &str = "host/127.0.0.1";
/// Principals of clients' machines, which the gateway calls back.
const CLIENTS: [&str; 2] = ["nfs/client.zgate.test", "nfs/other.zgate.test"];
/// Principals of users: one that is a local user everywhere.
const USERS: [&str; 1] = ["root"];
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running KDC.
#[derive(Debug)]
pub(crate) struct Kdc {
    dir: tempfile::TempDir,
    process: Child,
}

impl Kdc {
    /// Creates the realm, starts its KDC, and gets a ticket for the user.
    ///
    /// # Errors
    /// The program that failed, with its words.
    pub(crate) fn start() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-kdc-").tempdir()?;
        let port = free_port()?;
        write_settings(dir.path(), port)?;
        let at = dir.path();
        run(on(at, "kdb5_util").args(["create", "-s", "-r", REALM, "-P", "of the tests"]))?;
        for principal in SERVERS.iter().chain(&USERS).chain(&CLIENTS).chain(&[OTHER_SERVICE]) {
            admin(at, &format!("addprinc -randkey {principal}"))?;
        }
        admin(at, &format!("ktadd -k {} {}", server_keytab(at).display(), SERVERS.join(" ")))?;
        let clients = client_keytab(at);
        admin(at, &format!("ktadd -k {} {}", clients.display(), CLIENTS.join(" ")))?;
        let users = at.join("users.keytab");
        admin(at, &format!("ktadd -k {} {}", users.display(), USERS.join(" ")))?;
        let mut daemon = on(at, "krb5kdc");
        daemon.arg("-n").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = daemon.spawn()?;
        let kdc = Self { dir, process };
        kdc.await_start(port)?;
        run(on(kdc.dir.path(), "kinit").arg("-k").arg("-t").arg(users).arg(USERS[0]))?;
        Ok(kdc)
    }

    fn await_start(&self, port: u16) -> io::Result<()> {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if begun.elapsed() > START_TIMEOUT {
                let log = fs::read_to_string(self.dir.path().join("kdc.log")).unwrap_or_default();
                return Err(io::Error::other(format!("krb5kdc does not listen: {log}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the file with the gateway's keys.
    pub(crate) fn keytab(&self) -> PathBuf {
        server_keytab(self.dir.path())
    }

    /// Returns the file with the keys of clients' machines.
    pub(crate) fn client_keytab(&self) -> PathBuf {
        client_keytab(self.dir.path())
    }

    /// Returns the id of the KDC's process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the environment of programs of this realm: of the gateway and of
    /// clients that use the ticket.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let dir = self.dir.path();
        [("KRB5_CONFIG", dir.join("krb5.conf")), ("KRB5CCNAME", dir.join("ticket"))]
    }
}

impl Drop for Kdc {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn server_keytab(dir: &Path) -> PathBuf {
    dir.join("server.keytab")
}

fn client_keytab(dir: &Path) -> PathBuf {
    dir.join("clients.keytab")
}

/// A program of Kerberos that knows this realm only. Those of administrators are
/// outside of the path of other users.
fn on(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(paths) = std::env::join_paths(paths) {
        command.env("PATH", paths);
    }
    command
        .env("KRB5_CONFIG", dir.join("krb5.conf"))
        .env("KRB5_KDC_PROFILE", dir.join("kdc.conf"))
        .env("KRB5CCNAME", dir.join("ticket"));
    command
}

fn admin(dir: &Path, query: &str) -> io::Result<()> {
    run(on(dir, "kadmin.local").args(["-q", query])).map(drop)
}

fn write_settings(dir: &Path, port: u16) -> io::Result<()> {
    let at = dir.display();
    let client = format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n \
         dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n \
         udp_preference_limit = 1\n\
         [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n\
         [domain_realm]\n localhost = {REALM}\n 127.0.0.1 = {REALM}\n"
    );
    let server = format!(
        "[kdcdefaults]\n kdc_listen = \"\"\n kdc_tcp_listen = 127.0.0.1:{port}\n\
         [realms]\n {REALM} = {{\n  database_name = {at}/principal\n  \
         key_stash_file = {at}/stash\n  acl_file = {at}/acl\n }}\n\
         [logging]\n kdc = FILE:{at}/kdc.log\n"
    );
    fs::write(dir.join("krb5.conf"), client)?;
    fs::write(dir.join("kdc.conf"), server)
}
