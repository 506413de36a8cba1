//! Items that are configured, but absent when the gateway starts or reloads:
//! everything else is served, and they come into service when they appear.

use crate::web_page::address;
use bytes::Bytes;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use zgate_loader::ClientError;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::{Fh, OpNum, Status};
use zgate_test_harness::{Client, Gateway, free_port, zgate_binary};
use zgate_test_initiator::{LoginScript, Lun, Session, read16, write16};

const TARGET: &str = "iqn.2026-11.test.zgate:absent";
const HOST: &str = "iqn.2026-11.test.zgate:host";
const LUN_0: Lun = Lun(0);
const LUN_1: Lun = Lun(0x0001_0000_0000_0000);
const TEST_UNIT_READY: [u8; 6] = [0; 6];
/// The longest something may take to come into service.
const APPEARS_WITHIN: Duration = Duration::from_secs(40);

pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + APPEARS_WITHIN;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn export(pseudo: &str, path: &str, clients: &str) -> String {
    format!("[[export]]\npath = \"{path}\"\npseudo = \"{pseudo}\"\nclients = [{clients}]\n")
}

pub(crate) const LOCAL: &str = "{ match = \"127.0.0.1\", access = \"rw\", squash = \"none\" }";

/// Returns the names of the absent items.
pub(crate) fn absent(gateway: &Gateway) -> Vec<String> {
    names(&gateway.status()["absent"])
}

