//! The virtual machine: QEMU, with KVM only where a guest really boots under it.

use super::image::Image;
use super::pair::Pair;
use super::share::Share;
use super::wire::Host;
use clap::ValueEnum;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Memory of the machine with the gateway, in MiB.
const MEMORY_MIB: u32 = 4096;
/// Memory of the second machine, a client; in MiB.
const CLIENT_MEMORY_MIB: u32 = 2048;
/// Size of each scratch disk; sparse files.
const SCRATCH_BYTES: u64 = 6 << 30;
/// Time limit of a test boot under KVM.
const PROBE_PATIENCE: Duration = Duration::from_secs(40);
/// Kernel command line; without mitigations, which cost an emulated machine
/// most. Programs are at the same addresses each time: QEMU translates code
/// once per address, and a scenario starts thousands of processes
/// (`csi/rounds` takes 0.6 of the time).
const KERNEL_ARGUMENTS: &str = "root=/dev/vda rw init=/lab-init console=ttyS0 quiet panic=-1 \
    mitigations=off norandmaps net.ifnames=0 systemd.log_level=err audit=0";
/// Environment of the emulator: glibc asks for huge pages. QEMU looks for its translated code in a
/// table of many MiB, in no order (98 s in place of 108 for `csi/rounds` with 20 volumes).
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
/// Prefix of the lines that the guest's init prints on the serial console.
const MARK: &str = "LAB ";

/// Requested accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelChoice {
    /// KVM if it works, else emulation.
    Auto,
    /// KVM.
    Kvm,
    /// Emulation (TCG); works everywhere.
    Tcg,
}

/// Accelerator in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    /// KVM.
    Kvm,
    /// Emulation (TCG).
    Tcg,
}

