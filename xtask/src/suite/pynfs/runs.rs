//! Runs of pynfs: tests that run together, and their server.

use super::checkout::Checkout;
use super::report::{Verdict, parse};
use super::{Calls, Over};
use crate::bridge::{Bridge, Tally};
use crate::servers::kdc::Kdc;
use crate::servers::scratch::run as succeed;
use crate::servers::{Scratch, zgate};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One invocation of pynfs on a server of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Name in reports.
    pub(crate) name: &'static str,
    /// Minor version.
    pub(crate) minor: u32,
    /// Flags or codes of the tests.
    pub(crate) tests: &'static [&'static str],
    /// Least number of tests; fewer are a failure.
    pub(crate) least: usize,
    /// Lease and grace period in seconds.
    pub(crate) lease_seconds: u32,
    /// Set if a file system is mounted at tree/special; pynfs then creates no
    /// tree.
    pub(crate) special: bool,
    /// Paths through the RDMA transport that the run must exercise.
    pub(crate) ways: &'static [&'static str],
}

const ALL: Run = Run {
    name: "4.0 all",
    minor: 0,
    tests: &["all"],
    least: 591,
    lease_seconds: 10,
    special: false,
    ways: &["read chunks", "write chunks", "reply chunks"],
};

const WITH_CALLBACKS: &[&str] = &["callbacks"];

/// Runs of minor version 0.
pub(crate) const MINOR_ZERO: &[Run] = &[ALL];

/// Runs of minor versions 1 and 2, then everything outside `all` that needs no
/// pNFS.
pub(crate) const MINOR_ONE_AND_TWO: &[Run] = &[
    Run { name: "4.1 all", minor: 1, least: 183, ways: WITH_CALLBACKS, ..ALL },
    Run { name: "4.2 all", minor: 2, least: 197, ways: WITH_CALLBACKS, ..ALL },
    Run {
        name: "4.2 outside all",
        minor: 2,
        tests: &[
            "COMP3",
            "COPY5",
            "COUR1",
            "COUR7",
            "CSESS20",
            "CSESS21",
            "DSESS9001",
            "DSESS9002",
            "DSESS9003",
            "DSESS9004",
            "DSESS9005",
            "DSESS9006",
            "RNM8",
            "RNM9",
        ],
        least: 14,
        ways: &[],
        ..ALL
    },
    Run {
        name: "4.2 another file system",
        minor: 2,
        tests: &["LKPP4"],
        least: 1,
        special: true,
        ways: &[],
        ..ALL
    },
    Run {
        name: "4.2 reboot",
        minor: 2,
        tests: &["REBT1", "REBT2a", "REBT2b", "REBT3a", "REBT3b", "REBT4a", "REBT4b", "REBT5"],
        least: 8,
        ways: &[],
        ..ALL
    },
    // A thousand clients of one Python process take long to reclaim.
    Run {
        name: "4.2 reboot with 1000 clients",
        minor: 2,
        tests: &["REBT2c", "REBT3c", "REBT4c"],
        least: 3,
        lease_seconds: 60,
        ways: &[],
        ..ALL
    },
];

/// Longest grace period in seconds, while pynfs reclaims.
const GRACE_MAX_SECONDS: u32 = 1800;

impl Run {
    /// Returns whether the gateway is killed and started again during the run.
    pub(super) fn kills_the_gateway(&self) -> bool {
        self.name.contains("reboot")
    }

    /// Returns lease and grace period in seconds. pynfs reclaims for its
    /// clients one call at a time, and the bridge adds CPU time to each: over
    /// the bridge the grace period, which ends on time, is longer.
    fn lease_seconds(&self, over: Over) -> u32 {
        match over {
            Over::Rdma if self.kills_the_gateway() => self.lease_seconds.max(30) * 2,
            _ => self.lease_seconds,
        }
    }
}

/// Lines of the script that make the gateway know the realm.
fn realm(calls: Calls<'_>) -> String {
    let variables = calls.kdc.iter().flat_map(|kdc| kdc.environment());
    variables.map(|(name, value)| format!("export {name}={}\n", value.display())).collect()
}

