//! Limits that the manifests give the driver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use zgate_csi::limits::GATHER_SECONDS;

/// Size of a file system whose check must fit, in bytes; its block and what it has for
/// each inode (mkfs.ext4 from 4 TiB on).
const VOLUME_BYTES: u64 = 16 << 40;
const BLOCK_BYTES: u64 = 4 << 10;
const INODE_BYTES: u64 = 32 << 10;
/// Bits that e2fsck has in memory for each.
const BLOCK_BITS: u64 = 3;
const INODE_BITS: u64 = 4;

/// Time for what a call asks of one gateway beside what it asks of all, in seconds.
const OWN_SECONDS: u64 = 15;

fn manifest(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// e2fsck runs as a child of the driver, and counts to its limit.
#[test]
fn the_check_of_a_large_volume_fits_into_the_limit_of_a_node() {
    let bits = VOLUME_BYTES / BLOCK_BYTES * BLOCK_BITS + VOLUME_BYTES / INODE_BYTES * INODE_BITS;
    for file in ["base/node.yaml", "chart/templates/node.yaml"] {
        let text = manifest(file);
        let limits: Vec<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("limits: {memory: ")).collect();
        assert_eq!(limits.len(), 2, "{file}: with and without RDMA");
        for limit in limits {
            let gibibytes: u64 = limit.strip_suffix("Gi}").unwrap().parse().unwrap();
            assert!(gibibytes << 30 > bits / 8, "{file}: {limit}");
        }
    }
}

/// A call that waited for gateways that are away must still be answered in time.
#[test]
fn the_sidecars_wait_longer_than_the_driver() {
    for file in ["base/controller.yaml", "chart/templates/controller.yaml"] {
        let text = manifest(file);
        let limits: Vec<&str> =
            text.split("--timeout=").skip(1).filter_map(|rest| rest.split('s').next()).collect();
        assert_eq!(limits.len(), 4, "{file}: each sidecar");
        for limit in limits {
            let seconds: u64 = limit.parse().unwrap();
            assert!(seconds > GATHER_SECONDS.as_secs() + OWN_SECONDS, "{file}: {limit}");
        }
    }
}
