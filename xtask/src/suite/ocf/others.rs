//! Processes that are not the gateway of a resource: another one that answers at its admin socket, one
//! that the agent cannot remember, what outlives the gateway, and a slow check before it.

use super::{ERR_GENERIC, NOT_RUNNING, SUCCESS, Setup, matches};
use std::fs;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

impl Setup<'_> {
    /// Two configurations name one admin socket: the second resource neither takes the gateway
    /// of the first one for its own nor stops it.
    pub(super) fn stranger(&self) -> Result<(), String> {
        let (first, second) = (self.resource("socket-first")?, self.resource("socket-second")?);
        let text = |error: io::Error| error.to_string();
        let socket =
            |name: &str| self.config(name).with_file_name("admin.sock").display().to_string();
        let config = self.config("socket-second");
        let own = fs::read_to_string(&config).map_err(text)?;
        fs::write(&config, own.replace(&socket("socket-second"), &socket("socket-first")))
            .map_err(text)?;
        first.expect("start", SUCCESS, "")?;
        second.expect("monitor", NOT_RUNNING, "")?;
        second.expect("start", ERR_GENERIC, "an admin_socket of its own")?;
        second.expect("stop", SUCCESS, "")?;
        first.expect("monitor", SUCCESS, "")
    }

    /// No stop would find a gateway that the agent cannot remember.
    pub(super) fn forgotten(&self) -> Result<(), String> {
        let resource = self.resource("forgotten")?;
        let text = |error: io::Error| error.to_string();
        fs::create_dir(resource.run_file()).map_err(text)?;
        resource.expect("start", ERR_GENERIC, "cannot be written")?;
        fs::remove_dir(resource.run_file()).map_err(text)?;
        // It would answer by then.
        std::thread::sleep(Duration::from_secs(2));
        resource.expect("monitor", NOT_RUNNING, "")
    }

    /// A `zfs` that the gateway has run goes on when the gateway has ended, and would keep the
    /// pool from being exported. Programs stand in for both.
    pub(super) fn unfinished(&self) -> Result<(), String> {
        let resource = self.resource("unfinished")?;
        let text = |error: io::Error| error.to_string();
        let at = |name: &str| self.scratch.path().join(name);
        let (begun, ended) = (at("zfs-begun"), at("zfs-ended"));
        let does = format!("touch {}; sleep 3; touch {}", begun.display(), ended.display());
        resource.stub("zfs", &does).map_err(text)?;
        let mut gateway = Command::new("setsid")
            .args(["sh", "-c", "\"$0\" & exec tail -f /dev/null"])
            .arg(resource.stubs().join("zfs"))
            .spawn()
            .map_err(text)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while !begun.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.id())).map_err(text)?;
        let since = stat.split_whitespace().nth(21).unwrap_or_default();
        let run = format!("{} {since} /nosuch/socket\n", gateway.id());
        fs::write(resource.run_file(), run).map_err(text)?;
        let stopped = resource.expect("stop", SUCCESS, "");
        let is_over = ended.exists();
        gateway.kill().and_then(|()| gateway.wait()).map_err(text)?;
        stopped?;
        if is_over { Ok(()) } else { Err("the stop has not waited for zfs".to_owned()) }
    }

    /// The check of a configuration waits for names and for storage that hangs, and the gateway
    /// starts without them: only the operation limits its time. A program stands in for it.
    pub(super) fn slow_check(&self) -> Result<(), String> {
        let resource = self.resource("slow-check")?.with("check_seconds", 1);
        let text = |error: io::Error| error.to_string();
        let does = "case \"$*\" in 'config check '*) exec sleep 3 ;; esac";
        resource.stub("zgate", does).map_err(text)?;
        let slow = resource.with("binary", resource.stubs().join("zgate").display());
        slow.expect("validate-all", SUCCESS, "")?;
        let done = slow.act("validate-all", Some(Duration::from_secs(3))).map_err(text)?;
        matches("validate-all", &done, ERR_GENERIC, "did not end in time")
    }
}