/// A prepared run.
pub(crate) struct Plan<'a> {
    run: &'a Run,
    checkout: &'a Checkout,
    scratch: Scratch,
    helper: PathBuf,
    calls: Calls<'a>,
    port: u16,
    bridge: Option<Bridge>,
}

impl<'a> Plan<'a> {
    /// Creates the scratch file system and the script that starts and restarts
    /// the server.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(
        binary: &Path,
        checkout: &'a Checkout,
        run: &'a Run,
        calls: Calls<'a>,
    ) -> io::Result<Self> {
        let over = calls.over;
        let scratch = Scratch::new(2 << 30)?;
        let port = zgate::free_port()?;
        let rdma_port = (over == Over::Rdma).then(zgate::free_port).transpose()?;
        let lease_seconds = run.lease_seconds(over);
        // The grace period waits for a slow suite, not the other way round.
        let grace_max_seconds = Some(GRACE_MAX_SECONDS);
        let options = zgate::ZgateOptions {
            lease_seconds,
            grace_max_seconds,
            log: "info",
            rdma_port,
            keytab: calls.kdc.map(Kdc::keytab),
            ..zgate::ZgateOptions::default()
        };
        let config = zgate::write_config(&scratch, &options, port)?;
        let helper = scratch.path().join("helper.sh");
        // pynfs calls `helper.sh reboot`; the first start uses the same script.
        let script = format!(
            "#!/bin/sh\n{realm}cd {dir}\nif [ -f pid ]; then kill -9 $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; fi\n\
             ZGATE_LOG=info setsid {binary} serve --config {config} >>zgate.log 2>&1 </dev/null &\n\
             echo $! > pid\nsleep 0.5\n",
            realm = realm(calls),
            dir = scratch.path().display(),
            binary = binary.display(),
            config = config.display(),
        );
        fs::write(&helper, script)?;
        if run.special {
            let special = scratch.export().join("tree/special");
            fs::create_dir_all(&special)?;
            // Created here because --maketree is not used.
            fs::create_dir(scratch.export().join("tmp"))?;
            succeed(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&special))?;
        }
        let fabric = rdma_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let bridge = fabric.map(Bridge::start).transpose()?;
        Ok(Self { run, checkout, scratch, helper, calls, port, bridge })
    }

    /// Returns the counts of RDMA operations, if the run used RDMA.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        self.bridge.as_ref().map(|bridge| &*bridge.tally)
    }

    /// Runs pynfs; returns the result of each test.
    ///
    /// # Errors
    /// The end of pynfs's output, if it has no summary.
    pub(crate) fn execute(&self) -> io::Result<Vec<Verdict>> {
        succeed(Command::new("sh").arg(&self.helper).stdin(Stdio::null()))?;
        let port = self.bridge.as_ref().map_or(self.port, |bridge| bridge.address.port());
        let dir = if self.run.minor == 0 { "nfs4.0" } else { "nfs4.1" };
        let mut command = self.checkout.command(dir);
        command
            .arg("testserver.py")
            .arg(format!("127.0.0.1:{port}/export"))
            .args(["-v", "--showomit"]);
        if self.run.minor > 0 {
            command.arg(format!("--minorversion={}", self.run.minor));
            command.arg(format!("--serverhelper=/bin/sh {}", self.helper.display()));
        }
        command.arg(format!("--security={}", self.calls.security.name()));
        command.envs(self.calls.kdc.iter().flat_map(|kdc| kdc.environment()));
        if !self.run.special {
            command.arg("--maketree");
        }
        let output = command.args(self.run.tests).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        fs::write(self.scratch.path().join("pynfs.log"), &text)?;
        let verdicts = parse(&text);
        if verdicts.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let tail: Vec<&str> = said.lines().chain(text.lines()).rev().take(15).collect();
            return Err(io::Error::other(format!("pynfs has no results: {}", tail.join(" / "))));
        }
        Ok(verdicts)
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        let dir = self.scratch.path().display();
        // The server may have ended already.
        let _ = Command::new("sh").args(["-c", &format!("kill -9 $(cat {dir}/pid)")]).output();
        if self.run.special {
            let special = self.scratch.export().join("tree/special");
            let _ = Command::new("umount").arg("-l").arg(special).output();
        }
    }
}
