//! The storage plug-in for Proxmox VE against a gateway with TLS, over the model of
//! ZFS. QEMU's own initiator uses what the plug-in names; processes are killed
//! between their requests. The lab's `zfs/proxmox` has real zvols.

use crate::cargo;
use crate::servers::scratch::run as succeed;
use crate::servers::zgate::free_port;
use crate::servers::{Scratch, ServerProcess};
use crate::totals::Outcome;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Calls a method of the plug-in.
const CALL: &str = "tests/proxmox/call.pl";
const TARGET: &str = "iqn.2026-11.io.zgate:pve";
const INITIATOR: &str = "iqn.1993-08.org.debian:01:node1";
const TOKEN: &str = "token-of-the-suite-of-32-letters";
const MIB: u64 = 1 << 20;
/// Most requests of one call of the plug-in.
const MAX_REQUESTS: usize = 12;
const KILLED: i32 = 9;

/// Runs all checks.
///
/// # Errors
/// If the gateway does not start.
pub(crate) fn run(binary: &Path, outcome: &mut Outcome) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        outcome.skipped.push("only root can make a stand-in for /dev/zvol".to_owned());
        return Ok(());
    }
    let mut site = Site::new(binary)?;
    site.start()?;
    outcome.check("status", site.status());
    outcome.check("disks are made and listed", site.made());
    outcome.check("a disk is for the nodes that activated it", site.activated());
    outcome.check("growth", site.grown());
    outcome.check("snapshot and rollback", site.rolled_back());
    outcome.check("template and linked clones", site.cloned());
    outcome.check("wrong token, absent gateway", site.refused());
    outcome.check("a disk is freed with its snapshots", site.freed());
    outcome.check("killed between requests: no orphans", site.killed());
    Ok(())
}

/// A gateway with a parent of disks, and a node of Proxmox VE.
struct Site {
    scratch: Scratch,
    binary: PathBuf,
    pool: String,
    ports: [u16; 3],
    server: Option<ServerProcess>,
}

type Checked<T = ()> = Result<T, String>;

fn said<T>(result: io::Result<T>) -> Checked<T> {
    result.map_err(|error| error.to_string())
}

