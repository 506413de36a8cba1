//! The resource agent of Pacemaker: what `ocf-tester` asks of every agent, and
//! gateways that hang, die or are set up wrongly.

mod others;

use super::cluster::{self, Cluster};
use crate::servers::zgate::{self, ZgateOptions, free_port};
use crate::servers::{Scratch, ServerProcess};
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The agents' directory, from the root of the repository.
const AGENTS: &str = "deploy/ocf";
/// Agent of the gateway, and that of planned switches.
const GATEWAY: &str = "zgate";
const HANDOVER: &str = "zgate-handover";
const IMAGE_BYTES: u64 = 64 << 20;

/// Exit codes of the OCF resource agent API.
const SUCCESS: i32 = 0;
const ERR_GENERIC: i32 = 1;
const ERR_INSTALLED: i32 = 5;
const ERR_CONFIGURED: i32 = 6;
const NOT_RUNNING: i32 = 7;

/// Timeout of the monitor operation in the checks, and the longest that the agent
/// may take with it on a loaded machine.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(6);
const MONITOR_LIMIT: Duration = Duration::from_secs(25);

/// A process whose first thread ends by the system call `exit`, with another that sleeps.
const OUTLIVED: &str = "\
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(120,)).start()
ctypes.CDLL(None).syscall({'aarch64': 93}.get(os.uname().machine, 60), 0)
";

/// Stands in for `findmnt`: every directory is on the pool tank.
const ON_POOL: &str = "case \"$*\" in *FSTYPE*) echo zfs ;; *) echo tank/zgate ;; esac";

/// When a process began that a program stands in for, in ticks.
const BEGAN: u32 = 4711;

/// One resource: the agent with its parameters. Stopped on drop.
struct Resource {
    agent: &'static str,
    /// Directory of the agent and of what it remembers.
    dir: PathBuf,
    name: String,
    parameters: Vec<(&'static str, String)>,
}

/// Exit code and output of an action.
type Done = (i32, String);

impl Resource {
    fn new(dir: &Path, name: &str, binary: &Path, config: &Path) -> Self {
        let text = |path: &Path| path.display().to_string();
        Self {
            agent: GATEWAY,
            dir: dir.to_owned(),
            name: format!("xtask-{}-{name}", std::process::id()),
            parameters: vec![
                ("binary", text(binary)),
                ("config", text(config)),
                ("local_state", "true".to_owned()),
            ],
        }
    }

    /// Returns the same resource with another value of a parameter.
    fn with(&self, parameter: &'static str, value: impl ToString) -> Self {
        let mut parameters = self.parameters.clone();
        parameters.retain(|(name, _)| *name != parameter);
        parameters.push((parameter, value.to_string()));
        Self { agent: self.agent, dir: self.dir.clone(), name: self.name.clone(), parameters }
    }

    /// Returns the resource of planned switches of this gateway.
    fn handover(&self) -> Self {
        let mut parameters = self.parameters.clone();
        parameters.retain(|(name, _)| ["binary", "config"].contains(name));
        Self { agent: HANDOVER, dir: self.dir.clone(), name: self.name.clone(), parameters }
    }

    fn agent(&self) -> PathBuf {
        self.dir.join(self.agent)
    }

    /// Directory of programs that come before those of the machine.
    fn stubs(&self) -> PathBuf {
        self.dir.join(format!("{}.bin", self.name))
    }