impl Accel {
    /// Returns its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// Decides which accelerator to use, by a test boot if necessary; the result is
/// kept until the host reboots.
///
/// # Errors
/// If the probe cannot be started at all.
pub(crate) fn accel(choice: AccelChoice, image: &Image, share: &Share) -> io::Result<Accel> {
    match choice {
        AccelChoice::Kvm => return Ok(Accel::Kvm),
        AccelChoice::Tcg => return Ok(Accel::Tcg),
        AccelChoice::Auto => {}
    }
    let usable = fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if !usable {
        return Ok(Accel::Tcg);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let kept = image.file("accel");
    for accel in [Accel::Kvm, Accel::Tcg] {
        if fs::read_to_string(&kept).is_ok_and(|text| text == format!("{} {boot}", accel.name())) {
            return Ok(accel);
        }
    }
    eprintln!("   trying a boot under KVM");
    share.set_mode("run")?;
    let log = share.path().join("probe.log");
    let machine = Machine::new(image, share, Accel::Kvm, Host::A, None)?;
    let found = match machine.run(&log, PROBE_PATIENCE) {
        Ok(End::Done) => Accel::Kvm,
        _ => Accel::Tcg,
    };
    eprintln!("   the lab runs under {}", found.name());
    fs::write(kept, format!("{} {boot}", found.name()))?;
    Ok(found)
}

/// A machine that has not been started.
#[derive(Debug)]
pub(crate) struct Machine {
    command: Command,
    /// Directory of the scratch disks.
    disks: tempfile::TempDir,
}

/// A machine that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    _disks: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    /// Prepares a machine.
    ///
    /// # Errors
    /// The error of creating the scratch disks.
    pub(crate) fn new(
        image: &Image,
        share: &Share,
        accel: Accel,
        host: Host,
        pair: Option<&Pair>,
    ) -> io::Result<Self> {
        let disks = tempfile::Builder::new().prefix("zgate-lab-disks-").tempdir()?;
        let memory_mib = if host == Host::A { MEMORY_MIB } else { CLIENT_MEMORY_MIB };
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(accel.arguments())
            .args(["-smp", "2", "-m", &memory_mib.to_string()])
            .args(["-nodefaults", "-display", "none", "-nic", "none"])
            .args(["-device", "virtio-rng-pci"])
            .arg("-kernel")
            .arg(image.file("vmlinuz"))
            .arg("-initrd")
            .arg(image.file("initrd"))
            .arg("-append")
            .arg(format!("{KERNEL_ARGUMENTS} lab.host={}", host.letter()))
            .arg("-drive")
            .arg(drive(&image.file("disk.img"), "snapshot=on"))
            .arg("-fsdev")
            .arg(format!("local,id=lab,path={},security_model=none", share.path().display()))
            .args(["-device", "virtio-9p-pci,fsdev=lab,mount_tag=lab"]);
        if let Some(pair) = pair {
            command.args(pair.wire(host));
        }
        if host == Host::A {
            // The client may crash and boot again.
            command.arg("-no-reboot");
            for name in ["store.img", "other.img"] {
                let path = disks.path().join(name);
                fs::File::create(&path)?.set_len(SCRATCH_BYTES)?;
                command.arg("-drive").arg(drive(&path, "discard=unmap,detect-zeroes=unmap"));
            }
        }
        // After the scratch disks, whose names follow from their order.
        if let Some(pair) = pair {
            command.args(pair.shared(host));
        }
        // Changes of the root disk are discarded; they need space meanwhile.
        command.env("TMPDIR", disks.path());
        command.env(HUGE_PAGES.0, HUGE_PAGES.1);
        Ok(Self { command, disks })
    }

    /// Starts the machine in the background; its console goes to a file.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(mut self, serial: &Path) -> io::Result<Running> {
        let said = fs::File::create(serial)?;
        let child = self
            .command
            .args(["-serial", "stdio"])
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("qemu: {error}")))?;
        Ok(Running { child, _disks: self.disks })
    }

    /// Connects the terminal to the guest's console.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn interact(mut self) -> io::Result<()> {
        eprintln!("   booting; `exit` ends the machine, Ctrl-A X kills it");
        let status = self.command.args(["-serial", "mon:stdio"]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("qemu failed")) }
    }

    /// Runs the plan; the console goes to a file, the lab's own lines also to
    /// stderr.
    ///
    /// # Errors
    /// If the machine does not start.
    pub(crate) fn run(mut self, serial: &Path, limit: Duration) -> io::Result<End> {
        let began = Instant::now();
        let mut child = self
            .command
            .args(["-serial", "stdio"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("qemu: {error}")))?;
        let lines = console(&mut child)?;
        let mut log = fs::File::create(serial)?;
        let (mut ended, mut stopped) = (false, false);
        while let Some(left) = limit.checked_sub(began.elapsed()) {
            match lines.recv_timeout(left) {
                Ok(line) => {
                    log.write_all(line.as_bytes())?;
                    if let Some(at) = line.find(MARK) {
                        let said = line[at + MARK.len()..].trim();
                        eprintln!("   [{:4.0} s] {said}", began.elapsed().as_secs_f64());
                        ended |= said == "done";
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    stopped = true;
                    break;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break,
            }
        }
        // It may have switched itself off.
        let _ = child.kill();
        let mut complaint = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            io::Read::read_to_string(&mut stderr, &mut complaint)?;
        }
        child.wait()?;
        let why = || {
            let seconds = began.elapsed().as_secs();
            format!("{seconds} s, its console is in {}\n{complaint}", serial.display())
        };
        Ok(match (ended, stopped) {
            (true, _) => End::Done,
            (false, true) => End::Stopped(format!("the machine stopped after {}", why())),
            (false, false) => End::Late(format!("the plan did not end within {}", why())),
        })
    }
}

/// End of a machine's run, with a message.
#[derive(Debug)]
pub(crate) enum End {
    /// The plan was completed.
    Done,
    /// The machine stopped earlier: its kernel panicked, or the emulator
    /// failed.
    Stopped(String),
    /// The machine was stopped at its time limit.
    Late(String),
}

fn drive(path: &Path, more: &str) -> String {
    format!("file={},if=virtio,format=raw,cache=unsafe,{more}", path.display())
}

/// Returns the lines of the guest's console.
fn console(child: &mut Child) -> io::Result<mpsc::Receiver<String>> {
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("qemu has no output"))?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut raw = Vec::new();
        while reader.read_until(b'\n', &mut raw).is_ok_and(|length| length > 0) {
            if sender.send(String::from_utf8_lossy(&raw).into_owned()).is_err() {
                return;
            }
            raw.clear();
        }
    });
    Ok(lines)
}
