//! Limits that the manifests give the driver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use clap::{Args, Command};
use std::path::Path;
use zgate_csi::limits::{CREATE_SECONDS, GATHER_SECONDS, MAX_CONCURRENT_CALLS};
use zgate_csi::serve::CsiArgs;

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

/// udev tells `multipath` by a semaphore of SysV that a device is there: one in the container's own
/// name space is not known to it, and `multipath` would wait until the driver kills it.
#[test]
fn programs_of_the_node_share_its_mounts_and_its_semaphores() {
    for file in ["base/node.yaml", "chart/templates/node.yaml"] {
        let text = read(file);
        let commands: Vec<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("- --host-command=")).collect();
        assert_eq!(commands, ["nsenter --target 1 --mount --ipc --"; 2], "{file}");
    }
}

/// Where SELinux is enforced, a container of the usual type may not connect to the socket of a
/// privileged one: the node would not register.
#[test]
fn the_registrar_may_connect_to_the_driver() {
    for file in ["base/node.yaml", "chart/templates/node.yaml"] {
        let text = read(file);
        let registrars: Vec<&str> = text.split("- name: registrar\n").skip(1).collect();
        assert_eq!(registrars.len(), 2, "{file}: with and without RDMA");
        for registrar in registrars {
            let own = registrar.split("volumeMounts:").next().unwrap();
            assert!(own.contains("\n            seLinuxOptions: {type: spc_t}\n"), "{file}: {own}");
        }
    }
}

/// Returns the arguments of the snapshotter, which a manifest has in one line or one by one.
fn snapshotter_arguments(file: &str) -> Vec<String> {
    let text = read(file);
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "- name: snapshotter");
    let first = lines.find_map(|line| line.strip_prefix("args:")).unwrap().trim();
    if let Some(all) = first.strip_prefix('[') {
        return all.trim_end_matches(']').split(", ").map(str::to_owned).collect();
    }
    let one_by_one = lines.take_while(|line| line.starts_with("- --") || line.starts_with("{{"));
    one_by_one.map(|line| line.trim_start_matches("- ").to_owned()).collect()
}

/// Returns the rules of the first role of a manifest.
fn rules(file: &str) -> String {
    let text = read(file);
    text.split("\nrules:\n").nth(1).unwrap().split("---").next().unwrap().to_owned()
}

/// With the gate, and without the definitions in the cluster, the snapshotter takes no
/// snapshots at all.
#[test]
fn groups_are_for_those_who_ask_for_them() {
    let gate = "--feature-gates=CSIVolumeGroupSnapshot=true";
    for file in ["controller.yaml", "rbac.yaml", "classes.yaml", "kustomization.yaml"] {
        assert!(!read(&format!("base/{file}")).to_lowercase().contains("groupsnapshot"), "{file}");
    }
    let base = snapshotter_arguments("base/controller.yaml");
    let (mut component, mut chart) = (base.clone(), base);
    component.push(gate.to_owned());
    assert_eq!(snapshotter_arguments("groups/snapshotter.yaml"), component);
    chart.extend(["{{- if .Values.groups }}", gate, "{{- end }}"].map(str::to_owned));
    assert_eq!(snapshotter_arguments("chart/templates/controller.yaml"), chart);
    let groups = read("chart/templates/groups.yaml");
    assert!(groups.starts_with("{{- if .Values.groups }}\n") && groups.ends_with("{{- end }}\n"));
    assert!(read("chart/values.yaml").contains("\ngroups: false\n"));
    assert_eq!(rules("groups/rbac.yaml"), rules("chart/templates/groups.yaml"));
    assert!(groups.contains(&read("groups/class.yaml")));
}

