//! Live commands: changes that last, a reload that takes nothing away from its
//! users, and the audit lines of both.

use bytes::Bytes;
use rustix::process::Signal;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use zgate_test_harness::{Client, Gateway, free_port, zgate_binary};
use zgate_test_initiator::{LoginScript, Lun, Session, read16};

pub(crate) const TARGET: &str = "iqn.2026-11.test.zgate:live";
pub(crate) const HOST: &str = "iqn.2026-11.test.zgate:host";
/// Number of the attribute owner (RFC 8881 §5.8).
const OWNER: u32 = 36;
/// The longest a line of the log is waited for.
const LOG_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a gateway with a target of one LUN, number 1, for [`HOST`].
pub(crate) fn start() -> (Gateway, SocketAddr) {
    let port = free_port();
    let more = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\n\
         [[target.lun]]\nnumber = 1\npath = \"{{dir}}/one.img\"\nsize = \"8MiB\"\n\
         [[target.initiator]]\nname = \"{HOST}\"\n"
    );
    (Gateway::start_with(60, &more), SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Runs a command; returns whether it succeeded, and all it printed.
pub(crate) fn said(gateway: &Gateway, args: &[&str]) -> (bool, String) {
    let output = gateway.command(args);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// Runs a command that must succeed.
pub(crate) fn done(gateway: &Gateway, args: &[&str]) -> String {
    let (success, text) = said(gateway, args);
    assert!(success, "{args:?}: {text}");
    text
}

pub(crate) fn image(gateway: &Gateway, number: u16) -> String {
    gateway.dir.path().join(format!("{number}.img")).display().to_string()
}

fn add(gateway: &Gateway, number: u16, more: &[&str]) -> (bool, String) {
    let (path, number) = (image(gateway, number), number.to_string());
    let args = ["lun", "add", TARGET, &number, &path, "--size", "8MiB"];
    said(gateway, &[&args, more].concat())
}

pub(crate) fn numbers(gateway: &Gateway) -> Vec<u64> {
    let luns = gateway.status()["targets"][0]["luns"].clone();
    let numbers = luns.as_array().unwrap().iter().map(|lun| lun["number"].as_u64().unwrap());
    numbers.collect()
}

pub(crate) fn live_file(gateway: &Gateway) -> PathBuf {
    gateway.dir.path().join("conf.d/live.toml")
}

pub(crate) fn log(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap()
}

/// Waits for a line of the log that has all these parts.
pub(crate) fn logged(gateway: &Gateway, parts: &[&str]) -> String {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let log = log(gateway);
        let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
        if let Some(line) = log.lines().find(has_all) {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "no line has {parts:?}:\n{log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn login(address: SocketAddr) -> std::io::Result<Session> {
    Session::login(address, &LoginScript::normal(HOST, TARGET))
}

pub(crate) fn reads(session: &mut Session, lun: u64) -> bool {
    session.run(Lun(lun << 48), &read16(0, 8), 4096, &Bytes::new()).is_ok()
}

#[test]
fn a_live_change_survives_reload_and_restart() {
    let (mut gateway, address) = start();
    let (success, text) = add(&gateway, 7, &["--thick"]);
    let file = live_file(&gateway);
    assert!(success && text.contains(&format!("kept_in: {}", file.display())), "{text}");
    let other = "iqn.2026-11.test.zgate:other";
    done(&gateway, &["acl", "add", TARGET, other, "--luns", "7"]);
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
    let mut session = login(address).unwrap();
    assert!(reads(&mut session, 7));
    drop(session);
    for _ in 0..2 {
        assert_eq!(numbers(&gateway), [1, 7]);
        let acl = done(&gateway, &["acl"]);
        assert!(acl.contains(other), "{acl}");
        gateway.stop();
        gateway.restart();
    }
    let mut as_other = Session::login(address, &LoginScript::normal(other, TARGET)).unwrap();
    assert!(reads(&mut as_other, 7) && !reads(&mut as_other, 1));
    drop(as_other);
    // The rule names the LUN.
    let (success, text) = said(&gateway, &["lun", "remove", TARGET, "7"]);
    assert!(!success && text.contains("the target has no lun 7"), "{text}");
    done(&gateway, &["acl", "remove", TARGET, other]);
    done(&gateway, &["lun", "remove", TARGET, "7"]);
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
    gateway.stop();
    gateway.restart();
    assert_eq!(numbers(&gateway), [1]);
    assert!(!done(&gateway, &["acl"]).contains(other));
}

#[test]
fn comments_are_kept_and_edits_by_hand_apply() {
    let (gateway, _) = start();
    assert!(add(&gateway, 7, &[]).0);
    let file = live_file(&gateway);
    let text = fs::read_to_string(&file).unwrap();
    let edited = text.replace("[[target.lun]]", "# for the database\n[[target.lun]] # seven");
    fs::write(&file, edited).unwrap();
    assert!(add(&gateway, 8, &[]).0);
    done(&gateway, &["lun", "remove", TARGET, "8"]);
    let text = fs::read_to_string(&file).unwrap();
    for comment in ["# Changes by `zgate lun`", "# for the database", "# seven"] {
        assert!(text.contains(comment), "{text}");
    }
    let nine = text.replace("number = 7", "number = 9").replace("/7.img", "/9.img");
    fs::write(&file, nine).unwrap();
    let changes = done(&gateway, &["reload"]);
    assert!(changes.contains("added    LUN 9") && changes.contains("removed  LUN 7"), "{changes}");
    assert_eq!(numbers(&gateway), [1, 9]);
    // A mistake there is told where it stands, by everything that reads it.
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("number = 9", "nunber = 9"))
        .unwrap();
    let main = gateway.dir.path().join("zgate.toml");
    let check = Command::new(zgate_binary()).args(["config", "check"]).arg(&main).output().unwrap();
    let check = String::from_utf8(check.stderr).unwrap();
    assert!(check.contains("conf.d/live.toml:") && check.contains("| nunber = 9"), "{check}");
    for args in [&["reload"][..], &["lun", "remove", TARGET, "9"]] {
        let (success, text) = said(&gateway, args);
        assert!(!success && text.contains("live.toml:") && text.contains("nunber"), "{text}");
    }
    assert_eq!(numbers(&gateway), [1, 9]);
}

#[test]
fn a_runtime_only_change_ends_with_the_next_reload_which_says_so() {
    let (gateway, _) = start();
    let (success, text) = add(&gateway, 7, &["--runtime-only"]);
    assert!(success && text.contains("until the next reload or restart"), "{text}");
    assert!(!live_file(&gateway).exists());
    let changes = done(&gateway, &["reload"]);
    let line = format!("removed  LUN 7 of target {TARGET}");
    assert!(
        changes.contains(&line) && changes.contains("a --runtime-only change ends"),
        "{changes}"
    );
    assert_eq!(numbers(&gateway), [1]);
    // What stands in the main file is left to those who edit it.
    let (success, text) = said(&gateway, &["lun", "remove", TARGET, "1"]);
    assert!(!success && text.contains("zgate.toml:"), "{text}");
    assert!(text.contains("remove it there, then `zgate reload`"), "{text}");
    let (success, text) = said(&gateway, &["acl", "remove", TARGET, HOST]);
    assert!(!success && text.contains("zgate.toml:"), "{text}");
    assert_eq!(numbers(&gateway), [1]);
    done(&gateway, &["lun", "remove", TARGET, "1", "--runtime-only"]);
    assert_eq!(numbers(&gateway), Vec::<u64>::new());
    let changes = done(&gateway, &["reload"]);
    assert!(changes.contains("added    LUN 1"), "{changes}");
    assert!(changes.contains("a --runtime-only change ends"), "{changes}");
    assert_eq!(numbers(&gateway), [1]);
    // Added and removed: nothing is left to be dropped.
    assert!(add(&gateway, 7, &["--runtime-only"]).0);
    let text = done(&gateway, &["lun", "remove", TARGET, "7"]);
    assert!(text.contains("no file of the configuration had it"), "{text}");
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
}

#[test]
fn commands_at_the_same_time_lose_nothing() {
    let (mut gateway, _) = start();
    let added: Vec<u16> = (10..18).collect();
    std::thread::scope(|scope| {
        for number in &added {
            let gateway = &gateway;
            scope.spawn(move || {
                let (success, text) = add(gateway, *number, &[]);
                assert!(success, "{text}");
            });
            gateway.signal(Signal::HUP);
        }
    });
    let all: Vec<u64> = [1].into_iter().chain(added.iter().copied().map(u64::from)).collect();
    assert_eq!(numbers(&gateway), all);
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
    gateway.kill();
    gateway.restart();
    assert_eq!(numbers(&gateway), all);
}

#[test]
fn a_reload_takes_no_disk_away_from_its_user_unless_forced() {
    let (gateway, address) = start();
    assert!(add(&gateway, 7, &[]).0);
    let mut session = login(address).unwrap();
    assert!(reads(&mut session, 7));
    fs::remove_file(live_file(&gateway)).unwrap();
    let (success, text) = said(&gateway, &["reload"]);
    let user = format!("LUN 7 of target {TARGET}: initiator {HOST} at 127.0.0.1");
    for part in ["nothing changed", user.as_str(), "`zgate reload --force`"] {
        assert!(!success && text.contains(part), "{part} is missing in {text}");
    }
    gateway.signal(Signal::HUP);
    logged(&gateway, &[" audit: change refused ", "by=SIGHUP", &user, "zgate reload --force"]);
    assert!(reads(&mut session, 7), "nothing was applied");
    // A rule that admits a host which is logged in is not taken away either.
    let main = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&main).unwrap();
    fs::write(&main, text.replace(HOST, "iqn.2026-11.test.zgate:nobody")).unwrap();
    let (success, text) = said(&gateway, &["reload"]);
    assert!(!success && text.contains("no rule admits it any longer"), "{text}");
    let forced = done(&gateway, &["reload", "--force"]);
    assert!(forced.contains("removed  LUN 7") && forced.contains("removed  rule"), "{forced}");
    assert!(!(0..3).all(|_| reads(&mut session, 7)));
    assert!(login(address).is_err());
}

#[test]
fn a_reload_takes_no_open_file_away_unless_forced() {
    let (gateway, _) = start();
    let main = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&main).unwrap();
    let mut client = Client::ready(&gateway, "gpu07");
    let root = client.root.clone();
    let file = client.create(&root, "open").unwrap();
    let without = |host: &str| text.replace("match = \"127.0.0.1\"", host);
    let (begin, end) = (text.find("[[export]]").unwrap(), text.find("[iscsi]").unwrap());
    let removed = format!("{}{}", &text[..begin], &text[end..]);
    for (config, why) in [
        (removed.clone(), "export /export: client "),
        (without("match = \"127.0.0.9\""), "where no rule names it any longer: client "),
    ] {
        fs::write(&main, config).unwrap();
        let (success, said) = said(&gateway, &["reload"]);
        for part in [why, "gpu07", "at 127.0.0.1", "(1 opens, ", "`zgate reload --force`"] {
            assert!(!success && said.contains(part), "{part} is missing in {said}");
        }
    }
    client.write(&file, 0, 2, b"still there").unwrap();
    // Another export is nothing to the client.
    fs::create_dir(gateway.dir.path().join("second")).unwrap();
    let second = gateway.dir.path().join("second").display().to_string();
    fs::write(&main, format!("{text}[[export]]\npath = \"{second}\"\npseudo = \"/second\"\n"))
        .unwrap();
    done(&gateway, &["reload"]);
    fs::write(&main, &text).unwrap();
    done(&gateway, &["reload"]);
    // Nor is an export without open files.
    client.close(&file).unwrap();
    fs::write(&main, &removed).unwrap();
    let said = said(&gateway, &["reload", "--force"]);
    assert!(said.0 && said.1.contains("removed  export /export"), "{}", said.1);
    assert!(client.getattr(&root, &[1]).is_err());
}

