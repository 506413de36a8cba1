//! Rooms of the gateway: the folders and files directly below `gateway/src`.

use super::imports::Imports;
use super::tokens::shipped;
use super::tree::{Findings, Source};
use std::collections::BTreeSet;

const GATEWAY: &str = "gateway";
const FRONT_ENDS: &[&str] =
    &["zgate_nfs", "zgate_nfs_wire", "zgate_iscsi", "zgate_scsi", "zgate_target"];

/// A room and its imports.
struct Room {
    name: &'static str,
    /// Rooms it may use.
    below: &'static [&'static str],
    /// Crates it does not name.
    foreign: &'static [&'static str],
}

/// The rooms of the gateway, as in the table of `gateway/src/lib.rs`.
const ROOMS: &[Room] = &[
    Room { name: "dir_lock", below: &[], foreign: FRONT_ENDS },
    Room { name: "missing_mount", below: &[], foreign: FRONT_ENDS },
    Room { name: "state_dir", below: &["dir_lock", "missing_mount"], foreign: FRONT_ENDS },
    Room { name: "state_writer", below: &[], foreign: FRONT_ENDS },
    Room { name: "observe", below: &[], foreign: FRONT_ENDS },
    Room { name: "admin", below: &[], foreign: &[] },
    Room { name: "schedule", below: &["observe"], foreign: FRONT_ENDS },
    Room { name: "net", below: &["observe"], foreign: FRONT_ENDS },
    Room { name: "qos", below: &[], foreign: FRONT_ENDS },
    Room { name: "exports", below: &["qos"], foreign: &[] },
    Room {
        name: "nfs",
        below: &["net", "observe", "state_dir"],
        foreign: &["zgate_iscsi", "zgate_scsi", "zgate_target"],
    },
    Room {
        name: "iscsi",
        below: &["exports", "net", "observe", "qos", "state_dir", "state_writer"],
        foreign: &["zgate_nfs", "zgate_nfs_wire"],
    },
    Room {
        name: "server",
        below: &[
            "dir_lock",
            "state_dir",
            "state_writer",
            "observe",
            "admin",
            "schedule",
            "net",
            "qos",
            "exports",
            "nfs",
            "iscsi",
        ],
        foreign: &[],
    },
];

/// Imports of the gateway that point sideways or upwards, and rooms without a row.
pub(super) fn upwards(crates: &[Imports<'_>]) -> Findings {
    let mut found = Findings::new();
    let mut unknown = BTreeSet::new();
    let Some(gateway) = crates.iter().find(|imports| imports.dir == GATEWAY) else { return found };
    for (position, source) in gateway.files.iter().enumerate() {
        let Some(name) = room(source) else { continue };
        let Some(row) = ROOMS.iter().find(|room| room.name == name) else {
            if unknown.insert(name) {
                found.push(format!("gateway/src/{name}: no row says which rooms it may use"));
            }
            continue;
        };
        let path = source.path.display();
        let targets = gateway.edges.get(&position).into_iter().flatten();
        for target in targets.map(|target| gateway.files[*target]) {
            if room(target).is_some_and(|other| other != name && !row.below.contains(&other)) {
                found.push(format!("{path}: {} is not below {name}", target.path.display()));
            }
        }
        let words = shipped(&source.text).tokens;
        for word in row.foreign.iter().filter(|word| words.contains(word)) {
            found.push(format!("{path}: {name} does not know {word}"));
        }
    }
    found
}

/// Name of the room of a file; none for the root of the crate.
fn room(source: &Source) -> Option<&str> {
    let below = source.path.strip_prefix(GATEWAY).ok()?.strip_prefix("src").ok()?;
    let name = below.iter().next()?.to_str()?.trim_end_matches(".rs");
    (!["lib", "main"].contains(&name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::imports::of_all_crates;
    use super::super::tree::{Findings, Tree};
    use super::upwards;

    fn found(path: &str, text: &str) -> Findings {
        let tree = Tree::of(&[
            ("gateway/Cargo.toml", ""),
            ("gateway/src/server/run.rs", "pub struct Run;"),
            ("gateway/src/nfs/mod.rs", "pub struct Nfs;"),
            ("gateway/src/iscsi/mod.rs", "pub struct Iscsi;"),
            ("gateway/src/net/mod.rs", "pub struct Net;"),
            (path, text),
        ]);
        upwards(&of_all_crates(&tree))
    }

    #[test]
    fn net_knows_no_front_end() {
        let path = "gateway/src/net/accept.rs";
        for (import, reason) in [
            ("use crate::nfs::Nfs;", "gateway/src/nfs/mod.rs is not below net"),
            ("use crate::iscsi::Iscsi;", "gateway/src/iscsi/mod.rs is not below net"),
            ("use zgate_nfs::v4::Server;", "net does not know zgate_nfs"),
            ("fn f() { zgate_iscsi::login() }", "net does not know zgate_iscsi"),
            ("use zgate_scsi::Disk;", "net does not know zgate_scsi"),
        ] {
            assert_eq!(found(path, import), [format!("{path}: {reason}")]);
        }
        let fine = "// zgate_nfs comes later\nuse super::Net;\n#[cfg(test)]\nmod tests { use zgate_nfs::x; }";
        assert_eq!(found(path, fine), Findings::new());
    }

    #[test]
    fn front_ends_do_not_know_each_other() {
        let (nfs, iscsi) = ("gateway/src/nfs/tcp.rs", "gateway/src/iscsi/tcp.rs");
        let pairs = [
            (
                nfs,
                "use crate::iscsi;\nfn f(_: iscsi::Iscsi) {}",
                "gateway/src/iscsi/mod.rs is not below nfs",
            ),
            (nfs, "use zgate_iscsi::pdu;", "nfs does not know zgate_iscsi"),
            (iscsi, "use crate::nfs::Nfs;", "gateway/src/nfs/mod.rs is not below iscsi"),
            (iscsi, "use zgate_nfs::v3;", "iscsi does not know zgate_nfs"),
        ];
        for (path, import, reason) in pairs {
            assert_eq!(found(path, import), [format!("{path}: {reason}")]);
        }
    }

    #[test]
    fn only_the_server_knows_both_front_ends() {
        let both = "use crate::nfs::Nfs;\nuse crate::iscsi::Iscsi;";
        assert_eq!(found("gateway/src/server/shared.rs", both), Findings::new());
        assert_eq!(found("gateway/src/exports/plan.rs", both).len(), 2);
        let upwards = found("gateway/src/nfs/tcp.rs", "use crate::server::run::Run;");
        let reason = "gateway/src/nfs/tcp.rs: gateway/src/server/run.rs is not below nfs";
        assert_eq!(upwards, [reason]);
    }

    #[test]
    fn a_new_room_needs_a_row() {
        let reason = "gateway/src/smb: no row says which rooms it may use";
        assert_eq!(found("gateway/src/smb/tcp.rs", ""), [reason]);
    }
}
