//! The script that OpenZFS's event daemon runs, as it is shipped, with stand-ins for the programs
//! that it starts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// Operation of the events that matter.
const SWAP: &str = "clone swap";

/// A machine on which gateways run. Each stand-in notes its name and its arguments.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    /// A machine with these sockets in `/run/zgate`.
    fn new(sockets: &[&str]) -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        for folder in ["bin", "run", "zed.d"] {
            fs::create_dir(machine.dir.path().join(folder)).unwrap();
        }
        for socket in sockets {
            drop(UnixListener::bind(machine.dir.path().join("run").join(socket)).unwrap());
        }
        machine.program("zgate", "");
        machine.program("logger", "");
        // It runs what follows its limits.
        machine.program("timeout", "[ \"$1\" != -k ] || shift 2; shift; exec \"$@\"");
        machine
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.dir.path().join("bin").join(name);
        let note = format!("echo \"{name} $*\" >>{}/noted", self.dir.path().display());
        fs::write(&path, format!("#!/bin/sh\n{note}\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script for an event; returns what the programs have noted, in no order, with
    /// the directory of the sockets as on a machine. Nothing else can be started.
    fn event(&self, operation: &str, dataset: &str) -> Vec<String> {
        self.event_as("/etc/zfs/zed.d/history_event-zgate.sh", operation, dataset)
    }

    /// The same; the script has this path.
    fn event_as(&self, path: &str, operation: &str, dataset: &str) -> Vec<String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/zed/history_event-zgate.sh");
        let root = self.dir.path().display().to_string();
        let text = fs::read_to_string(script).unwrap();
        let text = text.replace("/run/zgate", &format!("{root}/run"));
        let text = text.replace(":/usr/local/bin", "");
        let output = Command::new("/bin/sh")
            .args(["-c", text.as_str(), path])
            .env_clear()
            .env("PATH", format!("{root}/bin"))
            .env("ZED_ZEDLET_DIR", format!("{root}/zed.d"))
            .env("ZEVENT_HISTORY_INTERNAL_NAME", operation)
            .env("ZEVENT_HISTORY_DSNAME", dataset)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{operation} {dataset}: {said}");
        let noted = fs::read_to_string(self.dir.path().join("noted")).unwrap_or_default();
        let mut lines: Vec<_> =
            noted.lines().map(|line| line.replace(&format!("{root}/run"), "/run/zgate")).collect();
        lines.sort();
        lines
    }
}

/// Returns what is noted for one gateway that is told.
fn told(socket: &str, dataset: &str) -> [String; 2] {
    let zgate = format!("zgate replaced --socket {socket} -- {dataset}");
    [format!("timeout -k 1 5 {zgate}"), zgate]
}

#[test]
fn each_gateway_is_told_within_a_limit_which_dataset_has_other_content() {
    for (name, dataset) in
        [("lab/a b/%rollback", "lab/a b"), ("lab/%recv", "lab"), ("lab/a", "lab/a")]
    {
        let sockets = ["admin.sock", "api.sock", "two.sock", "two-api.sock", "a b.sock"];
        let machine = Machine::new(&sockets);
        let admins = ["admin", "two", "a b"].map(|name| format!("/run/zgate/{name}.sock"));
        let mut wanted: Vec<_> = admins.iter().flat_map(|socket| told(socket, dataset)).collect();
        wanted.sort();
        assert_eq!(machine.event(SWAP, name), wanted);
    }
}

#[test]
fn no_other_event_starts_a_program() {
    let machine = Machine::new(&["admin.sock"]);
    for operation in
        ["", "snapshot", "receive", "finish receiving", "destroy", "rename", "clone swap 2"]
    {
        assert_eq!(machine.event(operation, "lab/a/%recv"), Vec::<String>::new(), "{operation}");
    }
}

#[test]
fn a_copy_of_the_script_that_lies_beside_it_tells_nobody() {
    let machine = Machine::new(&["admin.sock"]);
    for copy in [".dpkg-dist", ".rpmnew", "~"] {
        let path = format!("/etc/zfs/zed.d/history_event-zgate.sh{copy}");
        let noted = machine.event_as(&path, SWAP, "lab/a/%rollback");
        assert_eq!(noted, Vec::<String>::new(), "{copy}");
    }
}

#[test]
fn without_a_gateway_or_the_program_the_daemon_notices_nothing() {
    let machine = Machine::new(&[]);
    fs::write(machine.dir.path().join("run/two.sock"), "no socket").unwrap();
    assert_eq!(machine.event(SWAP, "lab/a/%rollback"), Vec::<String>::new());
    let machine = Machine::new(&["admin.sock"]);
    fs::remove_file(machine.dir.path().join("bin/zgate")).unwrap();
    assert_eq!(machine.event(SWAP, "lab/a/%rollback"), Vec::<String>::new());
}

#[test]
fn who_was_not_told_is_in_the_log() {
    let machine = Machine::new(&["admin.sock"]);
    machine.program("zgate", "echo 'zgate: no gateway listens there' >&2; exit 1");
    let noted = machine.event(SWAP, "lab/a/%rollback");
    let logged: Vec<_> = noted.iter().filter(|line| line.starts_with("logger ")).collect();
    assert_eq!(logged.len(), 1, "{noted:?}");
    assert!(logged[0].contains("lab/a has other content"), "{noted:?}");
    assert!(logged[0].contains("zgate: no gateway listens there"), "{noted:?}");
    let limits = noted.iter().filter(|line| line.starts_with("timeout ")).count();
    assert_eq!(limits, 2, "the log may hang, too: {noted:?}");
}

#[test]
fn sockets_that_lie_elsewhere_are_named_in_the_daemons_settings() {
    let machine = Machine::new(&[]);
    let root = machine.dir.path();
    let other = root.join("other.sock");
    drop(UnixListener::bind(&other).unwrap());
    let settings = format!("ZED_ZGATE_SOCKETS=\"{} /nosuch/a.sock\"\n", other.display());
    fs::write(root.join("zed.d/zed.rc"), settings).unwrap();
    assert_eq!(machine.event(SWAP, "lab/a/%recv"), told(&other.display().to_string(), "lab/a"));
}

#[test]
fn the_sockets_are_where_the_units_have_them() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let text = |name: &str| fs::read_to_string(deploy.join(name)).unwrap();
    for (unit, socket) in
        [("zgate.service", "/run/zgate/admin.sock"), ("zgate@.service", "/run/zgate/%i.sock")]
    {
        assert!(text(&format!("systemd/{unit}")).contains(&format!("--socket {socket}\n")));
    }
    assert!(text("zed/history_event-zgate.sh").contains(" /run/zgate/*.sock "));
}
