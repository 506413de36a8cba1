//! Records of earlier stages: what they say of, and what is there no more.

use super::*;

const OTHER: (&str, &str) = (VOLUME, "other");

/// Kubernetes stages at another path after an update, say, and nobody has unstaged before.
#[tokio::test(start_paused = true)]
async fn a_stage_that_went_with_the_power_of_the_machine_stops_none_at_another_path() {
    for protocol in ["nfs", "iscsi"] {
        let mut fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        fixture.publish("target", false).await.unwrap();
        let refused = fixture.stage_volume(OTHER, protocol, PORTALS).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{protocol}");
        fixture.unpublish("target").await.unwrap();
        let refused = fixture.stage_volume(OTHER, protocol, PORTALS).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{protocol}");
        fixture.publish("target", false).await.unwrap();
        fixture.tell(Machine::lose_power);
        fixture.restart();
        fixture.stage_volume(OTHER, protocol, PORTALS).await.unwrap();
        let points: Vec<Vec<u8>> =
            fixture.machine.mounts().unwrap().into_iter().map(|mount| mount.point).collect();
        assert_eq!(points, [fixture.path("other").into_bytes()], "{protocol}");
        fixture.unstage_at("other").await.unwrap();
        assert_eq!((fixture.machine.mounts().unwrap().len(), fixture.records()), (0, 0));
    }
}

/// A disk for reading, and its file system, would stay so for those who write.
#[tokio::test(start_paused = true)]
async fn a_stage_with_another_mode_is_made_anew_unless_a_pod_uses_it() {
    let mut fixture = Fixture::new();
    fixture.tell(|machine| machine.formatted = true);
    fixture.reads = true;
    fixture.stage("iscsi").await.unwrap();
    fixture.publish("target", false).await.unwrap();
    assert_eq!((fixture.count("blockdev --setro"), fixture.count("ro,noload")), (1, 1));
    fixture.reads = false;
    let refused = fixture.stage("iscsi").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!((fixture.count("umount"), fixture.count("--logout")), (0, 0));
    fixture.unpublish("target").await.unwrap();
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("--logout"), fixture.count("mount -t ext4 -o noatime")), (1, 1));
    assert_eq!(fixture.count("blockdev --setro"), 1);
    fixture.publish("target", false).await.unwrap();
    let target = fixture.path("target");
    assert!(!fixture.machine.0.lock().unwrap().read_only.contains(&target));
}

#[tokio::test(start_paused = true)]
async fn an_unstage_at_another_path_takes_nothing_from_pods() {
    for protocol in ["nfs", "iscsi"] {
        let fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        fixture.publish("target", false).await.unwrap();
        fixture.unstage_at("other").await.unwrap();
        assert_eq!((fixture.count("umount"), fixture.count("--logout")), (0, 0), "{protocol}");
        assert_eq!(fixture.records(), 1);
        // An update of Kubernetes may have changed the path of what nobody uses.
        fixture.unpublish("target").await.unwrap();
        fixture.unstage_at("other").await.unwrap();
        assert_eq!((fixture.machine.mounts().unwrap().len(), fixture.records()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_before_a_restart_of_the_machine_uses_nothing() {
    for (protocol, other) in [("nfs", "10.9.9.9:/k8s/a"), ("iscsi", "/dev/gone")] {
        let mut fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        fixture.publish("before", false).await.unwrap();
        fixture.tell(Machine::lose_power);
        fixture.restart();
        fixture.stage(protocol).await.unwrap();
        // The mode is that of one writer.
        fixture.publish("after", false).await.unwrap();
        fixture.unpublish("after").await.unwrap();
        fixture.tell(|machine| machine.mounts[0].0 = other.to_owned());
        fixture.stage(protocol).await.unwrap();
        let sources: Vec<String> = {
            let machine = fixture.machine.0.lock().unwrap();
            machine.mounts.iter().map(|(source, _)| source.clone()).collect()
        };
        assert!(sources.len() == 1 && sources[0] != other, "{protocol}: {sources:?}");
    }
}