/// Not every cluster has these kinds, and an installation with them fails where it has not.
#[test]
fn the_chart_leaves_out_what_a_cluster_does_not_have() {
    let values = read("chart/values.yaml");
    for (file, switch, kind) in [
        ("monitoring.yaml", "monitoring", "monitoring.coreos.com/v1/ServiceMonitor"),
        ("snapshot-class.yaml", "snapshotClass", "snapshot.storage.k8s.io/v1/VolumeSnapshotClass"),
        ("attributes-classes.yaml", "attributesClasses", "storage.k8s.io/v1/VolumeAttributesClass"),
    ] {
        let text = read(&format!("chart/templates/{file}"));
        let guard = format!("if and .Values.{switch} (.Capabilities.APIVersions.Has {kind:?})");
        let (before, after) = text.split_once(&guard).unwrap();
        let kind = format!("kind: {}", kind.rsplit('/').next().unwrap());
        assert!(!before.contains(&kind) && after.contains(&kind), "{file}");
        assert!(values.contains(&format!("\n{switch}: true\n")), "{switch}");
        for other in ["controller.yaml", "driver.yaml", "classes.yaml"] {
            assert!(!read(&format!("chart/templates/{other}")).contains(&kind), "{other}");
        }
    }
    for file in ["classes.yaml", "snapshot-class.yaml", "attributes-classes.yaml"] {
        let base = read(&format!("base/{file}"));
        assert!(read(&format!("chart/templates/{file}")).contains(&base), "{file}");
    }
}

#[test]
fn the_rule_of_abnormal_volumes_names_the_gate_that_it_needs() {
    for file in ["base/monitoring.yaml", "chart/templates/monitoring.yaml"] {
        let text = read(file);
        let (before, _) = text.split_once("- alert: ZgateCsiVolumeAbnormal\n").unwrap();
        let comment = before.trim_end().lines().rev().take_while(|line| line.contains("# "));
        let comment: Vec<&str> = comment.collect();
        assert!(comment.concat().contains("gate CSIVolumeHealth"), "{file}");
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

/// A call that waited for gateways that are away must still be answered in time.
#[test]
fn the_sidecars_wait_longer_than_the_driver() {
    for file in ["base/controller.yaml", "chart/templates/controller.yaml"] {
        let text = read(file);
        let limits: Vec<&str> =
            text.split("--timeout=").skip(1).filter_map(|rest| rest.split('s').next()).collect();
        assert_eq!(limits.len(), 4, "{file}: each sidecar");
        for limit in limits {
            let seconds: u64 = limit.parse().unwrap();
            assert!(seconds > GATHER_SECONDS.as_secs() + OWN_SECONDS, "{file}: {limit}");
            assert!(seconds > CREATE_SECONDS.as_secs(), "{file}: {limit}");
        }
    }
}

/// Attachments of one volume wait for each other: many of them are not to keep others waiting.
#[test]
fn the_attacher_has_many_calls_and_the_driver_takes_them() {
    for file in ["base/controller.yaml", "chart/templates/controller.yaml"] {
        let text = read(file);
        let threads = text.split_once("--worker-threads=").unwrap().1;
        let threads: usize = threads.split(',').next().unwrap().parse().unwrap();
        assert!((100..=MAX_CONCURRENT_CALLS).contains(&threads), "{file}: {threads}");
    }
}

/// `Recreate` holds for updates only: the pod of a node that is drained or lost may still run when
/// its successor does, and the sidecars of both would act.
#[test]
fn one_pod_acts_at_a_time() {
    for file in ["base/controller.yaml", "chart/templates/controller.yaml"] {
        let text = read(file);
        assert!(text.contains("\n  replicas: 1\n  strategy:\n    type: Recreate\n"), "{file}");
        let elections = text.matches("--leader-election").count();
        assert_eq!(elections, 4 + text.matches("hence --leader-election.").count(), "{file}");
    }
    for file in ["base/rbac.yaml", "chart/templates/rbac.yaml"] {
        let text = read(file);
        let leases = text.split_once("resources: [leases]\n").unwrap().1;
        let verbs = leases.lines().next().unwrap();
        for verb in ["get", "list", "watch", "create", "update", "patch"] {
            assert!(verbs.contains(verb), "{file}: {verb}");
        }
    }
}