    /// Puts a program into the path of the agent that says this only.
    fn stub(&self, program: &str, says: &str) -> io::Result<()> {
        fs::create_dir_all(self.stubs())?;
        let path = self.stubs().join(program);
        fs::write(&path, format!("#!/bin/sh\n{says}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    }

    /// Runs an action as Pacemaker does, which names its time limit, or without one.
    fn act(&self, action: &str, timeout: Option<Duration>) -> io::Result<Done> {
        let mut command = Command::new(self.agent());
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg(action)
            .env("PATH", format!("{}:{path}", self.stubs().display()))
            .env("OCF_ROOT", "/usr/lib/ocf")
            .env("HA_RSCTMP", &self.dir)
            .env("OCF_RESOURCE_INSTANCE", &self.name)
            .env("OCF_RESKEY_CRM_meta_interval", "10000");
        if let Some(timeout) = timeout {
            command.env("OCF_RESKEY_CRM_meta_timeout", timeout.as_millis().to_string());
        }
        for (name, value) in &self.parameters {
            command.env(format!("OCF_RESKEY_{name}"), value);
        }
        let output = command.output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.code().unwrap_or(-1), said))
    }

    /// Runs an action that is to end with this code and to say this.
    fn expect(&self, action: &str, code: i32, part: &str) -> Result<(), String> {
        let limit = Some(Duration::from_secs(60));
        let done = self.act(action, limit).map_err(|error| error.to_string())?;
        matches(action, &done, code, part)
    }

    /// Where the agent keeps which process it has started.
    fn run_file(&self) -> PathBuf {
        self.dir.join(format!("zgate-{}.run", self.name))
    }

    /// Returns the process of its gateway.
    fn process(&self) -> Result<rustix::process::Pid, String> {
        let file = self.run_file();
        let text = fs::read_to_string(&file).map_err(|error| format!("{file:?}: {error}"))?;
        let number = text.split(' ').next().and_then(|word| word.parse().ok());
        number.and_then(rustix::process::Pid::from_raw).ok_or(format!("no process in {text:?}"))
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<(), String> {
        rustix::process::kill_process(self.process()?, signal).map_err(|error| error.to_string())
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        let _ = self.act("stop", Some(Duration::from_secs(20)));
        // Where there is no journal, the agent has written here.
        let _ = fs::remove_file(format!("/var/log/zgate-{}.log", self.name));
    }
}

/// Has an agent judged by `ocf-tester`.
fn ocf_tester(resource: &Result<Resource, String>) -> Result<(), String> {
    let resource = resource.as_ref().map_err(Clone::clone)?;
    let mut command = Command::new("ocf-tester");
    command.args(["-n", &resource.name]).env("HA_RSCTMP", &resource.dir);
    for (name, value) in &resource.parameters {
        command.arg("-o").arg(format!("{name}={value}"));
    }
    let output = command.arg(resource.agent()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && said.contains("passed all tests") {
        return Ok(());
    }
    Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

fn matches(action: &str, (code, said): &Done, wanted: i32, part: &str) -> Result<(), String> {
    if *code == wanted && said.contains(part) {
        return Ok(());
    }
    Err(format!("{action} ended with {code}, not with {wanted} and \"{part}\": {said}"))
}

/// Runs `ocf-tester` and the further checks.
///
/// # Errors
/// If the agent cannot be prepared.
pub(crate) fn run(binary: &Path, outcome: &mut Outcome) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        outcome.skipped.push("resource agents are run by root".to_owned());
        return Ok(());
    }
    let scratch = Scratch::new(IMAGE_BYTES)?;
    // `ocf-tester` runs the agent as nobody, too.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    for name in [GATEWAY, HANDOVER] {
        let agent = scratch.path().join(name);
        fs::copy(Path::new(AGENTS).join(name), &agent)?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
    }
    let setup = Setup { binary, scratch: &scratch };
    outcome.check("ocf-tester", ocf_tester(&setup.resource("tester")));
    let handover = setup.resource("tester-handover").map(|resource| resource.handover());
    outcome.check("ocf-tester: handover", ocf_tester(&handover));
    outcome.check("a planned switch", setup.handover());
    outcome.check("a gateway that hangs", setup.hung());
    outcome.check("a caller without a time limit", setup.unlimited());
    outcome.check("a thread that outlives the first one", setup.outlived());
    outcome.check("a gateway that was killed", setup.killed());
    outcome.check("a killed gateway that ends late", setup.slow_end());
    outcome.check("a gateway that something else started", setup.adopted());
    outcome.check("a configuration that is reloaded", setup.reloaded());
    outcome.check("a second gateway on the same state", setup.second());
    outcome.check("another gateway at the admin socket", setup.stranger());
    outcome.check("a gateway that is not remembered", setup.forgotten());
    outcome.check("a command that outlives its gateway", setup.unfinished());
    outcome.check("parameters that are wrong", setup.wrong());
    outcome.check("state that is not there", setup.no_state());
    outcome.check("a pool that nothing protects", setup.unprotected());
    outcome.check("an export whose key is not loaded", setup.locked());
    outcome.check("a configuration that is not read", setup.unread());
    outcome.check("a configuration that is read once", setup.read_once());
    outcome.check("a check of the configuration that takes long", setup.slow_check());
    for (name, has_standby) in [("the shipped pair", false), ("the pair with a standby", true)] {
        let cluster = Cluster::new(scratch.path(), has_standby);
        outcome.check(&format!("{name}: a planned switch"), cluster.planned());
        outcome.check(&format!("{name}: a crash"), cluster.crash());
        outcome.check(&format!("{name}: a gateway that ends"), cluster.ended());
        outcome.check(&format!("{name}: a wire that is cut"), cluster.divided());
        outcome.check(&format!("{name}: a node without a file"), cluster.unable());
    }
    let both = Cluster::with_further_pool(scratch.path());
    outcome.check("a pair with two pools: one moves", both.apart());
    outcome.check("pair.sh with a further pool", cluster::further_pool(scratch.path()));
    Ok(())
}

/// Program and scratch directory of the checks.
struct Setup<'a> {
    binary: &'a Path,
    scratch: &'a Scratch,
}

impl Setup<'_> {
    /// Returns a resource with a configuration and a state directory of its own.
    fn resource(&self, name: &'static str) -> Result<Resource, String> {
        let write = || {
            let options = ZgateOptions { name, ..ZgateOptions::default() };
            let config = zgate::write_config(self.scratch, &options, free_port()?)?;
            fs::create_dir(config.with_file_name("state"))?;
            Ok(Resource::new(self.scratch.path(), name, self.binary, &config))
        };
        write().map_err(|error: io::Error| error.to_string())
    }

