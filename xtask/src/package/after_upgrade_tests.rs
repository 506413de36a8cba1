//! Gateways that packages restart after an upgrade: the shipped script, with a stand-in
//! for the service manager.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Three gateways run. The stand-in notes which of them it is to restart; the
/// program finds the configuration of the third wrong.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        let root = machine.dir.path().display();
        fs::create_dir(machine.dir.path().join("bin")).unwrap();
        machine.program(
            "bin/systemctl",
            &format!(
                "case $1 in\n\
                 list-units) for name in zgate zgate@two zgate@wrong; do\n\
                 echo \"$name.service loaded active running a gateway\"; done ;;\n\
                 show) echo {} ;;\n\
                 try-restart) echo $2 >>{root}/restarted ;;\nesac",
                std::process::id()
            ),
        );
        machine.program("zgate", "case \"$*\" in *wrong.toml) exit 1 ;; esac");
        machine
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script after an upgrade to this program; returns what is restarted
    /// and what it says.
    fn upgraded(&self, program: &Path) -> (String, String) {
        self.upgraded_within(60, program)
    }

    /// The same with this time limit of a check.
    fn upgraded_within(&self, seconds: u32, program: &Path) -> (String, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/packages/after-upgrade");
        let root = self.dir.path().display();
        let text = fs::read_to_string(script).unwrap();
        let text = text
            .replace("PROGRAM=/usr/bin/zgate", &format!("PROGRAM={}", program.display()))
            .replace("CHECK_SECONDS=60", &format!("CHECK_SECONDS={seconds}"))
            .replace("/run/systemd/system", &root.to_string())
            .replace("/usr/bin/deb-systemd-invoke", "/nonexistent");
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1\n{text}")])
            .env("PATH", format!("{root}/bin:{path}"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        (fs::read_to_string(self.dir.path().join("restarted")).unwrap_or_default(), said)
    }
}

#[test]
fn each_gateway_with_a_valid_configuration_is_restarted() {
    let machine = Machine::new();
    let (restarted, said) = machine.upgraded(&machine.dir.path().join("zgate"));
    assert_eq!(restarted, "zgate.service\nzgate@two.service\n", "{said}");
    assert!(said.contains("zgate@wrong.service: /etc/zgate/wrong.toml is not valid"), "{said}");
}

#[test]
fn the_same_program_is_not_restarted() {
    let machine = Machine::new();
    let (restarted, said) = machine.upgraded(&std::env::current_exe().unwrap());
    assert_eq!(restarted, "", "{said}");
    assert_eq!(said.matches("has not changed").count(), 3, "{said}");
}

#[test]
fn a_check_that_hangs_is_ended_and_nothing_is_restarted() {
    let machine = Machine::new();
    machine.program("zgate", "exec sleep 600");
    let (restarted, said) = machine.upgraded_within(1, &machine.dir.path().join("zgate"));
    assert_eq!(restarted, "", "{said}");
    assert_eq!(said.matches("did not end within 1 s").count(), 3, "{said}");
}
