//! Dependencies between crates, and purity of protocol code.

use super::tree::{Findings, Source, Tree};

/// Crate folder and the folders of the crates it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("config", &[]),
    ("zfs-backend/api", &[]),
    ("zfs-backend/io", &["zfs-backend/api"]),
    ("zfs-backend/memory", &["zfs-backend/api"]),
    ("zfs-backend/posix", &["zfs-backend/api", "zfs-backend/io"]),
    ("zfs-backend/block", &["zfs-backend/api", "zfs-backend/io"]),
    ("zfs-backend/control", &[]),
    ("protocol/xdr", &["zfs-backend/api"]),
    ("protocol/rpc", &["zfs-backend/api", "protocol/xdr"]),
    ("protocol/rpcrdma", &["protocol/xdr"]),
    ("protocol/nfs-wire", &["zfs-backend/api", "protocol/xdr", "protocol/rpc"]),
    ("protocol/nfs", &["zfs-backend/api", "protocol/xdr", "protocol/rpc", "protocol/nfs-wire"]),
    ("protocol/scsi", &["zfs-backend/api"]),
    ("protocol/iscsi", &["zfs-backend/api"]),
    ("protocol/target", &["protocol/iscsi", "protocol/scsi"]),
    ("gss", &[]),
    ("tls", &["config", "zfs-backend/api", "protocol/xdr", "protocol/rpc"]),
    ("rdma/fabric", &["zfs-backend/api"]),
    ("rdma/sys", &[]),
    ("rdma/verbs", &["zfs-backend/api", "rdma/fabric", "rdma/sys"]),
    ("csi", &["gateway/api", "zfs-backend/io"]),
    ("loader/cuda", &[]),
    (
        "loader",
        &[
            "zfs-backend/api",
            "zfs-backend/io",
            "protocol/xdr",
            "protocol/rpc",
            "protocol/rpcrdma",
            "protocol/nfs-wire",
            "rdma/fabric",
            "rdma/verbs",
            "loader/cuda",
        ],
    ),
];

/// Folders whose crates each need a row.
const LAYERED: [&str; 7] = ["config", "zfs-backend", "protocol", "gss", "tls", "rdma", "loader"];

/// Product crates that still depend on a test crate.
const NOT_YET: &[&str] = &[];

/// Crates whose code is pure: they may not depend on these.
const IMPURE_CRATES: [&str; 6] = ["tokio", "libc", "rustix", "socket2", "io-uring", "tempfile"];

/// Words that do not stand in pure code; nor does `std::{`, behind which they would have another
/// form.
const IMPURE_WORDS: [&str; 14] = [
    "std::{",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "std::fs",
    "std::env",
    "std::os",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime",
    "tokio::",
    "rand::",
    "RandomState::new",
];

/// Dependencies that point sideways or upwards, and impure ones of protocol crates.
pub(super) fn manifests(tree: &Tree) -> Findings {
    let mut found = Findings::new();
    for manifest in &tree.manifests {
        let path = manifest.path.display();
        let Some(dir) = folder(manifest) else { continue };
        let row = ALLOWED.iter().find(|(name, _)| *name == dir);
        let own_workspace = manifest.text.contains("\n[workspace]");
        let layered = LAYERED.contains(&dir.split('/').next().unwrap_or_default());
        if row.is_none() && layered && !own_workspace {
            found.push(format!("{path}: no row says what it may depend on"));
        }
        for name in dependencies(&manifest.text) {
            if let (Some((_, allowed)), Some(target)) = (row, tree.folder_of(name))
                && !allowed.contains(&target)
            {
                found.push(format!("{path}: {name} is not below it"));
            }
            if dir.starts_with("protocol/") && IMPURE_CRATES.contains(&name) {
                found.push(format!("{path}: protocol code does not use {name}"));
            }
        }
    }
    found
}

/// Product crates that depend on a crate below `tests/`; development dependencies may.
pub(super) fn test_crates(tree: &Tree) -> Findings {
    let mut found = Findings::new();
    for manifest in &tree.manifests {
        let Some(dir) = folder(manifest) else { continue };
        // The root's manifest lists crates under `[workspace.dependencies]`.
        if dir.is_empty() || dir == "xtask" || dir.starts_with("tests") || NOT_YET.contains(&dir) {
            continue;
        }
        let tests = |name: &&str| tree.folder_of(name).is_some_and(|at| at.starts_with("tests"));
        for name in dependencies(&manifest.text).filter(tests) {
            found.push(format!("{}: {name} is for tests", manifest.path.display()));
        }
    }
    found
}

