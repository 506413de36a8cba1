//! Who may import whom.

use super::{Findings, Source};
use std::fs;
use std::io;

/// Crate folder and the crates of ours it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("config", &[]),
    ("zfs-backend/api", &[]),
    ("zfs-backend/io", &["zgate-store"]),
    ("zfs-backend/memory", &["zgate-store"]),
    ("zfs-backend/posix", &["zgate-store", "zgate-io"]),
    ("zfs-backend/block", &["zgate-store", "zgate-io"]),
    ("zfs-backend/control", &[]),
    ("protocol/xdr", &["zgate-store"]),
    ("protocol/rpc", &["zgate-store", "zgate-xdr"]),
    ("protocol/rpcrdma", &["zgate-xdr"]),
    ("protocol/nfs", &["zgate-store", "zgate-xdr", "zgate-rpc"]),
    ("protocol/scsi", &["zgate-store"]),
    ("protocol/iscsi", &["zgate-store"]),
    ("protocol/iser", &["zgate-store", "zgate-iscsi"]),
    ("rdma/fabric", &["zgate-store"]),
    ("rdma/sys", &[]),
    ("rdma/verbs", &["zgate-store", "zgate-fabric", "zgate-rdma-sys"]),
    ("loader/cuda", &[]),
    (
        "loader",
        &[
            "zgate-store",
            "zgate-io",
            "zgate-xdr",
            "zgate-rpc",
            "zgate-nfs",
            "zgate-rpcrdma",
            "zgate-fabric",
            "zgate-verbs",
            "zgate-cuda",
        ],
    ),
];

/// Crates whose code is pure: they may not depend on these.
const IMPURE_CRATES: [&str; 6] = ["tokio", "libc", "rustix", "socket2", "io-uring", "tempfile"];

/// What pure code does not say.
const IMPURE_WORDS: [&str; 9] = [
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime",
    "tokio::",
    "rand::",
];

/// Checks the manifests.
///
/// # Errors
/// When one cannot be read.
pub(super) fn manifests() -> io::Result<Findings> {
    let mut found = Findings::new();
    for (dir, allowed) in ALLOWED {
        let path = format!("{dir}/Cargo.toml");
        let text = fs::read_to_string(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        // Tests may use what they like; their section comes last.
        let code = text.split("[dev-dependencies]").next().unwrap_or_default();
        let section = code.split("[dependencies]").nth(1).unwrap_or_default();
        for line in section.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if name.starts_with("zgate-") && !allowed.contains(&name) {
                found.push(format!("{path}: {name} is not below it"));
            }
            if dir.starts_with("protocol/") && IMPURE_CRATES.contains(&name) {
                found.push(format!("{path}: protocol code does not use {name}"));
            }
        }
    }
    Ok(found)
}

/// Protocol code that reaches for the world.
pub(super) fn impure(sources: &[Source]) -> Findings {
    let mut found = Findings::new();
    let pure = sources.iter().filter(|source| source.is_below("protocol") && !source.is_test());
    // Test rigs stand beside the code they drive.
    let pure = pure.filter(|source| !source.path.ends_with("rig.rs"));
    for source in pure {
        for line in source.code().lines() {
            let code = line.split("//").next().unwrap_or_default();
            for word in IMPURE_WORDS.iter().filter(|word| code.contains(**word)) {
                found.push(format!("{}: {word}", source.path.display()));
            }
        }
    }
    found
}
