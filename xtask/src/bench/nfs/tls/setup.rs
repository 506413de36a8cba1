//! The servers of `bench nfs --tls`, and the ways to them.

use super::report::TlsReport;
use crate::bench::nfs::{BenchArgs, prepare};
use crate::servers::zgate::{TlsOptions, ZgateOptions};
use crate::servers::{Scratch, ServerProcess, ganesha, stunnel, zgate};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_test_harness::certificates::{self, Authority};
use zgate_test_harness::tls_tunnel::{self, Secure, TlsTunnel};

/// Longest time from a handshake until the kernel has the keys.
const KERNEL_SECONDS: Duration = Duration::from_secs(2);

/// Protocol of RFC 9289 in the handshake.
const ALPN: &[&[u8]] = &[b"sunrpc"];

const GATEWAY: &str = "zgate";
/// A second gateway, whose kernel encrypts nothing.
const IN_USER_SPACE: &str = "zgate-user-space";

/// A server, as its clients reach it.
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    /// Its directory in the export.
    pub(super) dir: &'static str,
    /// Server and proxy, whose CPU time counts.
    pub(super) processes: Vec<Arc<ServerProcess>>,
}

/// The running servers.
pub(super) struct Setup {
    pub(super) contenders: Vec<Contender>,
    pub(super) report: TlsReport,
}

impl Setup {
    /// Starts all of them.
    ///
    /// # Errors
    /// The log of the one that does not start.
    pub(super) fn start(args: &BenchArgs, binary: &Path, scratch: &Scratch) -> io::Result<Self> {
        let ca = Arc::new(Authority::new());
        let files = certificates::server_files(scratch.path(), &ca, None);
        let pair = (&*files.certificate, &*files.key);
        let gateway = |name, kernel_records| {
            let tls = TlsOptions {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                kernel_records,
            };
            let options =
                ZgateOptions { name, tls: Some(tls), sync_names: false, ..ZgateOptions::default() };
            zgate::start(binary, scratch, &options).map(Arc::new)
        };
        let mut plain = vec![gateway(GATEWAY, true)?];
        let (suite, by_kernel) = handshake(plain[0].address, &ca)?;
        let user_space = by_kernel.then(|| gateway(IN_USER_SPACE, false)).transpose()?;
        if !args.alone {
            plain.push(Arc::new(ganesha::start(scratch)?));
        }
        prepare(args, scratch, plain.iter().chain(&user_space).map(|server| &**server))?;

        let report = TlsReport::new(args, suite, by_kernel);
        let mut setup = Self { contenders: Vec::new(), report };
        let client = || {
            let ca = Arc::clone(&ca);
            move || certificates::client(&ca, None, ALPN)
        };
        for server in &plain {
            setup.add(server.name.to_owned(), server, (None, server.address));
        }
        let tunnel = TlsTunnel::to(plain[0].address, client());
        let how = if by_kernel { "by the kernel" } else { "by the process" };
        setup.add(format!("{GATEWAY}, TLS {how}"), &plain[0], (None, tunnel.address));
        if let Some(server) = &user_space {
            let tunnel = TlsTunnel::to(server.address, client());
            setup.add(format!("{GATEWAY}, TLS by the process"), server, (None, tunnel.address));
        }
        for server in &plain {
            let proxy = Arc::new(stunnel::start("stunnel", scratch, server.address, pair)?);
            let secure = tls_tunnel::begin_at_once(proxy.address, client()())?;
            if suite_of(&secure) != setup.report.suite {
                return Err(io::Error::other("stunnel has chosen another cipher suite than zgate"));
            }
            let tunnel = TlsTunnel::to_proxy(proxy.address, client());
            let name = format!("{} behind stunnel", server.name);
            setup.add(name, server, (Some(proxy), tunnel.address));
        }
        Ok(setup)
    }

    fn add(
        &mut self,
        name: String,
        server: &Arc<ServerProcess>,
        (proxy, address): (Option<Arc<ServerProcess>>, SocketAddr),
    ) {
        let processes = std::iter::once(Arc::clone(server)).chain(proxy).collect();
        // The second gateway is the same program.
        let plain = if server.name == IN_USER_SPACE { GATEWAY } else { server.name };
        self.report.plain.insert(name.clone(), plain);
        self.contenders.push(Contender { name, address, dir: server.name, processes });
    }
}

/// Makes a handshake with the gateway; returns the cipher suite, and whether the
/// kernel then encrypts what it sends.
fn handshake(gateway: SocketAddr, ca: &Authority) -> io::Result<(String, bool)> {
    let before = kernel_senders();
    let secure = tls_tunnel::begin(gateway, certificates::client(ca, None, ALPN))?;
    let begun = Instant::now();
    while before.is_some() && kernel_senders() == before && begun.elapsed() < KERNEL_SECONDS {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((suite_of(&secure), kernel_senders() != before))
}

fn suite_of(secure: &Secure) -> String {
    secure.tls.negotiated_cipher_suite().map_or_else(String::new, |it| format!("{:?}", it.suite()))
}

/// Returns the number of sockets that have ever encrypted on this machine;
/// `None` if its kernel has no TLS.
fn kernel_senders() -> Option<u64> {
    let counters = fs::read_to_string("/proc/net/tls_stat").ok()?;
    let senders = counters.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next()?, "TlsTxSw" | "TlsTxDevice").then_some(())?;
        words.next()?.parse::<u64>().ok()
    });
    Some(senders.sum())
}