fn ensure(holds: bool, what: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// A QEMU process that has a disk open, ended on drop.
struct OpenDisk(Child);

impl Drop for OpenDisk {
    fn drop(&mut self) {
        // It ends by itself if its input has ended.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Site {
    fn new(binary: &Path) -> io::Result<Self> {
        let scratch = Scratch::new(64 * MIB)?;
        let at = |name: &str| scratch.path().join(name);
        let pool = format!("zgate-xtask-{}", std::process::id());
        for folder in ["bin", "model/zvol", "state"] {
            fs::create_dir_all(at(folder))?;
        }
        fs::create_dir_all(at("model/zvol").join(&pool))?;
        fs::write(at("model/pool"), format!("{pool}\n"))?;
        fs::write(at("model/datasets"), format!("{pool}\n{pool}/pve\n"))?;
        let mut build = cargo::command();
        build.args(["build", "--quiet", "--package", "zgate-control", "--example", "zfs_model"]);
        succeed(&mut build)?;
        let model = fs::canonicalize(cargo::target_dir().join("debug/examples/zfs_model"))?;
        for program in ["zfs", "zpool"] {
            symlink(&model, at("bin").join(program))?;
        }
        fs::create_dir_all("/dev/zvol")?;
        symlink(at("model/zvol").join(&pool), Path::new("/dev/zvol").join(&pool))?;
        certificates(scratch.path())?;
        fs::write(at("token"), TOKEN)?;
        fs::set_permissions(at("token"), fs::Permissions::from_mode(0o600))?;
        fs::write(at("wrong"), TOKEN.replace("suite", "enemy"))?;
        let name = format!("## Debian begins the file with comments.\nInitiatorName={INITIATOR}\n");
        fs::write(at("initiatorname.iscsi"), name)?;
        let ports = [free_port()?, free_port()?, free_port()?];
        let site = Self { scratch, binary: binary.to_owned(), pool, ports, server: None };
        site.write_files()?;
        Ok(site)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn write_files(&self) -> io::Result<()> {
        let [nfs, iscsi, api] = self.ports;
        let (dir, pool) = (self.scratch.path().display(), &self.pool);
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:{nfs}\"]\nstate_dir = \"{dir}/state\"\n\
             admin_socket = \"{dir}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n\
             [iscsi]\nlisten = [\"127.0.0.1:{iscsi}\"]\n\
             [api]\nlisten = [\"127.0.0.1:{api}\"]\ncertificate = \"{dir}/server.pem\"\n\
             key = \"{dir}/server.key\"\nadmin_token_file = \"{dir}/token\"\n\
             [[volumes.parent]]\ndataset = \"{pool}/pve\"\ntarget = \"{TARGET}\"\n"
        );
        fs::write(self.at("zgate.toml"), text)?;
        fs::write(self.at("storage.json"), self.storage("token", api).to_string())
    }

    /// Keys of the storage in Proxmox VE's configuration.
    fn storage(&self, token: &str, api: u16) -> Value {
        json!({
            "type": "zgate",
            "zgate-api": format!("localhost:{api}"),
            "zgate-portal": format!("127.0.0.1:{}", self.ports[1]),
            "zgate-parent": format!("{}/pve", self.pool),
            "zgate-token-file": self.at(token),
            "zgate-ca-file": self.at("ca.pem"),
            "initiator_file": self.at("initiatorname.iscsi"),
        })
    }

    fn with_programs(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.at("bin").display()));
        command.env("ZFS_MODEL", self.at("model"));
    }

    fn start(&mut self) -> io::Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--config").arg(self.at("zgate.toml"));
        self.with_programs(&mut command);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[2]));
        let log = self.at("zgate.log");
        self.server = Some(ServerProcess::start("zgate", command, address, &log)?);
        Ok(())
    }

    /// Runs `zfs` of the model.
    fn zfs(&self, arguments: &[&str]) -> Checked<String> {
        let mut command = Command::new(self.at("bin/zfs"));
        self.with_programs(&mut command);
        said(succeed(command.args(arguments)))
    }

    fn names(&self) -> Checked<Vec<String>> {
        let parent = format!("{}/pve", self.pool);
        let mut names = Vec::new();
        for kind in ["filesystem,volume", "snapshot"] {
            let text =
                self.zfs(&["list", "-H", "-r", "-d", "9", "-t", kind, "-o", "name", &parent])?;
            names.extend(text.lines().filter(|name| *name != parent).map(str::to_owned));
        }
        Ok(names)
    }

    /// Prepares a call of the plug-in on a node.
    fn command(&self, node: &str, method: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("perl");
        command.arg(CALL).arg(self.at("storage.json")).arg(method).args(arguments);
        command.env("PROXMOX_NODE", node);
        command
    }

    /// Calls the plug-in; returns what the method returned, or its error.
    fn call(&self, method: &str, arguments: &[&str]) -> Checked<Value> {
        let output = said(self.command("node1", method, arguments).output())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let answer: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(answer["returned"].clone())
    }

    fn one(&self, method: &str, arguments: &[&str]) -> Checked<String> {
        let returned = self.call(method, arguments)?;
        let text = returned[0].as_str().map(str::to_owned);
        text.ok_or_else(|| format!("{method} returned {returned}"))
    }

    /// Expects an error with these words.
    fn fails(&self, method: &str, arguments: &[&str], part: &str) -> Checked {
        match self.call(method, arguments) {
            Ok(returned) => Err(format!("{method} {arguments:?} returned {returned}")),
            Err(error) => ensure(error.contains(part), format!("{method}: not {part:?}: {error}")),
        }
    }

    fn alloc(&self, vm: &str, size_kib: u64) -> Checked<String> {
        let size = size_kib.to_string();
        self.one("alloc_image", &["STORAGE", "CONFIG", vm, "raw", "UNDEF", &size])
    }

    fn free(&self, disk: &str) -> Checked {
        self.call("free_image", &["STORAGE", "CONFIG", disk, "0"]).map(drop)
    }

    fn activate(&self, disk: &str) -> Checked {
        self.call("activate_volume", &["STORAGE", "CONFIG", disk]).map(drop)
    }

    fn deactivate(&self, disk: &str) -> Checked {
        self.call("deactivate_volume", &["STORAGE", "CONFIG", disk]).map(drop)
    }

    /// Sorted names of all disks.
    fn listed(&self) -> Checked<Vec<String>> {
        let found = self.call("list_images", &["STORAGE", "CONFIG"])?;
        let names = found[0].as_array().into_iter().flatten();
        let mut names: Vec<_> =
            names.map(|one| one["volid"].as_str().unwrap_or_default().to_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Options of QEMU for a disk: those that the plug-in names, and no others.
    fn image(&self, disk: &str) -> Checked<String> {
        let arguments = ["CONFIG", "STORAGE", disk, "UNDEF", "CONFIG"];
        let options = self.call("qemu_blockdev_options", &arguments)?[0].clone();
        let text = |key: &str| match &options[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let keys = ["driver", "transport", "portal", "target", "lun", "initiator-name"];
        let file = keys.map(|key| format!("file.{key}={}", text(key))).join(",");
        Ok(format!("driver=raw,discard=unmap,{file}"))
    }

    /// Runs commands of qemu-io on a disk.
    fn io(&self, disk: &str, commands: &[&str]) -> Checked<String> {
        let mut command = Command::new("qemu-io");
        command.arg("--image-opts").arg(self.image(disk)?);
        command.args(commands.iter().flat_map(|one| ["-c", one]));
        let output = said(command.output())?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let bad = !output.status.success() || text.contains("failed") || text.contains("error");
        if bad { Err(text) } else { Ok(text) }
    }

    fn status(&self) -> Checked {
        let status = self.call("status", &["STORAGE", "CONFIG"])?;
        let number = |index: usize| status[index].as_u64().unwrap_or(0);
        let holds = number(0) > 0 && number(0) == number(1) + number(2) && number(3) == 1;
        ensure(holds, format!("status {status}"))
    }

    fn made(&self) -> Checked {
        for disk in ["vm-100-disk-0", "vm-100-disk-1"] {
            let made = self.alloc("100", 16 * 1024)?;
            ensure(made == disk, format!("{made} was made, not {disk}"))?;
        }
        let named = ["STORAGE", "CONFIG", "100", "raw", "vm-100-disk-1", "16384"];
        self.fails("alloc_image", &named, "exists")?;
        self.is_not_taken(&named)?;
        let foreign = ["STORAGE", "CONFIG", "101", "raw", "vm-100-disk-9", "16384"];
        self.fails("alloc_image", &foreign, "vm-101-")?;
        let qcow = ["STORAGE", "CONFIG", "100", "qcow2", "UNDEF", "16384"];
        self.fails("alloc_image", &qcow, "only raw")?;
        let listed = self.listed()?;
        ensure(listed == ["zgate:vm-100-disk-0", "zgate:vm-100-disk-1"], format!("{listed:?}"))?;
        let size = self.call("volume_size_info", &["CONFIG", "STORAGE", "vm-100-disk-0"])?;
        ensure(size[0] == 16 * MIB && size[1] == "raw", format!("size {size}"))?;
        let marks = self.zfs(&["get", "-Hp", "-d", "1", "all", &format!("{}/pve", self.pool)])?;
        ensure(!marks.contains("unconfirmed"), format!("not confirmed: {marks}"))
    }

    /// A disk that exists is not taken for the one that is being made when the answer to
    /// the first request is lost.
    fn is_not_taken(&self, alloc: &[&str]) -> Checked {
        let mut command = self.command("node1", "alloc_image", alloc);
        let output = said(command.env("CALL_LOSES", "POST").output())?;
        let error = String::from_utf8_lossy(&output.stderr);
        let holds = !output.status.success() && error.contains("exists");
        ensure(holds, format!("an existing disk was taken: {error}"))
    }

    fn activated(&self) -> Checked {
        let disk = "vm-100-disk-0";
        let path = self.one("path", &["CONFIG", disk, "STORAGE"])?;
        let portal = format!("iscsi://127.0.0.1:{}/{TARGET}:", self.ports[1]);
        ensure(path.starts_with(&portal) && path.ends_with("/0"), path)?;
        ensure(self.io(disk, &["read 0 4k"]).is_err(), "read before it was activated")?;
        for _ in 0..2 {
            self.activate(disk)?;
        }
        self.io(disk, &["write -P 0x11 0 1M", "read -P 0x11 0 1M"])?;
        self.read_only(disk)?;
        self.activate(disk)?;
        let mut stranger = Command::new("qemu-io");
        let image = self.image(disk)?.replace(INITIATOR, "iqn.2026-11.test:stranger");
        stranger.arg("--image-opts").arg(image);
        let stranger = said(stranger.args(["-c", "read 0 4k"]).output())?;
        ensure(!stranger.status.success(), "another initiator can read it")?;
        // Live migration: both nodes have it for a while.
        let second = self.command("node2", "activate_volume", &["STORAGE", "CONFIG", disk]);
        said(succeed(&mut { second }))?;
        self.deactivate(disk)?;
        self.io(disk, &["read -P 0x11 0 1M"])
            .map_err(|error| format!("the second node has the same initiator here: {error}"))?;
        let second = self.command("node2", "deactivate_volume", &["STORAGE", "CONFIG", disk]);
        said(succeed(&mut { second }))?;
        ensure(self.io(disk, &["read 0 4k"]).is_err(), "read after it was deactivated")
    }

    /// A grant for reading alone, which the plug-in does not use.
    fn read_only(&self, disk: &str) -> Checked {
        let path = format!("volumes/{}%2Fpve%2F{disk}/access/node1", self.pool);
        let body = json!({ "owner": "pve", "initiator": INITIATOR, "read_only": true });
        let mut api = Command::new(&self.binary);
        api.args(["api", "PUT", &path, "--data", &body.to_string(), "--socket"]);
        said(succeed(api.arg(self.at("api.sock"))))?;
        ensure(self.io(disk, &["write -P 0x77 0 4k"]).is_err(), "written with a read-only grant")?;
        let mut reader = Command::new("qemu-io");
        reader.args(["-r", "--image-opts"]).arg(self.image(disk)?);
        let text = said(succeed(reader.args(["-c", "read -P 0x11 0 1M"])))?;
        ensure(!text.contains("failed"), text)
    }

    fn grown(&self) -> Checked {
        let disk = "vm-100-disk-0";
        self.activate(disk)?;
        let wanted = (32 * MIB).to_string();
        for _ in 0..2 {
            self.call("volume_resize", &["CONFIG", "STORAGE", disk, &wanted, "1"])?;
        }
        let length = self.io(disk, &["length"])?;
        ensure(length.contains("32 MiB"), length)?;
        let less = ["CONFIG", "STORAGE", disk, "1048576", "1"];
        self.fails("volume_resize", &less, "would lose data")
    }

    fn open(&self, disk: &str) -> Checked<OpenDisk> {
        let mut command = Command::new("qemu-io");
        command.arg("--image-opts").arg(self.image(disk)?);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut open = OpenDisk(said(child.spawn())?);
        // It has answered: it is logged in.
        let input = open.0.stdin.as_mut().ok_or("no input")?;
        said(input.write_all(b"length\n"))?;
        let output = open.0.stdout.as_mut().ok_or("no output")?;
        let mut byte = [0];
        let mut text = String::new();
        while !text.contains("MiB") && said(io::Read::read(output, &mut byte))? == 1 {
            text.push(char::from(byte[0]));
        }
        ensure(text.contains("MiB"), format!("the disk cannot be opened: {text}"))?;
        Ok(open)
    }

    fn rolled_back(&self) -> Checked {
        let disk = "vm-100-disk-0";
        let on = |snapshot: &'static str| ["CONFIG", "STORAGE", disk, snapshot];
        for _ in 0..2 {
            self.call("volume_snapshot", &on("before"))?;
        }
        // QEMU reads zeros where the gateway says that nothing is allocated.
        self.io(disk, &["discard 0 1M", "read -P 0 0 1M"])?;
        let open = self.open(disk)?;
        self.fails("volume_snapshot_rollback", &on("before"), "in use")?;
        drop(open);
        self.call("volume_rollback_is_possible", &on("before"))?;
        self.call("volume_snapshot_rollback", &on("before"))?;
        self.io(disk, &["read -P 0x11 0 1M"])?;
        self.call("volume_snapshot", &on("later"))?;
        let known = self.call("volume_snapshot_info", &["CONFIG", "STORAGE", disk])?;
        let names = known[0].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
        ensure(names.as_deref() == Some(&["before".into(), "later".into()]), known.to_string())?;
        self.fails("volume_rollback_is_possible", &on("before"), "later")?;
        self.fails("volume_snapshot_rollback", &on("before"), "later")?;
        self.fails("volume_snapshot_rollback", &on("never"), "no snapshot")?;
        for _ in 0..2 {
            self.call("volume_snapshot_delete", &on("later"))?;
        }
        self.call("volume_snapshot_rollback", &on("before"))?;
        self.deactivate(disk)
    }

    fn cloned(&self) -> Checked {
        let disk = "vm-100-disk-0";
        let base = self.one("create_base", &["STORAGE", "CONFIG", disk])?;
        ensure(base == "base-100-disk-0", &base)?;
        let clone = self.one("clone_image", &["CONFIG", "STORAGE", &base, "101"])?;
        ensure(clone == "base-100-disk-0/vm-101-disk-0", &clone)?;
        self.fails("clone_image", &["CONFIG", "STORAGE", "vm-100-disk-1", "101"], "templates")?;
        let listed = self.listed()?;
        let expected =
            ["zgate:base-100-disk-0", "zgate:base-100-disk-0/vm-101-disk-0", "zgate:vm-100-disk-1"];
        ensure(listed == expected, format!("{listed:?}"))?;
        self.activate(&clone)?;
        self.io(&clone, &["read -P 0x11 0 1M", "write -P 0x33 0 1M"])?;
        self.deactivate(&clone)?;
        self.activate(&base)?;
        self.io(&base, &["read -P 0x11 0 1M"])?;
        self.deactivate(&base)
    }

    fn refused(&mut self) -> Checked {
        let api = self.ports[2];
        let storage = |token, api| self.storage(token, api).to_string();
        let (right, wrong, absent) =
            (storage("token", api), storage("wrong", api), storage("token", 1));
        let with = |storage: &str, part: &str| {
            said(fs::write(self.at("storage.json"), storage))?;
            self.fails("status", &["STORAGE", "CONFIG"], part)
        };
        let outcome =
            with(&wrong, "no valid token").and_then(|()| with(&absent, "no answer from https://"));
        said(fs::write(self.at("storage.json"), right))?;
        outcome
    }

    fn freed(&self) -> Checked {
        for disk in ["base-100-disk-0/vm-101-disk-0", "base-100-disk-0", "vm-100-disk-1"] {
            for _ in 0..2 {
                self.free(disk)?;
            }
        }
        let left = self.names()?;
        ensure(left.is_empty() && self.listed()?.is_empty(), format!("left: {left:?}"))
    }

    /// Calls the plug-in again and again, killed before or after each of its
    /// requests, and once to its end.
    fn call_with_kills(&self, method: &str, arguments: &[&str]) -> Checked {
        for variable in ["CALL_DIES_BEFORE", "CALL_DIES_AFTER"] {
            let mut has_ended = false;
            for number in 1..=MAX_REQUESTS {
                let mut command = self.command("node1", method, arguments);
                let output = said(command.env(variable, number.to_string()).output())?;
                if output.status.signal() == Some(KILLED) {
                    continue;
                }
                let error = String::from_utf8_lossy(&output.stderr);
                ensure(output.status.success(), format!("{method} {arguments:?}: {error}"))?;
                ensure(number > 1, "it was never killed")?;
                has_ended = true;
                break;
            }
            let most = format!("{method}: killed at each of {MAX_REQUESTS} requests");
            ensure(has_ended, most)?;
        }
        Ok(())
    }

    fn killed(&mut self) -> Checked {
        let alloc = ["STORAGE", "CONFIG", "200", "raw", "UNDEF", "16384"];
        self.call_with_kills("alloc_image", &alloc)?;
        let template = self.alloc("300", 16 * 1024)?;
        self.call_with_kills("activate_volume", &["STORAGE", "CONFIG", &template])?;
        self.call_with_kills("volume_snapshot", &["CONFIG", "STORAGE", &template, "one"])?;
        self.call_with_kills("volume_snapshot_rollback", &["CONFIG", "STORAGE", &template, "one"])?;
        self.call_with_kills("create_base", &["STORAGE", "CONFIG", &template])?;
        self.call_with_kills("clone_image", &["CONFIG", "STORAGE", "base-300-disk-0", "301"])?;
        self.call_with_kills("free_image", &["STORAGE", "CONFIG", "base-300-disk-0", "1"])?;
        // The time of a confirmation passes, and the gateway crashes.
        let parent = format!("{}/pve", self.pool);
        let marks = self.zfs(&["get", "-Hp", "-d", "1", "all", &parent])?;
        let unconfirmed = marks.lines().filter(|line| line.contains("zgate:unconfirmed"));
        let unconfirmed: Vec<_> = unconfirmed.filter_map(|line| line.split('\t').next()).collect();
        ensure(!unconfirmed.is_empty(), "no process was killed before it confirmed its disk")?;
        for dataset in &unconfirmed {
            self.zfs(&["set", "zgate:unconfirmed=1", dataset])?;
        }
        drop(self.server.take());
        said(self.start())?;
        let listed = self.listed()?;
        for dataset in &unconfirmed {
            let name = dataset.rsplit('/').next().unwrap_or_default();
            ensure(!listed.iter().any(|one| one.ends_with(name)), format!("{name} is listed"))?;
        }
        for disk in &listed {
            let name = disk.strip_prefix("zgate:").unwrap_or_default();
            self.call_with_kills("free_image", &["STORAGE", "CONFIG", name, "0"])?;
        }
        let made = self.alloc("400", 16 * 1024)?;
        self.free(&made)?;
        let left = self.names()?;
        ensure(left.is_empty(), format!("left: {left:?}"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_file(Path::new("/dev/zvol").join(&self.pool));
        // Where there is no ZFS, the folder is ours.
        let _ = fs::remove_dir("/dev/zvol");
    }
}

/// Makes an authority and a certificate of `localhost`.
fn certificates(dir: &Path) -> io::Result<()> {
    let openssl = |arguments: &[&str]| {
        succeed(Command::new("openssl").current_dir(dir).args(arguments)).map(drop)
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let ca = ["req", "-x509", "-days", "2", "-subj", "/CN=suite", "-keyout", "ca.key"];
    openssl(&[&ca[..], &["-out", "ca.pem"], &key].concat())?;
    let request = ["req", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"];
    openssl(&[&request[..], &key].concat())?;
    fs::write(dir.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
    let signed = ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key"];
    openssl(&[&signed[..], &["-days", "2", "-extfile", "names", "-out", "server.pem"]].concat())?;
    fs::set_permissions(dir.join("server.key"), fs::Permissions::from_mode(0o600))
}
