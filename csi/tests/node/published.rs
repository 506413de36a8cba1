//! Paths of pods: who may have one, and mounts that are found there.

use super::*;

impl Fixture {
    /// Sources of the mounts at a path, and whether it is read-only.
    fn at(&self, name: &str) -> (Vec<String>, bool) {
        let (machine, path) = (self.machine.0.lock().unwrap(), self.path(name));
        let mounts = machine.mounts.iter().filter(|(_, point)| *point == path);
        let sources = mounts.map(|(source, _)| source.clone()).collect();
        (sources, machine.read_only.contains(&path))
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_publish_finds_its_own_mount() {
    for (protocol, readonly) in [("nfs", false), ("nfs", true), ("iscsi", false), ("iscsi", true)] {
        let mut fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        for _ in 0..2 {
            fixture.publish("target", readonly).await.unwrap();
            fixture.restart();
        }
        let bound = fixture.at("target");
        assert_eq!((bound.0.len(), bound.1), (1, readonly), "{protocol}");
        assert_eq!((fixture.count("mount --bind"), fixture.count("umount")), (1, 0), "{protocol}");
    }
}

/// Otherwise systemd takes the network of a node that shuts down before its disks.
#[tokio::test(start_paused = true)]
async fn each_mount_of_a_disk_is_one_that_needs_the_network() {
    for reads in [false, true] {
        let mut fixture = Fixture::new();
        fixture.tell(|machine| machine.formatted = true);
        fixture.reads = reads;
        fixture.stage("iscsi").await.unwrap();
        fixture.publish("target", true).await.unwrap();
        assert_eq!((fixture.count("mount -"), fixture.count("_netdev")), (3, 3), "{reads}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mount_at_the_target_that_is_not_the_volumes_is_not_taken_for_published() {
    for protocol in ["nfs", "iscsi"] {
        let fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        let (own, target) = (fixture.at("staging").0, fixture.path("target"));
        fixture.tell(|machine| machine.mounts.push(("10.9.9.9:/other".to_owned(), target)));
        // While somebody uses it, it stays, and nothing is mounted over it.
        fixture.tell(|machine| machine.in_use = true);
        let refused = fixture.publish("target", false).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{protocol}");
        assert_eq!(fixture.at("target").0, ["10.9.9.9:/other"], "{protocol}");
        fixture.tell(|machine| machine.in_use = false);
        fixture.publish("target", false).await.unwrap();
        assert_eq!(fixture.at("target"), (own, false), "{protocol}");
    }
}

/// A driver that ended between the two commands has left a mount for writing.
#[tokio::test(start_paused = true)]
async fn a_mount_with_another_mode_is_not_taken_for_published() {
    let mut fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    fixture.publish("target", true).await.unwrap();
    fixture.tell(|machine| machine.read_only.clear());
    fixture.restart();
    fixture.publish("target", true).await.unwrap();
    let (sources, read_only) = fixture.at("target");
    assert_eq!((sources.len(), read_only), (1, true));
    // What was asked for with another mode is told, not made anew.
    assert_eq!(fixture.publish("target", false).await.unwrap_err().code(), Code::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn one_writer_is_one_path() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.publish("a", false).await.unwrap_err().code(), Code::FailedPrecondition);
    fixture.stage("nfs").await.unwrap();
    fixture.publish("a", false).await.unwrap();
    fixture.restart();
    fixture.publish("a", false).await.unwrap();
    assert_eq!(fixture.publish("a", true).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(fixture.publish("b", false).await.unwrap_err().code(), Code::FailedPrecondition);
    fixture.unpublish("a").await.unwrap();
    fixture.unpublish("a").await.unwrap();
    fixture.publish("b", false).await.unwrap();
    assert!(!fixture.dir.path().join("a").exists() && fixture.dir.path().join("b").is_dir());
}

/// As when their node is drained: a kubelet repeats what is refused at intervals that double.
#[tokio::test(start_paused = true)]
async fn pods_that_end_at_once_wait_for_each_other() {
    let fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    fixture.publish("a", false).await.unwrap();
    let (mut sources, _) = fixture.at("a");
    let other = (sources.remove(0), fixture.path("b"));
    fixture.tell(|machine| {
        machine.mounts.push(other);
        // Each unmount takes its time.
        machine.dead = true;
    });
    let (first, second) = tokio::join!(fixture.unpublish("a"), fixture.unpublish("b"));
    first.unwrap();
    second.unwrap();
    assert!(fixture.at("a").0.is_empty() && fixture.at("b").0.is_empty());
}

/// CSI 1.12, NodePublishVolume Errors.
#[tokio::test(start_paused = true)]
async fn a_publish_without_a_staging_path_is_refused() {
    let fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    let request = NodePublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        target_path: fixture.path("target"),
        volume_capability: capability(Mode::SingleNodeSingleWriter),
        ..Default::default()
    };
    let refused = fixture.node.node_publish_volume(Request::new(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(fixture.at("target").0.is_empty());
    fixture.publish("target", false).await.unwrap();
}