fn folder(manifest: &Source) -> Option<&str> {
    manifest.path.parent()?.to_str()
}

/// Names of the crates that ship with this one: `[dependencies]`, for any target, and of the build.
fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    let mut section = false;
    text.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix('[') {
            let heading = heading.trim_end_matches(']');
            section = heading.ends_with("dependencies") && !heading.ends_with("dev-dependencies");
            return None;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        (section && !name.is_empty() && !name.starts_with('#')).then_some(name)
    })
}

impl Tree {
    /// Folder of the crate of ours with this name.
    fn folder_of(&self, name: &str) -> Option<&str> {
        let line = format!("name = \"{name}\"");
        let manifest = self.manifests.iter().find(|manifest| {
            manifest
                .text
                .lines()
                .take_while(|line| !line.contains("dependencies"))
                .any(|l| l == line)
        });
        manifest.and_then(folder)
    }
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

#[cfg(test)]
mod tests {
    use super::super::tree::{Findings, Tree};
    use super::{impure, manifests, test_crates};

    fn tree(dir: &str, dependencies: &str) -> Tree {
        let crate_text = |name: &str| format!("[package]\nname = \"{name}\"\n");
        Tree::of(&[
            ("protocol/nfs/Cargo.toml", &crate_text("zgate-nfs")),
            ("tests/initiator/Cargo.toml", &crate_text("zgate-test-initiator")),
            (&format!("{dir}/Cargo.toml"), &format!("[package]\nname = \"x\"\n{dependencies}")),
        ])
    }

    #[test]
    fn a_crate_above_is_found() {
        let below = tree("protocol/xdr", "[dependencies]\nzgate-nfs.workspace = true\n");
        assert_eq!(manifests(&below), ["protocol/xdr/Cargo.toml: zgate-nfs is not below it"]);
        let above = tree("gateway", "[dependencies]\nzgate-nfs.workspace = true\n");
        assert_eq!(manifests(&above), Findings::new());
    }

    #[test]
    fn a_layer_without_a_row_is_found() {
        let unknown = tree("protocol/smb", "");
        assert_eq!(
            manifests(&unknown),
            ["protocol/smb/Cargo.toml: no row says what it may depend on"]
        );
    }

    #[test]
    fn an_impure_dependency_is_found() {
        let tokio = tree("protocol/xdr", "[dependencies]\ntokio = { workspace = true }\n");
        assert_eq!(
            manifests(&tokio),
            ["protocol/xdr/Cargo.toml: protocol code does not use tokio"]
        );
        for (code, word) in [
            ("let now = Instant::now();", "Instant::now"),
            ("use std::{fs, io};", "std::{"),
            ("use std::net::{IpAddr, TcpStream};", "TcpStream"),
            ("#[cfg(test)]\nmod rig;\nuse std::fs;", "std::fs"),
        ] {
            let tree = Tree::of(&[("protocol/xdr/src/a.rs", code)]);
            assert_eq!(impure(&tree.sources), [format!("protocol/xdr/src/a.rs: {word}")]);
        }
        let pure = Tree::of(&[("protocol/xdr/src/a.rs", "use std::net::{IpAddr, SocketAddr};")]);
        assert_eq!(impure(&pure.sources), Findings::new());
    }

    #[test]
    fn a_test_crate_in_a_product_is_found() {
        let line = "zgate-test-initiator.workspace = true\n";
        for section in
            ["[dependencies]", "[target.'cfg(unix)'.dependencies]", "[build-dependencies]"]
        {
            let product = tree("loader", &format!("{section}\n{line}"));
            let reason = "loader/Cargo.toml: zgate-test-initiator is for tests";
            assert_eq!(test_crates(&product), [reason], "{section}");
        }
        assert_eq!(
            test_crates(&tree("loader", &format!("[dev-dependencies]\n{line}"))),
            Findings::new()
        );
        assert_eq!(
            test_crates(&tree("tests/iser", &format!("[dependencies]\n{line}"))),
            Findings::new()
        );
    }
}
