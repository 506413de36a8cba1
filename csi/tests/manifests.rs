//! Limits that the manifests give the driver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use clap::{Args, Command};
use std::path::Path;
use zgate_csi::serve::CsiArgs;

/// Size of a file system whose check must fit, in bytes; its block and what it has for
/// each inode (mkfs.ext4 from 4 TiB on).
const VOLUME_BYTES: u64 = 16 << 40;
const BLOCK_BYTES: u64 = 4 << 10;
const INODE_BYTES: u64 = 32 << 10;
/// Bits that e2fsck has in memory for each.
const BLOCK_BITS: u64 = 3;
const INODE_BITS: u64 = 4;

fn read(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// A variable that the driver does not know would leave a node without addresses.
#[test]
fn the_driver_knows_the_variables_of_a_node() {
    let command = CsiArgs::augment_args(Command::new("csi"));
    let known: Vec<&str> =
        command.get_arguments().filter_map(|one| one.get_env()?.to_str()).collect();
    let base: &[&str] = &["NODE_NAME", "NODE_ADDRESSES"];
    let chart: &[&str] = &["NODE_NAME", "NODE_NETWORKS", "NODE_ADDRESSES"];
    for (file, wanted) in [("base/node.yaml", base), ("chart/templates/node.yaml", chart)] {
        let text = read(file);
        let set: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- name: "))
            .filter(|name| name.starts_with("NODE_"))
            .collect();
        assert_eq!(set, [wanted, wanted].concat(), "{file}: with and without RDMA");
        assert!(set.iter().all(|name| known.contains(name)), "{file}: {known:?}");
    }
}

/// e2fsck runs as a child of the driver, and counts to its limit.
#[test]
fn the_check_of_a_large_volume_fits_into_the_limit_of_a_node() {
    let bits = VOLUME_BYTES / BLOCK_BYTES * BLOCK_BITS + VOLUME_BYTES / INODE_BYTES * INODE_BITS;
    for file in ["base/node.yaml", "chart/templates/node.yaml"] {
        let text = read(file);
        let limits: Vec<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("limits: {memory: ")).collect();
        assert_eq!(limits.len(), 2, "{file}: with and without RDMA");
        for limit in limits {
            let gibibytes: u64 = limit.strip_suffix("Gi}").unwrap().parse().unwrap();
            assert!(gibibytes << 30 > bits / 8, "{file}: {limit}");
        }
    }
}
