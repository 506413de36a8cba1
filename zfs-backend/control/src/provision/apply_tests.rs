use super::*;
use crate::provision::{Found, Layout, plan};
use crate::tool::Recorded;
use std::cell::Cell;

const LAYOUT: &str = r#"
[pool]
name = "p"
mountpoint = "/p"
properties = { ashift = 12 }
filesystem = { atime = "off" }
[[device]]
name = "a"
path = "/dev/disk/by-id/a"
size = "1GiB"
sector_bytes = 512
partitions = [{ name = "x", size = "rest" }]
[[device]]
name = "b"
path = "/dev/disk/by-id/b"
size = "1GiB"
sector_bytes = 512
partitions = [{ name = "x", size = "rest" }]
[[vdev]]
type = "mirror"
devices = ["a.x", "b.x"]
[[dataset]]
name = "d"
"#;

/// Disks as the layout describes them, except for the answer that a test sets
/// for `b`.
struct Disks {
    second: Result<Found, String>,
    looks: Cell<u32>,
}

fn disk(path: &str) -> Found {
    Found {
        canonical: PathBuf::from(path),
        size_bytes: 1 << 30,
        sector_bytes: Some(512),
        occupants: Vec::new(),
    }
}

fn disks() -> Disks {
    Disks { second: Ok(disk("/dev/sdb")), looks: Cell::new(0) }
}

impl Machine for Disks {
    fn look(&self, path: &Path) -> Result<Found, String> {
        self.looks.set(self.looks.get() + 1);
        match path.to_str().unwrap() {
            "/dev/disk/by-id/a" => Ok(disk("/dev/sda")),
            "/dev/disk/by-id/b" => self.second.clone(),
            part => Ok(Found { size_bytes: 1022 << 20, ..disk(part) }),
        }
    }
}

fn checks(mut tool: Recorded) -> Recorded {
    tool = tool.then_fail("zpool list -H -o name p", 1, "cannot open 'p': no such pool");
    for path in ["/dev/disk/by-id/a", "/dev/disk/by-id/b"] {
        tool = tool
            .then(&format!("wipefs --noheadings --output TYPE,OFFSET {path}"), "")
            .then_fail(&format!("blkid --probe --output export {path}"), 2, "")
            .then_fail(&format!("zdb -l {path}"), 2, "");
    }
    tool
}

fn parted(tool: Recorded) -> Recorded {
    tool.then(
        "parted --script --align optimal /dev/disk/by-id/a mklabel gpt mkpart x 1MiB 1023MiB",
        "",
    )
    .then("parted --script --align optimal /dev/disk/by-id/b mklabel gpt mkpart x 1MiB 1023MiB", "")
    .then("udevadm settle --timeout=30", "")
}

const CREATE: &str = "zpool create -o ashift=12 -O atime=off -m /p p mirror /dev/disk/by-id/a-part1 /dev/disk/by-id/b-part1";

fn run(tool: &Recorded, disks: &Disks, hash: Option<&str>) -> Result<Vec<String>, ApplyError> {
    let plan = plan(&Layout::parse(LAYOUT).unwrap(), false).unwrap();
    let mut seen = Vec::new();
    let mut progress = |progress: Progress<'_>| {
        if let Progress::Done(number, count, step) = progress {
            seen.push(format!("{number}/{count} {}", step.title));
        }
    };
    apply(&plan, hash.unwrap_or(&plan.hash), tool, disks, &mut progress)?;
    Ok(seen)
}

#[test]
fn all_steps_on_empty_disks() {
    let tool = parted(checks(Recorded::default())).then(CREATE, "").then("zfs create p/d", "");
    let seen = run(&tool, &disks(), None).unwrap();
    assert!(tool.is_done());
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[4], "5/5 create the file system p/d");
}

#[test]
fn another_hash_touches_nothing() {
    let disks = disks();
    let error = run(&Recorded::default(), &disks, Some("abc")).unwrap_err();
    assert!(matches!(error, ApplyError::Hash { .. }), "{error}");
    assert_eq!(disks.looks.get(), 0);
}

#[test]
fn a_disk_that_is_not_as_described_or_not_empty_is_refused() {
    let wrong = [
        (Err("is not there".to_owned()), "b (/dev/disk/by-id/b): is not there"),
        (Ok(Found { size_bytes: 5, ..disk("/dev/sdb") }), "has 5 bytes"),
        (Ok(Found { sector_bytes: Some(4096), ..disk("/dev/sdb") }), "sectors of 4096"),
        (Ok(Found { sector_bytes: None, ..disk("/dev/sdb") }), "not a whole disk"),
        (
            Ok(Found { occupants: vec!["partition sdb1".into()], ..disk("/dev/sdb") }),
            "partition sdb1",
        ),
        (Ok(disk("/dev/sda")), "is the same disk as a"),
    ];
    for (second, reason) in wrong {
        let tool = checks(Recorded::default());
        let error = run(&tool, &Disks { second, looks: Cell::new(0) }, None).unwrap_err();
        assert!(matches!(error, ApplyError::Machine(_)), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_signature_or_a_pool_of_that_name_is_refused() {
    let tool = Recorded::default()
        .then("zpool list -H -o name p", "p\n")
        .then("wipefs --noheadings --output TYPE,OFFSET /dev/disk/by-id/a", "xfs 0x0\n")
        .then_fail("blkid --probe --output export /dev/disk/by-id/a", 2, "")
        .then_fail("zdb -l /dev/disk/by-id/a", 2, "")
        .then_fail(
            "wipefs --noheadings --output TYPE,OFFSET /dev/disk/by-id/b",
            1,
            "probing failed",
        );
    let said = run(&tool, &disks(), None).unwrap_err().to_string();
    for words in [
        "pool p exists already",
        "a (/dev/disk/by-id/a): not empty: signature xfs",
        "cannot tell whether it is empty",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_first_failure_stops_it_and_says_how_to_go_back() {
    let tool = parted(checks(Recorded::default())).then_fail(CREATE, 1, "cannot create 'p'");
    let error = run(&tool, &disks(), None).unwrap_err();
    let ApplyError::Step { number, done, undo, reason, .. } = error else { panic!("{error}") };
    assert_eq!((number, done.len()), (4, 3));
    assert!(reason.contains("cannot create"));
    assert_eq!(undo.first().unwrap(), "zpool destroy p");
    assert_eq!(undo.last().unwrap(), "wipefs --all /dev/disk/by-id/a");
    assert!(tool.is_done());
}
