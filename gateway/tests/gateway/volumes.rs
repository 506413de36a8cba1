//! Volumes made by the API of a whole gateway, and an NFS client that uses them.
//! `zfs` is a script that keeps a dataset as a directory and its properties as
//! files; the lab's `zfs/volumes` has real ones.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::{Fh, OpNum};
use zgate_test_harness::{Client, Gateway, zgate_binary};

const SCRIPTS: [(&str, &str); 2] = [
    ("zpool", "case \"$1\" in events) exec sleep 600;; esac\necho tank"),
    (
        "zfs",
        r#"
P={dir}/props F={dir}/fs missing=
if [ -e {dir}/hangs ]; then echo "cannot open: I/O error" >&2; exit 1; fi
case "$*" in *-j*) echo "invalid option 'j'" >&2; exit 2;; esac
command=$1; shift
depth=0 columns= kind= properties=
while [ $# -gt 1 ]; do
    case $1 in
        -d) case $command in list|get) depth=$2; shift;; esac;;
        -r) depth=9;;
        -t) kind=$2; shift;;
        -s) shift;;
        -o) columns=$2; properties="$properties $2"; shift;;
        -*) ;;
        *) properties="$properties $1";;
    esac
    shift
done
name=$1 names=$1
# A question has several names, and is refused if one of them is not there.
[ "$command" != get ] || names="${properties#* all} $name"
case $command in
    create) mkdir "$P/$name" "$F/$name" || { echo "dataset already exists" >&2; exit 1; }
        date +%s%N >"$P/$name/guid";;
    *) for one in $names; do
        [ -e "$P/${one%@*}/guid" ] || { echo "cannot open '$one': dataset does not exist" >&2; missing=1; }
    done
    [ -z "$missing" ] || exit 1;;
esac
value() {
    case $2 in
        name) echo "$1";; type) echo filesystem;; guid) cat "$P/$1/guid";;
        mountpoint) echo "$F/$1";; mounted) echo yes;; canmount) echo on;;
        available) echo 1000000000000;; used|referenced) echo 4096;;
        recordsize) echo 131072;; sync) echo standard;; logbias) echo latency;;
        snapdir) echo hidden;; compression|encryption) echo off;;
        readonly) cat "$P/$1/=readonly" 2>/dev/null || echo off;;
        volsize|volblocksize|keystatus) echo -;;
        *) cat "$P/$1/=$2" 2>/dev/null || echo 0;;
    esac
}
below() { (cd "$P" && find "$name" -mindepth 1 -maxdepth $((depth + 1)) -name guid) | sed 's,/guid$,,'; }
case $command in
    create|set) for one in $properties; do
        case $one in *=*) echo "${one#*=}" >"$P/$name/=${one%%=*}";; esac
    done;;
    inherit) rm -f "$P/$name/=${properties# }";;
    destroy) rm -rf "${P:?}/$name" "${F:?}/$name";;
    list) [ "$kind" != snapshot ] || exit 0
        below | while read -r one; do
            for column in $(echo "$columns" | tr , ' '); do value "$one" "$column"; done | paste -sd '\t'
        done;;
    get) for name in $names; do below; done | while read -r one; do
            for property in type guid used available refquota readonly mounted mountpoint; do
                printf '%s\t%s\t%s\t-\n' "$one" $property "$(value "$one" $property)"
            done
            for file in "$P/$one"/=*; do
                [ ! -e "$file" ] || printf '%s\t%s\t%s\tlocal\n' "$one" "${file##*=}" "$(cat "$file")"
            done
        done;;
esac
"#,
    ),
];

struct Fixture {
    gateway: Gateway,
    dir: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let mut place = PathBuf::new();
        let more = "[[volumes.parent]]\ndataset = \"tank/k8s\"\npseudo = \"/k8s\"\n";
        let gateway = Gateway::start_prepared(60, more, |dir| {
            place = dir.to_owned();
            for folder in ["bin", "props/tank/k8s", "fs/tank/k8s"] {
                fs::create_dir_all(dir.join(folder)).unwrap();
            }
            for (dataset, guid) in [("tank", "1\n"), ("tank/k8s", "2\n")] {
                fs::write(dir.join("props").join(dataset).join("guid"), guid).unwrap();
            }
            for (name, script) in SCRIPTS {
                let path = dir.join("bin").join(name);
                let script = script.replace("{dir}", &dir.display().to_string());
                fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        });
        Self { gateway, dir: place }
    }