#[test]
fn a_reload_that_is_refused_leaves_names_as_they_are() {
    let gateway = Gateway::start(60);
    let main = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&main).unwrap();
    let mut client = Client::ready(&gateway, "gpu07");
    let root = client.root.clone();
    client.create(&root, "open").unwrap();
    let owner = |client: &mut Client| {
        let values = client.getattr(&root, &[OWNER]).unwrap().values.0;
        String::from_utf8_lossy(&values).into_owned()
    };
    let number = owner(&mut client);
    let named = text.replace("[server]\n", "[server]\nid_domain = \"example.org\"\n");
    // The export has an open file.
    fs::write(&main, &named[..named.find("[[export]]").unwrap()]).unwrap();
    let (success, text) = said(&gateway, &["reload"]);
    assert!(!success && text.contains("nothing changed"), "{text}");
    assert_eq!(owner(&mut client), number);
    fs::write(&main, &named).unwrap();
    done(&gateway, &["reload"]);
    let name = owner(&mut client);
    assert!(name.contains("@example.org"), "{name}");
}

#[test]
fn a_directory_that_cannot_be_written_refuses_the_change() {
    let (gateway, _) = start();
    // Nobody can create a directory there, root neither.
    std::os::unix::fs::symlink("/proc/nosuch/x", gateway.dir.path().join("conf.d")).unwrap();
    let (success, text) = add(&gateway, 7, &[]);
    for part in ["conf.d", "nothing has changed", "ReadWritePaths=", "--runtime-only"] {
        assert!(!success && text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(numbers(&gateway), [1]);
    assert!(!PathBuf::from(image(&gateway, 7)).exists(), "nothing is left behind");
    let other = "iqn.2026-11.test.zgate:other";
    assert!(!said(&gateway, &["acl", "add", TARGET, other]).0);
    assert!(add(&gateway, 7, &["--runtime-only"]).0);
    assert_eq!(numbers(&gateway), [1, 7]);
}

#[test]
fn refusals_and_changes_have_audit_lines() {
    let (gateway, address) = start();
    // A name with what turns the direction of writing, and looks like a field.
    let hostile = "iqn.2026-11.test.zgate:\u{202e}x\" reason=\"none";
    assert!(Session::login(address, &LoginScript::normal(hostile, TARGET)).is_err());
    let refused = logged(&gateway, &[" audit: iSCSI login refused "]);
    let target = format!("target=\"{TARGET}\"");
    for part in ["peer=127.0.0.1:", &target, "initiator=\"iqn.2026-11.test.zgate:", "u{202e}x\\\""]
    {
        assert!(refused.contains(part), "{part} is missing in {refused}");
    }
    assert!(!log(&gateway).contains('\u{202e}'), "{refused}");
    let uid = rustix::process::getuid().as_raw();
    let by = format!("by=uid {uid} pid ");
    let line = |kind: &str, what: &str| {
        let what = format!("what=\"{what}");
        logged(&gateway, &[&format!(" audit: {kind} "), &by, &what])
    };
    assert!(add(&gateway, 7, &[]).0);
    assert!(line("change", &format!("lun add {TARGET} 7 /")).contains("done, kept in /"));
    assert!(!add(&gateway, 7, &[]).0);
    assert!(line("change refused", &format!("lun add {TARGET} 7 /")).contains("exists already"));
    let other = "iqn.2026-11.test.zgate:other";
    done(&gateway, &["acl", "add", TARGET, other, "--runtime-only"]);
    line("change", &format!("acl add {TARGET} {other} --runtime-only"));
    done(&gateway, &["lun", "resize", TARGET, "7", "16MiB"]);
    line("change", &format!("lun resize {TARGET} 7 16777216"));
    done(&gateway, &["reload"]);
    let dropped = logged(&gateway, &[" audit: change ", &by, "what=\"reload\"", "removed rule"]);
    assert!(dropped.contains(other) && dropped.contains("--runtime-only"), "{dropped}");
    done(&gateway, &["drain"]);
    line("change", "drain");
}

#[test]
fn a_host_that_no_export_names_has_one_audit_line_and_is_counted() {
    let gateway = Gateway::start(60);
    let stranger = IpAddr::from([127, 0, 0, 6]);
    for _ in 0..5 {
        assert!(Client::connect_from(&gateway, stranger, "stranger", "export").is_err());
    }
    let line = logged(&gateway, &[" audit: NFS refused ", "address=127.0.0.6"]);
    assert!(line.contains("no export names this host"), "{line}");
    let lines = log(&gateway).matches("audit: NFS refused").count();
    assert_eq!(lines, 1, "{}", log(&gateway));
}

#[test]
fn a_wrong_security_flavour_has_an_audit_line() {
    let more = "[[export]]\npath = \"{dir}/export\"\npseudo = \"/anonymous\"\n\
        clients = [{ match = \"127.0.0.1\", security = [\"none\"] }]\n";
    let gateway = Gateway::start_with(60, more);
    let host = IpAddr::from(Ipv4Addr::LOCALHOST);
    assert!(Client::connect_from(&gateway, host, "sys", "anonymous").is_err());
    let line = logged(&gateway, &[" audit: NFS refused ", "address=127.0.0.1"]);
    assert!(line.contains("export=\"/anonymous\"") && line.contains("flavour"), "{line}");
}