fn names(items: &Value) -> Vec<String> {
    let items = items.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

fn log(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap()
}

fn lookup(client: &mut Client, path: &[&str]) -> Result<Fh, ClientError> {
    let ops = path.iter().fold(Ops::new().putrootfh(), |ops, name| ops.lookup(name.as_bytes()));
    let mut results = client.call(ops.getfh())?;
    results.skip(OpNum::Putrootfh)?;
    for _ in path {
        results.skip(OpNum::Lookup)?;
    }
    results.next(OpNum::Getfh)
}

fn status_of<T>(result: Result<T, ClientError>) -> Option<Status> {
    result.err().and_then(|error| error.status())
}

fn metrics(gateway: &Gateway) -> String {
    let mut stream = TcpStream::connect(address(gateway)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: z\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

fn reload(gateway: &Gateway) -> Value {
    let output = gateway.command(&["reload", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_path_that_appears_later_is_mounted_then_and_its_old_handles_are_valid() {
    let more = export("/later/models", "{dir}/later", LOCAL);
    let mut gateway = Gateway::start_prepared(10, &more, |dir| {
        fs::create_dir(dir.join("later")).unwrap();
        fs::write(dir.join("later/file"), "kept").unwrap();
    });
    let (later, away) = (gateway.dir.path().join("later"), gateway.dir.path().join("away"));
    let mut client = Client::ready(&gateway, "mounted before");
    let root = lookup(&mut client, &["later", "models"]).unwrap();
    let above = lookup(&mut client, &["later"]).unwrap();
    assert!(absent(&gateway).is_empty());
    drop(client);
    assert!(gateway.stop());
    fs::rename(&later, &away).unwrap();
    gateway.restart();

    // The rest is served.
    let mut client = Client::ready(&gateway, "after the start");
    let export = client.root.clone();
    client.getattr(&export, &[1]).unwrap();
    assert_eq!(status_of(lookup(&mut client, &["later", "models"])), Some(Status::Noent));
    assert_eq!(status_of(client.getattr(&root, &[1])), Some(Status::Delay), "not stale");
    client.getattr(&above, &[1]).unwrap();
    let status = gateway.status();
    assert_eq!(names(&status["absent"]), ["export /later/models"]);
    assert_eq!(status["health"]["verdict"], "failing", "{status:#}");
    let item = &status["absent"][0];
    assert!(item["reason"].as_str().unwrap().contains("/later: No such file"), "{item}");
    assert!(item["next_step"].as_str().unwrap().starts_with("create or mount it"), "{item}");
    assert!(metrics(&gateway).contains("zgate_absent_items{kind=\"export\"} 1\n"));
    let screen = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    assert!(screen.contains("export /later/models is absent: cannot open "), "{screen}");

    fs::rename(&away, &later).unwrap();
    let found = eventually("it appears", || lookup(&mut client, &["later", "models"]).ok());
    assert_eq!(found, root, "the same handle");
    client.lookup(&root, "file").unwrap();
    eventually("it is no longer listed", || absent(&gateway).is_empty().then_some(()));
    assert!(metrics(&gateway).contains("zgate_absent_items{kind=\"export\"} 0\n"));
    let log = log(&gateway);
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!((lines("absent; it comes"), lines("no longer absent")), (1, 1), "{log}");
}

#[test]
fn a_directory_that_cannot_be_opened_yet_is_reported_with_its_present_reason() {
    let more = export("/later", "{dir}/later", LOCAL);
    let gateway = Gateway::start_with(10, &more);
    let later = gateway.dir.path().join("later");
    assert_eq!(absent(&gateway), ["export /later"]);
    fs::write(&later, "a file").unwrap();
    eventually("the reason changes", || {
        let status = gateway.status();
        let reason = status["absent"][0]["reason"].as_str()?.to_owned();
        reason.contains("is not a directory").then_some(())
    });
    fs::remove_file(&later).unwrap();
    fs::create_dir(&later).unwrap();
    let mut client = Client::ready(&gateway, "late");
    eventually("it is served", || lookup(&mut client, &["later"]).ok());
}

#[test]
fn a_host_without_an_address_has_no_access_and_others_have_theirs() {
    let unknown = "{ match = \"no-such-host.invalid\", access = \"ro\", squash = \"none\" }";
    let more = export("/nobody", "{dir}/export", unknown)
        + &export("/limited", "{dir}/export", &format!("{unknown}, {LOCAL}"))
        + &export("/wide", "{dir}/export", &format!("{LOCAL}, {unknown}"));
    let gateway = Gateway::start_with(10, &more);
    assert_eq!(absent(&gateway), ["client no-such-host.invalid"]);
    let status = gateway.status();
    assert_eq!(status["health"]["verdict"], "degraded");
    let reason = status["absent"][0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("(clients of /limited, /nobody, /wide)"), "{reason}");
    let mut client = Client::ready(&gateway, "named elsewhere");
    assert_eq!(status_of(lookup(&mut client, &["nobody"])), Some(Status::Noent));
    // A later entry grants no more than that of the unknown host, which might be
    // this one.
    let limited = lookup(&mut client, &["limited"]).unwrap();
    assert_eq!(status_of(client.create(&limited, "refused")), Some(Status::Rofs));
    let wide = lookup(&mut client, &["wide"]).unwrap();
    client.create(&wide, "allowed").unwrap();
}

/// Starts a gateway whose second LUN is absent.
fn with_disks(more: &str, prepare: impl FnOnce(&Path)) -> (Gateway, SocketAddr) {
    let port = free_port();
    let text = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{{dir}}/zero.img\"\nsize = \"8MiB\"\n\
         [[target.lun]]\nnumber = 1\npath = \"{{dir}}/disks/one.img\"\n{more}"
    );
    let gateway = Gateway::start_prepared(10, &text, prepare);
    (gateway, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn login(portal: SocketAddr) -> Session {
    Session::login(portal, &LoginScript::normal(HOST, TARGET)).unwrap()
}

/// Returns the number of LUNs that REPORT LUNS lists.
fn reported(session: &mut Session) -> usize {
    let cdb = [0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let list = session.run(LUN_0, &cdb, 256, &Bytes::new()).unwrap();
    u32::from_be_bytes(list[..4].try_into().unwrap()) as usize / 8
}

#[test]
fn a_lun_whose_file_appears_later_is_not_ready_until_then() {
    let (gateway, portal) = with_disks("", |_| ());
    assert_eq!(absent(&gateway), [format!("target {TARGET} lun 1")]);
    let mut session = login(portal);
    let data = Bytes::from(vec![7; 4096]);
    session.run(LUN_0, &write16(0, 8, false), 0, &data).unwrap();
    assert_eq!(reported(&mut session), 2);
    let names = session.run(LUN_1, &[0x12, 0, 0, 0, 96, 0], 96, &Bytes::new()).unwrap();
    assert_eq!((names[0], &names[8..13]), (0, &b"ZGATE"[..]), "it says who it is");
    let refused = session.run(LUN_1, &TEST_UNIT_READY, 0, &Bytes::new()).unwrap_err().to_string();
    assert!(refused.contains("\\x04\\x01"), "not NOT READY: {refused}");
    let disks = gateway.dir.path().join("disks");
    fs::create_dir(&disks).unwrap();
    // It appears with its content.
    fs::File::create(gateway.dir.path().join("one.new")).unwrap().set_len(8 << 20).unwrap();
    fs::rename(gateway.dir.path().join("one.new"), disks.join("one.img")).unwrap();
    eventually("it is listed", || absent(&gateway).is_empty().then_some(()));
    // REPORTED LUNS DATA HAS CHANGED, once.
    session.start(LUN_0, &TEST_UNIT_READY, 0, Bytes::new());
    let attention = session.wait().unwrap();
    assert_eq!((attention.status, &attention.sense[12..14]), (2, &[0x3F, 0x0E][..]));
    assert_eq!(reported(&mut session), 2);
    session.run(LUN_1, &write16(8, 8, true), 0, &data).unwrap();
    assert_eq!(session.run(LUN_1, &read16(8, 8), 4096, &Bytes::new()).unwrap(), data);
}

#[test]
fn a_file_that_was_served_before_is_waited_for_and_not_created_empty() {
    let more = "size = \"8MiB\"\n";
    let (mut gateway, portal) = with_disks(more, |dir| fs::create_dir(dir.join("disks")).unwrap());
    let disks = gateway.dir.path().join("disks");
    let inode = fs::metadata(disks.join("one.img")).unwrap().ino();
    assert!(gateway.stop());
    // Its file system is not mounted: the directory below it is there.
    let away = gateway.dir.path().join("away");
    fs::rename(&disks, &away).unwrap();
    fs::create_dir(&disks).unwrap();
    gateway.restart();
    let status = gateway.status();
    let item = &status["absent"][0];
    assert!(item["reason"].as_str().unwrap().contains("was served before"), "{item}");
    assert!(item["next_step"].as_str().unwrap().contains("mount its file system"), "{item}");
    assert!(!disks.join("one.img").exists());
    fs::remove_dir(&disks).unwrap();
    fs::rename(&away, &disks).unwrap();
    eventually("it is back", || absent(&gateway).is_empty().then_some(()));
    assert_eq!(fs::metadata(disks.join("one.img")).unwrap().ino(), inode);
    assert_eq!(reported(&mut login(portal)), 2);
}

/// A file with an absent path, device, host name and address.
fn with_all(dir: &Path, more: &str) -> String {
    fs::create_dir_all(dir.join("good")).unwrap();
    format!(
        "[server]\nlisten = [\"127.0.0.1:{0}\", \"192.0.2.1:{0}\"]\nstate_dir = \"{1}/state\"\n\
         admin_socket = \"{1}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n\
         [[export]]\npath = \"{1}/good\"\npseudo = \"/good\"\nclients = [\"no-such-host.invalid\"]\n\
         [[export]]\npath = \"{1}/missing\"\npseudo = \"/models\"\n\
         [iscsi]\nlisten = [\"127.0.0.1:{2}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"/dev/zvol/no-such-pool/vm0\"\n{more}",
        free_port(),
        dir.display(),
        free_port(),
    )
}

const ALL: [&str; 4] =
    ["no-such-host.invalid", "/missing: No such", "/dev/zvol/no-such-pool/vm0", "192.0.2.1"];

fn run(args: &[&str], file: &Path) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(zgate_binary()).args(args).arg("--config").arg(file).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_strict_start_fails_and_names_everything_that_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zgate.toml");
    fs::write(&file, with_all(dir.path(), "")).unwrap();
    let (code, _, said) = run(&["serve", "--strict"], &file);
    assert_eq!(code, Some(1), "{said}");
    for part in ALL {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    assert!(said.ends_with(": 4 problems\n"), "{said}");
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_strict_gateway_refuses_a_reload_with_something_absent() {
    let dir = tempfile::tempdir().unwrap();
    let (file, socket) = (dir.path().join("zgate.toml"), dir.path().join("admin.sock"));
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = \"{0}/state\"\n\
         admin_socket = \"{0}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n",
        dir.path().display()
    );
    fs::write(&file, &text).unwrap();
    let mut serve = Command::new(zgate_binary());
    serve.args(["serve", "--strict", "--config"]).arg(&file).stderr(Stdio::null());
    let _running = Running(serve.spawn().unwrap());
    let ask_with = |command: &str, more: &[&str]| {
        let mut zgate = Command::new(zgate_binary());
        zgate.args([command, "--json", "--socket"]).arg(&socket).args(more).output().unwrap()
    };
    let ask = |command: &str| ask_with(command, &[]);
    eventually("it serves", || ask("status").status.success().then_some(()));
    let missing = dir.path().join("missing");
    fs::write(&file, text + &export("/a", missing.to_str().unwrap(), LOCAL)).unwrap();
    for more in [&[][..], &["--force"]] {
        let refused = ask_with("reload", more);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("nothing changed"), "{said}");
        assert!(said.contains("--strict") && said.contains("export /a: cannot open "), "{said}");
    }
    let status: Value = serde_json::from_slice(&ask("status").stdout).unwrap();
    assert_eq!((names(&status["absent"]).len(), &status["exports"]), (0, &serde_json::json!([])));
    fs::create_dir(&missing).unwrap();
    assert!(ask("reload").status.success());
}

#[test]
fn config_check_warns_of_what_is_absent_and_strictly_refuses_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zgate.toml");
    fs::write(&file, with_all(dir.path(), "")).unwrap();
    let (code, stdout, stderr) = run(&["config", "check"], &file);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.ends_with(": valid, 2 exports, 1 target, 4 absent now\n"), "{stdout}");
    assert_eq!(stderr.matches("warning: ").count(), ALL.len(), "{stderr}");
    assert_eq!(stderr.matches("the gateway starts without it").count(), ALL.len(), "{stderr}");
    let (code, stdout, _) = run(&["config", "check", "--json"], &file);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &answer["valid"]), (Some(0), &true.into()));
    let keys: Vec<_> = answer["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["key"].as_str().unwrap())
        .collect();
    let lun = format!("target {TARGET} lun 0.path");
    let expected =
        ["server.listen", "export /good.clients.match", "export /models.path", lun.as_str()];
    assert_eq!(keys, expected);
    let (code, stdout, stderr) = run(&["config", "check", "--strict"], &file);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(stderr.matches("error: ").count(), ALL.len(), "{stderr}");
    // What is wrong stays an error, and warnings are shown beside it.
    fs::write(&file, with_all(dir.path(), "block_bytes = 1000\n")).unwrap();
    let (code, _, stderr) = run(&["config", "check"], &file);
    assert_eq!(code, Some(1));
    assert_eq!((stderr.matches("error: ").count(), stderr.matches("warning: ").count()), (1, 4));
    let (code, _, _) = run(&["serve"], &file);
    assert_eq!(code, Some(1), "contradictory settings are never absent");
}

#[test]
fn a_reload_applies_the_rest_and_lists_what_is_absent() {
    let (gateway, portal) = with_disks("", |dir| fs::create_dir(dir.join("here")).unwrap());
    let config = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let place = |name: &str| format!("{}/{name}", gateway.dir.path().display());
    let more =
        export("/missing", &place("missing"), LOCAL) + &export("/here", &place("here"), LOCAL);
    fs::write(&config, format!("{text}{more}")).unwrap();
    let mut client = Client::ready(&gateway, "steady");
    let (root, mut session) = (client.root.clone(), login(portal));
    let file = client.create(&root, "open").unwrap();
    let answer = reload(&gateway);
    let lun = format!("target {TARGET} lun 1");
    assert_eq!(names(&answer["absent"]), ["export /missing", lun.as_str()]);
    let said = String::from_utf8(gateway.command(&["reload"]).stdout).unwrap();
    assert!(said.contains("absent   export /missing: cannot open "), "{said}");
    lookup(&mut client, &["here"]).unwrap();
    client.write(&file, 0, 2, b"goes on").unwrap();
    assert_eq!(reported(&mut session), 2);
    // It is there before the next reload: that serves it at once.
    fs::create_dir(place("missing")).unwrap();
    assert_eq!(names(&reload(&gateway)["absent"]), [lun]);
    lookup(&mut client, &["missing"]).unwrap();
    // What is no longer configured is no longer absent.
    fs::write(&config, text.replace("disks/one.img", "zero.img.other")).unwrap();
    fs::File::create(place("zero.img.other")).unwrap().set_len(8 << 20).unwrap();
    assert!(names(&reload(&gateway)["absent"]).is_empty());
    // A contradiction changes nothing.
    fs::write(&config, format!("{text}{}", export("/export/inside", &place("x"), LOCAL))).unwrap();
    assert!(!gateway.command(&["reload"]).status.success());
    client.write(&file, 0, 2, b"still").unwrap();
}

#[test]
fn live_commands_know_absent_luns() {
    let (gateway, _) = with_disks("", |_| ());
    let other = gateway.dir.path().join("other.img");
    fs::File::create(&other).unwrap().set_len(8 << 20).unwrap();
    let add = ["lun", "add", TARGET, "1", other.to_str().unwrap()];
    let refused = gateway.command(&add);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("lun 1 exists already"), "{said}");
    assert!(gateway.command(&["acl", "add", TARGET, HOST, "--luns", "1"]).status.success());
    // It stands in the main file.
    let remove = ["lun", "remove", TARGET, "1"];
    assert!(!gateway.command(&remove).status.success());
    assert_eq!(absent(&gateway), [format!("target {TARGET} lun 1")]);
    for command in [&remove[..], &add] {
        assert!(gateway.command(&[command, &["--runtime-only"]].concat()).status.success());
    }
    eventually("it is no longer listed", || absent(&gateway).is_empty().then_some(()));
}

#[test]
fn the_gateway_listens_on_an_address_before_it_exists() {
    let port = free_port();
    let more = format!("[iscsi]\nlisten = [\"127.0.0.1:{port}\", \"192.0.2.1:{port}\"]\n");
    let gateway = Gateway::start_with(10, &more);
    assert_eq!(absent(&gateway), [format!("iSCSI address 192.0.2.1:{port}")]);
    Client::ready(&gateway, "elsewhere");
}

#[test]
fn a_path_that_is_moved_away_is_absent_until_there_is_one_again() {
    let more = export("/more", "{dir}/more", LOCAL);
    let gateway = Gateway::start_prepared(60, &more, |dir| {
        fs::create_dir(dir.join("more")).unwrap();
        fs::write(dir.join("more/old"), "").unwrap();
    });
    let at = |name: &str| gateway.dir.path().join(name);
    let mut client = Client::ready(&gateway, "place");
    let old = lookup(&mut client, &["more", "old"]).unwrap();
    fs::rename(at("more"), at("away")).unwrap();
    eventually("it is absent", || {
        absent(&gateway).contains(&"export /more".to_owned()).then_some(())
    });
    assert_ne!(status_of(lookup(&mut client, &["more", "old"])), None);
    let root = client.root.clone();
    assert!(client.create(&root, "other").is_ok(), "other exports are served");
    // Another directory takes its place.
    fs::create_dir(at("more")).unwrap();
    fs::write(at("more/new"), "").unwrap();
    let new = eventually("it is served", || lookup(&mut client, &["more", "new"]).ok());
    assert_ne!(old, new);
    assert!(absent(&gateway).is_empty());
    // And one that is put there while it is served.
    fs::rename(at("more"), at("gone")).unwrap();
    fs::rename(at("away"), at("more")).unwrap();
    eventually("the first one is back", || lookup(&mut client, &["more", "old"]).ok());
}
