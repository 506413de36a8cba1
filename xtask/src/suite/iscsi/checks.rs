//! Checks with libiscsi's tools and qemu: discovery, CHAP, content, live
//! changes.

use super::disks::{FRIEND, GUARDED, IN_SECRET, NAMED, OPEN, OUT_SECRET, Rig, lun};
use crate::servers::scratch::run as succeed;
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::process::Command;

/// Bytes that qemu transfers.
const IMAGE_BYTES: usize = 48 << 20;

/// Runs all checks.
pub(crate) fn run(rig: &Rig, outcome: &mut Outcome) {
    let say = |result: io::Result<()>| result.map_err(|error| error.to_string());
    outcome.check("discovery shows what an initiator may use", say(discovery(rig)));
    outcome.check("a stranger is refused", say(refused(rig, "", NAMED, "not_allowed")));
    outcome.check("a masked LUN is not accessible", say(masked(rig)));
    let joe = format!("joe%{IN_SECRET}@");
    let mutual = format!("?target_user=gate&target_password={OUT_SECRET}");
    outcome.check("CHAP", say(inquire(rig, &joe, GUARDED, "")));
    outcome.check("mutual CHAP", say(inquire(rig, &joe, GUARDED, &mutual)));
    for (what, user) in [
        ("no CHAP where it is required", String::new()),
        ("a wrong secret", "joe%not-the-secret@".to_owned()),
        ("a wrong user", format!("jim%{IN_SECRET}@")),
    ] {
        let refused = refused(rig, &user, GUARDED, "authentication");
        outcome.check(&format!("{what} is refused"), say(refused));
    }
    let impostor = inquire(rig, &joe, GUARDED, "?target_user=gate&target_password=no");
    let refused = expect(impostor.is_err(), "the login succeeded");
    outcome.check("a target that proves a wrong secret is refused", say(refused));
    outcome.check("a refusal is logged and the secrets not shown", say(private(rig)));
    outcome.check("qemu-img writes, compares, reads", say(image(rig)));
    outcome.check("qemu-io patterns", say(patterns(rig)));
    outcome.check("LUNs come, grow and go while they are served", say(live(rig)));
}

fn tool(name: &str, url: &str, initiator: Option<&str>) -> io::Result<String> {
    let mut command = Command::new("timeout");
    command.args(["20", name]);
    if let Some(initiator) = initiator {
        command.args(["-i", initiator]);
    }
    succeed(command.arg(url))
}

fn expect(holds: bool, what: impl Into<String>) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(what.into())) }
}

fn discovery(rig: &Rig) -> io::Result<()> {
    let url = format!("iscsi://{}", rig.server.address);
    let shown = tool("iscsi-ls", &url, None)?;
    expect(shown.contains(OPEN) && shown.contains(GUARDED), format!("shown: {shown}"))?;
    expect(!shown.contains(NAMED), "a target of another initiator is shown")?;
    let shown = tool("iscsi-ls", &url, Some(FRIEND))?;
    expect(shown.contains(NAMED), format!("its own target is not shown: {shown}"))?;
    let portal = format!("{},1", rig.server.address);
    expect(shown.contains(&portal), format!("the portal {portal} is not shown: {shown}"))
}

fn inquire(rig: &Rig, user: &str, target: &str, more: &str) -> io::Result<()> {
    let said = tool("iscsi-inq", &rig.url(user, target, 0, more), None)?;
    expect(said.contains("ZGATE"), format!("no INQUIRY data: {said}"))
}

/// Checks that the gateway refuses a login for this reason.
fn refused(rig: &Rig, user: &str, target: &str, reason: &str) -> io::Result<()> {
    let before = rig.refused_logins(reason)?;
    expect(inquire(rig, user, target, "").is_err(), "the login succeeded")?;
    let refused = rig.refused_logins(reason)? - before;
    expect(refused > 0, format!("no login was refused for {reason}"))
}

fn masked(rig: &Rig) -> io::Result<()> {
    let seen = tool("iscsi-inq", &rig.url("", NAMED, 1, ""), Some(FRIEND))?;
    expect(seen.contains("Qualifier:CONNECTED"), format!("its own LUN: {seen}"))?;
    let hidden = tool("iscsi-inq", &rig.url("", NAMED, 0, ""), Some(FRIEND)).unwrap_or_default();
    expect(!hidden.contains("Qualifier:CONNECTED"), format!("a masked LUN answers: {hidden}"))
}

fn private(rig: &Rig) -> io::Result<()> {
    let log = fs::read_to_string(rig.dir.path().join("zgate.log"))?;
    expect(log.contains("iSCSI login refused"), "no refused login in the log")?;
    expect(!log.contains(IN_SECRET) && !log.contains(OUT_SECRET), "a secret is in the log")?;
    let shown = rig.live(&["acl"])?.to_string();
    expect(shown.contains("mutual chap"), format!("acl: {shown}"))?;
    expect(!shown.contains(IN_SECRET), "a secret is shown")
}

fn image(rig: &Rig) -> io::Result<()> {
    let file = rig.dir.path().join("image");
    let bytes: Vec<u8> = (0..IMAGE_BYTES).map(|at| (at / 511 * 7 + at) as u8).collect();
    fs::write(&file, &bytes)?;
    let url = rig.url("", OPEN, lun::SMALL_PHYSICAL, "");
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&file).arg(&url);
    succeed(&mut convert)?;
    let back = rig.dir.path().join("back");
    let mut read = Command::new("qemu-img");
    read.args(["convert", "-f", "raw", "-O", "raw"]).arg(&url).arg(&back);
    succeed(&mut read)?;
    let read = fs::read(&back)?;
    expect(read.get(..IMAGE_BYTES) == Some(&bytes[..]), "what was read is not what was written")?;
    let mut compare = Command::new("qemu-img");
    compare.args(["compare", "-f", "raw", "-F", "raw"]).arg(&back).arg(&url);
    succeed(&mut compare).map(|_| ())
}

fn patterns(rig: &Rig) -> io::Result<()> {
    let url = rig.url("", OPEN, lun::LARGE_PHYSICAL, "");
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for step in [
        "write -P 0xab 0 1M",
        "write -P 0xcd 512 512",
        "write -z 64k 64k",
        "discard 128k 128k",
        "flush",
        "read -P 0xab 0 512",
        "read -P 0xcd 512 512",
        "read -P 0 64k 64k",
        "read -P 0 128k 128k",
        "read -P 0xab 256k 768k",
    ] {
        command.args(["-c", step]);
    }
    let said = succeed(command.arg(&url))?;
    expect(!said.contains("verification failed"), said)
}

fn live(rig: &Rig) -> io::Result<()> {
    let path = rig.dir.path().join("live").display().to_string();
    rig.live(&["lun", "add", OPEN, "7", &path, "--size", "8MiB"])?;
    let said = tool("iscsi-inq", &rig.url("", OPEN, 7, ""), None)?;
    expect(said.contains("Qualifier:CONNECTED"), format!("the new LUN: {said}"))?;
    let resized = rig.live(&["lun", "resize", OPEN, "7", "16MiB"])?;
    expect(resized["size_bytes"] == 16 << 20, format!("resize: {resized}"))?;
    expect(rig.live(&["lun", "resize", OPEN, "7", "8MiB"]).is_err(), "it shrank")?;
    rig.live(&["lun", "remove", OPEN, "7"])?;
    let targets = rig.live(&["targets"])?.to_string();
    expect(!targets.contains("\"number\":7"), "the LUN is still there")
}