    fn config(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name).join("zgate.toml")
    }

    /// The stop of the handover keeps clients waiting, its start ends that; without
    /// a gateway both succeed at once.
    fn handover(&self) -> Result<(), String> {
        let gateway = self.resource("handover")?.with("stop_seconds", 1);
        let handover = gateway.handover();
        handover.expect("monitor", NOT_RUNNING, "")?;
        handover.expect("start", SUCCESS, "")?;
        handover.expect("stop", SUCCESS, "does not answer")?;
        gateway.expect("start", SUCCESS, "")?;
        handover.expect("start", SUCCESS, "")?;
        handover.expect("monitor", SUCCESS, "")?;
        // The start has found the socket: the pool with the configuration may hang now.
        let without = handover.with("config", "/nosuch/zgate.toml");
        without.expect("stop", SUCCESS, "clients wait")?;
        handover.expect("monitor", NOT_RUNNING, "")?;
        gateway.expect("monitor", SUCCESS, "")?;
        handover.expect("start", SUCCESS, "")?;
        gateway.signal(rustix::process::Signal::STOP)?;
        handover.expect("stop", SUCCESS, "does not answer")?;
        handover.with("hold_seconds", 601).expect("validate-all", ERR_CONFIGURED, "601")
    }

    /// A stopped process accepts connections and answers nothing: the monitor
    /// ends in its time, and the stop kills it.
    fn hung(&self) -> Result<(), String> {
        let resource = self.resource("hung")?.with("stop_seconds", 1);
        resource.expect("start", SUCCESS, "")?;
        resource.expect("monitor", SUCCESS, "")?;
        resource.signal(rustix::process::Signal::STOP)?;
        let begun = Instant::now();
        let limit = Some(MONITOR_TIMEOUT);
        let done = resource.act("monitor", limit).map_err(|error| error.to_string())?;
        matches("monitor", &done, ERR_GENERIC, "no answer within 4 s")?;
        if begun.elapsed() > MONITOR_LIMIT {
            return Err(format!("monitor took {:?}", begun.elapsed()));
        }
        resource.expect("stop", SUCCESS, "is killed")?;
        resource.expect("monitor", NOT_RUNNING, "")
    }

    /// Only a time limit that the caller names shortens the wait for an answer.
    fn unlimited(&self) -> Result<(), String> {
        let resource = self.resource("unlimited")?.with("check_seconds", 60);
        resource.expect("start", SUCCESS, "")?;
        resource
            .stub("timeout", "echo \"asked for $3 s, $7 $8\" >&2; exit 1")
            .map_err(|error| error.to_string())?;
        for (limit, said) in [
            (None, "asked for 60 s, --within 59"),
            (Some(MONITOR_TIMEOUT), "asked for 4 s, --within 3"),
        ] {
            let done = resource.act("monitor", limit).map_err(|error| error.to_string())?;
            matches("monitor", &done, ERR_GENERIC, said)?;
        }
        Ok(())
    }

    /// A killed process ends when its storage answers, in the time of the operation.
    /// Programs stand in for the clock and for the state of the process.
    fn slow_end(&self) -> Result<(), String> {
        let resource = self.resource("slow-end")?.with("stop_seconds", 1);
        let text = |error: io::Error| error.to_string();
        let clock = self.scratch.path().join("clock");
        fs::write(&clock, "0").map_err(text)?;
        let clock = clock.display();
        resource.stub("cut", &format!("cat {clock}")).map_err(text)?;
        let tick = format!("echo $(($(cat {clock}) + 1)) >{clock}");
        resource.stub("sleep", &tick).map_err(text)?;
        let state = format!(
            "case \"$2\" in /proc/*) [ $(cat {clock}) -ge 50 ] || \
             {{ echo D 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 {BEGAN}; exit; }} ;; esac\n\
             exec /bin/sed \"$@\""
        );
        resource.stub("sed", &state).map_err(text)?;
        let mut process = Command::new("tail").args(["-f", "/dev/null"]).spawn().map_err(text)?;
        let run = format!("{} {BEGAN} /nosuch/socket\n", process.id());
        fs::write(resource.run_file(), run).map_err(text)?;
        let stopped = resource.expect("stop", SUCCESS, "is killed");
        process.kill().and_then(|()| process.wait()).map_err(text)?;
        stopped
    }

    /// A process whose first thread has ended, and another not, as where that one hangs
    /// in storage: it is no process that has ended.
    fn outlived(&self) -> Result<(), String> {
        let resource = self.resource("outlived")?.with("stop_seconds", 1);
        let text = |error: io::Error| error.to_string();
        let mut left = Command::new("python3").args(["-c", OUTLIVED]).spawn().map_err(text)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let since = loop {
            let fields = fs::read_to_string(format!("/proc/{}/stat", left.id())).map_err(text)?;
            let fields: Vec<&str> = fields.split_whitespace().collect();
            if fields.get(2) == Some(&"Z") {
                break fields.get(21).copied().unwrap_or_default().to_owned();
            }
            if Instant::now() > deadline {
                return Err(format!("its first thread has not ended: {fields:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let run = format!("{} {since} {}\n", left.id(), self.scratch.path().join("none").display());
        fs::write(resource.run_file(), run).map_err(text)?;
        let begun = resource.expect("monitor", ERR_GENERIC, "does not serve");
        let stopped = resource.expect("stop", SUCCESS, "");
        let over = resource.expect("monitor", NOT_RUNNING, "");
        left.kill().and_then(|()| left.wait()).map_err(text)?;
        begun.and(stopped).and(over)
    }

    fn killed(&self) -> Result<(), String> {
        let resource = self.resource("killed")?;
        resource.expect("start", SUCCESS, "")?;
        resource.signal(rustix::process::Signal::KILL)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while resource.expect("monitor", NOT_RUNNING, "does not run").is_err() {
            if Instant::now() > deadline {
                return resource.expect("monitor", NOT_RUNNING, "does not run");
            }
        }
        resource.expect("stop", SUCCESS, "")?;
        resource.expect("start", SUCCESS, "")?;
        resource.expect("monitor", SUCCESS, "")
    }

    fn adopted(&self) -> Result<(), String> {
        let resource = self.resource("adopted")?;
        let config = self.config("adopted");
        let port = free_port().map_err(|error| error.to_string())?;
        let options = ZgateOptions { name: "adopted", ..ZgateOptions::default() };
        let server: ServerProcess = zgate::restart(self.binary, self.scratch, &options, port)
            .map_err(|error| error.to_string())?;
        let socket = config.with_file_name("admin.sock");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !socket.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        resource.expect("monitor", SUCCESS, "adopting")?;
        resource.expect("start", SUCCESS, "")?;
        // Without the file, the agent cannot tell whose gateway answers somewhere.
        let elsewhere = resource.with("config", self.scratch.path().join("nosuch.toml").display());
        elsewhere.expect("stop", SUCCESS, "")?;
        resource.expect("monitor", NOT_RUNNING, "")?;
        drop(server);
        elsewhere.expect("monitor", NOT_RUNNING, "")
    }

    fn reloaded(&self) -> Result<(), String> {
        let resource = self.resource("reloaded")?;
        resource.expect("reload", NOT_RUNNING, "")?;
        resource.expect("start", SUCCESS, "")?;
        resource.expect("reload", SUCCESS, "")?;
        resource.expect("reload-agent", SUCCESS, "")?;
        fs::write(self.config("reloaded"), "[server").map_err(|error| error.to_string())?;
        resource.expect("reload", ERR_GENERIC, "is not valid")?;
        resource.expect("monitor", SUCCESS, "")
    }

    fn second(&self) -> Result<(), String> {
        let (first, second) = (self.resource("first")?, self.resource("second")?);
        let (config, state) = (self.config("second"), |name: &str| {
            self.config(name).with_file_name("state").display().to_string()
        });
        let text = fs::read_to_string(&config).map_err(|error| error.to_string())?;
        fs::write(&config, text.replace(&state("second"), &state("first")))
            .map_err(|error| error.to_string())?;
        first.expect("start", SUCCESS, "")?;
        second.expect("start", ERR_GENERIC, "ended while it started")?;
        second.expect("monitor", NOT_RUNNING, "")?;
        first.expect("monitor", SUCCESS, "")
    }

    fn wrong(&self) -> Result<(), String> {
        let resource = self.resource("wrong")?;
        for (parameter, value, code, part) in [
            ("binary", "/nosuch/zgate", ERR_INSTALLED, "/nosuch/zgate"),
            ("config", "/nosuch/zgate.toml", ERR_INSTALLED, "cannot be read"),
            ("user", "nosuchuser", ERR_INSTALLED, "nosuchuser"),
            ("config", "zgate.toml", ERR_CONFIGURED, "absolute"),
            ("state_dir", "/nosuch/state", ERR_CONFIGURED, "/nosuch/state"),
            ("admin_socket", "/nosuch/sock", ERR_CONFIGURED, "/nosuch/sock"),
            ("check_seconds", "0", ERR_CONFIGURED, "check_seconds"),
            ("stop_seconds", "soon", ERR_CONFIGURED, "stop_seconds"),
        ] {
            let wrong = resource.with(parameter, value);
            wrong.expect("validate-all", code, part)?;
            wrong.expect("start", code, part)?;
            wrong.expect("stop", SUCCESS, "")?;
        }
        // It may be right on the other node.
        fs::write(self.config("wrong"), "[server]\nnosuch = 1\n")
            .map_err(|error| error.to_string())?;
        resource.expect("validate-all", ERR_INSTALLED, "is not valid")?;
        resource.expect("start", ERR_INSTALLED, "is not valid")
    }

    /// The agent never makes a new server of the gateway.
    fn no_state(&self) -> Result<(), String> {
        let resource = self.resource("stateless")?;
        let config = self.config("stateless");
        let state = config.with_file_name("state");
        fs::remove_dir(&state).map_err(|error| error.to_string())?;
        resource.expect("start", ERR_GENERIC, "does not exist")?;
        if state.exists() {
            return Err("a state directory was created".to_owned());
        }
        let text = fs::read_to_string(&config).map_err(|error| error.to_string())?;
        let text = text.replace(&state.display().to_string(), "/");
        fs::write(&config, text).map_err(|error| error.to_string())?;
        let resource = resource.with("local_state", "false");
        resource.expect("start", ERR_GENERIC, "root file system")
    }

    /// With programs that stand in for ZFS and Pacemaker.
    fn unprotected(&self) -> Result<(), String> {
        let resource = self.resource("unprotected")?;
        let say = |program: &str, says: &str| {
            resource.stub(program, says).map_err(|error| error.to_string())
        };
        say("findmnt", ON_POOL)?;
        say("zpool", "[ \"$6\" = tank ] && echo off")?;
        say("crm_attribute", "echo false")?;
        resource.expect("start", ERR_CONFIGURED, "multihost=on tank")?;
        resource.expect("monitor", NOT_RUNNING, "")?;
        say("zpool", "[ \"$6\" = tank ] && echo on")?;
        resource.expect("start", SUCCESS, "")?;
        resource.expect("stop", SUCCESS, "")?;
        say("zpool", "[ \"$6\" = tank ] && echo off")?;
        say("crm_attribute", "echo true")?;
        resource.expect("start", SUCCESS, "")
    }

    /// An export in the place of a file system whose key is not loaded would be the empty
    /// directory there. Programs stand in for ZFS; the check after this one refuses, too.
    fn locked(&self) -> Result<(), String> {
        let resource = self.resource("locked")?;
        let say = |program: &str, says: &str| {
            resource.stub(program, says).map_err(|error| error.to_string())
        };
        say("findmnt", ON_POOL)?;
        say("zpool", "[ \"$6\" = tank ] && echo off")?;
        say("crm_attribute", "echo false")?;
        let list = |does: &str| {
            say("zfs", &format!("case \"$*\" in *keystatus,mounted,*) {does} ;; esac"))
        };
        let export = self.scratch.export();
        let (above, part) = (self.scratch.path(), export.join("archive"));
        let refused = "an export lies in tank/data";
        for (key, point, code, said) in [
            ("unavailable", export.as_path(), ERR_INSTALLED, refused),
            ("unavailable", above, ERR_INSTALLED, refused),
            // One that nobody exports, or that is a part of an export, may be locked.
            ("unavailable", Path::new("/nosuch"), ERR_CONFIGURED, "multihost=on tank"),
            ("unavailable", part.as_path(), ERR_CONFIGURED, "multihost=on tank"),
            ("available", export.as_path(), ERR_CONFIGURED, "multihost=on tank"),
        ] {
            let point = point.display();
            list(&format!("printf '{key}\\tno\\ton\\t%s\\ttank/data\\n' '{point}'"))?;
            resource.expect("start", code, said)?;
        }
        // What is mounted there, or further in, has the export: a locked backup hides nothing.
        for mounted in [export.as_path(), above] {
            let (mounted, inner) = (mounted.display(), export.display());
            let line = "%s\\t%s\\ton\\t%s\\ttank/%s\\n";
            list(&format!(
                "printf '{line}{line}' unavailable no '{mounted}' backup available yes '{inner}' home"
            ))?;
            resource.expect("start", ERR_CONFIGURED, "multihost=on tank")?;
        }
        resource.expect("monitor", NOT_RUNNING, "")?;
        list("exit 1")?;
        resource.expect("start", ERR_CONFIGURED, "cannot tell if the keys of pool tank")
    }

    /// A configuration on a pool that does not answer is read for a limited time. A program
    /// stands in for the limit, and notes what has one.
    fn unread(&self) -> Result<(), String> {
        let resource = self.resource("unread")?;
        let config = self.config("unread");
        let noted = self.scratch.path().join("limited");
        let note = format!(
            "echo \"$*\" >>{}; case \"$*\" in *'config check '*) exit 0 ;; esac; exit 124",
            noted.display()
        );
        resource.stub("timeout", &note).map_err(|error| error.to_string())?;
        let wanted = format!("config show {}", config.display());
        let has_limit = || {
            let said = fs::read_to_string(&noted).unwrap_or_default();
            fs::write(&noted, "").map_err(|error| error.to_string())?;
            if said.contains(&wanted) { Ok(()) } else { Err(format!("no limit: {said}")) }
        };
        let handover = resource.handover();
        handover.expect("start", SUCCESS, "")?;
        has_limit()?;
        handover.expect("stop", SUCCESS, "does not answer")?;
        has_limit()?;
        resource.expect("monitor", NOT_RUNNING, "")?;
        has_limit()?;
        // Nothing that was not read is a mistake, which would keep both nodes from serving.
        let state = config.with_file_name("state");
        resource.with("state_dir", state.display()).expect("start", ERR_GENERIC, "was not read")
    }

    /// Each program that a start waits for makes the pause of clients longer. A program notes
    /// what has a limit.
    fn read_once(&self) -> Result<(), String> {
        let resource = self.resource("read-once")?;
        let text = |error: io::Error| error.to_string();
        let noted = self.scratch.path().join("shown");
        let note = format!(
            "case \"$*\" in *'config show'*) echo >>{} ;; esac\nexec /usr/bin/timeout \"$@\"",
            noted.display()
        );
        resource.stub("timeout", &note).map_err(text)?;
        let state = self.config("read-once").with_file_name("state");
        resource.with("state_dir", state.display()).expect("start", SUCCESS, "")?;
        let times = fs::read_to_string(&noted).map_err(text)?.lines().count();
        if times == 1 { Ok(()) } else { Err(format!("the configuration was read {times} times")) }
    }
}