    /// Sends a request by `zgate api`; returns whether it succeeded, and the
    /// answer.
    fn api(&self, method: &str, path: &str, body: &Value) -> (bool, Value) {
        let socket = self.dir.join("api.sock");
        // It is opened after the ports.
        let deadline = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "no socket: {}", self.gateway.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut command = Command::new(zgate_binary());
        command.args(["api", method, path, "--socket"]).arg(socket);
        if !body.is_null() {
            command.args(["--data", &body.to_string()]);
        }
        let done = command.output().unwrap();
        let value = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
        (done.status.success(), value)
    }

    fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        let (succeeded, answer) = self.api(method, path, body);
        assert!(succeeded, "{method} {path}: {answer}\n{}", self.gateway.log());
        answer
    }

    fn volume(&self) -> Value {
        let body = json!({ "name": "a", "parent": "tank/k8s", "owner": "me",
            "kind": "filesystem", "size_bytes": 1 << 30 });
        self.must("POST", "volumes", &body)
    }

    fn at(&self) -> PathBuf {
        self.dir.join("fs/tank/k8s/a")
    }
}

const A: &str = "volumes/tank%2Fk8s%2Fa";

fn root(client: &mut Client) -> Option<Fh> {
    let ops = Ops::new().putrootfh().lookup(b"k8s").lookup(b"a").getfh();
    let mut results = client.call(ops).ok()?;
    results.skip(OpNum::Putrootfh).ok()?;
    results.skip(OpNum::Lookup).ok()?;
    results.skip(OpNum::Lookup).ok()?;
    results.next(OpNum::Getfh).ok()
}

#[test]
fn a_volume_is_served_to_the_nodes_with_access_alone() {
    let mut fixture = Fixture::new();
    let me = json!({ "owner": "me", "addresses": ["127.0.0.1"] });
    let nothing = Value::Null;
    for _ in 0..2 {
        assert_eq!(fixture.volume()["path"], "/k8s/a");
    }
    let mut client = Client::ready(&fixture.gateway, "node");
    assert_eq!(root(&mut client), None, "nobody has access yet");
    let access = fixture.must("PUT", &format!("{A}/access/n1"), &me);
    assert_eq!(access["reach"]["path"], "/k8s/a");
    let found = root(&mut client).unwrap();
    let file = client.create(&found, "file").unwrap();
    client.write(&file, 0, 2, b"kept").unwrap();
    assert_eq!(fs::read(fixture.at().join("file")).unwrap(), b"kept");
    // A file is open.
    let (deleted, why) = fixture.api("DELETE", &format!("{A}?owner=me"), &nothing);
    assert!(!deleted && why["error"]["code"] == "in_use", "{why}");
    // Neither a crash nor a reload changes anything: ZFS has the record.
    fixture.gateway.kill();
    fixture.gateway.restart();
    assert!(fixture.gateway.command(&["reload"]).status.success());
    let mut client = Client::ready(&fixture.gateway, "node");
    assert_eq!(root(&mut client), Some(found));
    assert_eq!(fixture.must("GET", A, &nothing)["access"], json!(["n1"]));
    for _ in 0..2 {
        fixture.must("DELETE", &format!("{A}/access/n1?owner=me"), &nothing);
    }
    assert_eq!(root(&mut client), None);
    for _ in 0..2 {
        fixture.must("DELETE", &format!("{A}?owner=me"), &nothing);
    }
    assert!(!fixture.at().exists() && Path::new(&fixture.dir.join("fs/tank/k8s")).exists());
    let log = fixture.gateway.log();
    let audit = log.lines().filter(|line| line.contains("audit") && line.contains("volume "));
    assert!(audit.count() >= 8, "{log}");
}

#[test]
fn while_zfs_fails_requests_are_answered_and_can_be_repeated() {
    let fixture = Fixture::new();
    fixture.volume();
    let me = json!({ "owner": "me", "addresses": ["127.0.0.1"] });
    fs::write(fixture.dir.join("hangs"), "").unwrap();
    for (method, path) in [
        ("GET", "volumes".to_owned()),
        ("PUT", format!("{A}/access/n1")),
        ("DELETE", format!("{A}?owner=me")),
    ] {
        let body = if method == "PUT" { me.clone() } else { Value::Null };
        let (succeeded, answer) = fixture.api(method, &path, &body);
        assert!(!succeeded && answer["error"]["code"] == "storage", "{method} {path}: {answer}");
    }
    fs::remove_file(fixture.dir.join("hangs")).unwrap();
    fixture.must("PUT", &format!("{A}/access/n1"), &me);
    assert!(root(&mut Client::ready(&fixture.gateway, "node")).is_some());
    fixture.must("DELETE", &format!("{A}?owner=me"), &Value::Null);
}
