//! Live commands and reloads where something is absent: what a file of `conf.d`
//! names may come later, and nothing in use is given up for what is not there.

use crate::absent::{LOCAL, absent, eventually, export};
use crate::live_changes::{
    HOST, TARGET, done, image, live_file, log, logged, login, numbers, reads, said, start,
};
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Output};
use zgate_test_harness::{Client, Gateway, zgate_binary};

fn lun(number: u16) -> String {
    format!("target {TARGET} lun {number}")
}

/// Adds a LUN over a file that is there already.
fn add_present(gateway: &Gateway, number: u16) {
    let path = image(gateway, number);
    fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    done(gateway, &["lun", "add", TARGET, &number.to_string(), &path]);
}

fn count(log: &str, parts: &[&str]) -> usize {
    log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

/// Runs a command that takes the configuration; returns whether it succeeded,
/// and all it printed.
fn examined(gateway: &Gateway, args: &[&str]) -> (bool, String) {
    let main = gateway.dir.path().join("zgate.toml");
    let Output { status, stdout, stderr } =
        Command::new(zgate_binary()).args(args).arg("--config").arg(main).output().unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_lun_that_a_live_change_added_may_be_absent_at_the_next_start() {
    let (mut gateway, address) = start();
    add_present(&gateway, 7);
    let kept = fs::read_to_string(live_file(&gateway)).unwrap();
    gateway.stop();
    let (path, away) = (image(&gateway, 7), image(&gateway, 70));
    fs::rename(&path, &away).unwrap();
    // Whatever points to it points to its file.
    let line = kept.lines().position(|line| line.starts_with("path = ")).unwrap() + 1;
    let place = format!("{}:{line}:8", live_file(&gateway).display());
    let (valid, text) = examined(&gateway, &["config", "check"]);
    assert!(valid && text.contains(&format!("--> {place}")), "{place} is missing in {text}");
    assert!(text.contains(&format!("warning: target {TARGET} lun 7.path: ")), "{text}");
    assert!(
        text.contains("1 absent now") && text.contains(&format!("path = \"{path}\"")),
        "{text}"
    );
    let (valid, text) = examined(&gateway, &["config", "check", "--json"]);
    let file = format!("\"file\":\"{}\"", live_file(&gateway).display());
    assert!(valid && text.contains(&file), "{file} is missing in {text}");
    for args in [&["config", "check", "--strict"][..], &["serve", "--strict"]] {
        let (valid, text) = examined(&gateway, args);
        assert!(!valid && text.contains(&format!("--> {place}")), "{args:?}: {text}");
    }
    gateway.restart();
    assert_eq!((absent(&gateway), numbers(&gateway)), (vec![lun(7)], vec![1]));
    assert_eq!(fs::read_to_string(live_file(&gateway)).unwrap(), kept);
    fs::rename(&away, &path).unwrap();
    eventually("it is served", || absent(&gateway).is_empty().then_some(()));
    assert_eq!(numbers(&gateway), [1, 7]);
    assert!(reads(&mut login(address).unwrap(), 7));
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
}

#[test]
fn an_absent_lun_is_removed_for_good() {
    let (mut gateway, address) = start();
    add_present(&gateway, 7);
    gateway.stop();
    let (path, away) = (image(&gateway, 7), image(&gateway, 70));
    fs::rename(&path, &away).unwrap();
    gateway.restart();
    let mut session = login(address).unwrap();
    // Only for now: the next reload has it again, and it is still absent.
    done(&gateway, &["lun", "remove", TARGET, "7", "--runtime-only"]);
    assert!(absent(&gateway).is_empty());
    let text = done(&gateway, &["reload"]);
    assert!(text.contains("added    LUN 7") && text.contains("absent   target "), "{text}");
    // Nobody uses what is absent: the session is in nobody's way.
    let text = done(&gateway, &["lun", "remove", TARGET, "7"]);
    assert!(text.contains("kept_in: "), "{text}");
    assert!(absent(&gateway).is_empty());
    fs::rename(&away, &path).unwrap();
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
    assert!(reads(&mut session, 1));
    gateway.stop();
    gateway.restart();
    assert_eq!((absent(&gateway), numbers(&gateway)), (vec![], vec![1]));
}

#[test]
fn an_absent_path_cannot_be_added_live() {
    let (gateway, _) = start();
    let path = image(&gateway, 7);
    for more in [&[][..], &["--runtime-only"]] {
        let add = ["lun", "add", TARGET, "7", &path];
        let (success, text) = said(&gateway, &[&add, more].concat());
        for part in ["lun 7: cannot open /", "No such file", "; import its pool, create the"] {
            assert!(!success && text.contains(part), "{part} is missing in {text}");
        }
    }
    logged(&gateway, &[" audit: change refused ", "lun add", "cannot open "]);
    assert!(!live_file(&gateway).exists());
    assert_eq!((absent(&gateway), numbers(&gateway)), (vec![], vec![1]));
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
}

#[test]
fn a_reload_takes_no_disk_away_for_an_absent_one_unless_forced() {
    let (gateway, address) = start();
    add_present(&gateway, 7);
    let mut session = login(address).unwrap();
    assert!(reads(&mut session, 7));
    // An item that is absent, but takes nothing away, is no reason to refuse.
    let main = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&main).unwrap();
    fs::write(&main, text + &export("/later", &image(&gateway, 99), LOCAL)).unwrap();
    let answer = done(&gateway, &["reload"]);
    assert!(answer.contains("added    export /later"), "{answer}");
    assert!(answer.contains("absent   export /later: cannot open "), "{answer}");
    // Nor is the loss of a file that is served and open.
    let file = live_file(&gateway);
    let kept = fs::read_to_string(&file).unwrap();
    fs::write(&file, kept.replace("/7.img", "/missing.img")).unwrap();
    let user =
        format!("LUN 7, which would be absent, of target {TARGET}: initiator {HOST} at 127.0.0.1");
    let (success, text) = said(&gateway, &["reload"]);
    assert!(!success && text.contains(&user) && text.contains("--force"), "{text}");
    gateway.signal(Signal::HUP);
    logged(&gateway, &[" audit: change refused ", "by=SIGHUP", "which would be absent"]);
    assert_eq!(absent(&gateway), ["export /later"], "nothing was applied");
    assert!(reads(&mut session, 7));
    let forced = done(&gateway, &["reload", "--force"]);
    assert!(forced.contains(&format!("absent   {}", lun(7))), "{forced}");
    assert_eq!(absent(&gateway), ["export /later".to_owned(), lun(7)]);
    assert!(!(0..3).all(|_| reads(&mut session, 7)));
    assert!(reads(&mut session, 1), "the session stays");
    // Each of these reloads has its audit lines once.
    let log = log(&gateway);
    let lines = |parts: &[&str]| count(&log, &[&[" audit: change "], parts].concat());
    assert_eq!(lines(&["what=\"reload\"", "added export /later"]), 1, "{log}");
    assert_eq!(lines(&["what=\"reload\"", "done, changes: 2, absent: 1"]), 1, "{log}");
    assert_eq!(lines(&["what=\"reload --force\"", "done, changes: 1, absent: 2"]), 1, "{log}");
    assert_eq!(count(&log, &[" audit: change refused ", "by=SIGHUP"]), 1, "{log}");
    assert_eq!(count(&log, &["absent; it comes into service", "export /later"]), 1, "{log}");
}

#[test]
fn a_disk_whose_file_has_gone_stays_with_its_user() {
    let (gateway, address) = start();
    add_present(&gateway, 7);
    let mut session = login(address).unwrap();
    fs::remove_file(image(&gateway, 7)).unwrap();
    assert!(done(&gateway, &["reload"]).contains("no entry has changed"));
    assert!(reads(&mut session, 7) && absent(&gateway).is_empty());
}

#[test]
fn a_reload_takes_no_open_file_away_for_an_absent_path_unless_forced() {
    let (gateway, _) = start();
    let main = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&main).unwrap();
    let mut client = Client::ready(&gateway, "gpu07");
    let root = client.root.clone();
    let file = client.create(&root, "open").unwrap();
    let path = gateway.export().display().to_string();
    fs::write(&main, text.replace(&path, &format!("{path}-missing"))).unwrap();
    let (success, text) = said(&gateway, &["reload"]);
    let user = "export /export, which would be absent: client ";
    for part in [user, "gpu07", "(1 opens, ", "--force"] {
        assert!(!success && text.contains(part), "{part} is missing in {text}");
    }
    client.write(&file, 0, 2, b"still there").unwrap();
    assert!(absent(&gateway).is_empty());
    let forced = done(&gateway, &["reload", "--force"]);
    assert!(forced.contains("absent   export /export: cannot open "), "{forced}");
    assert_eq!(absent(&gateway), ["export /export"]);
    assert!(client.getattr(&root, &[1]).is_err());
}
