//! Unstages of live and of dead servers.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_volume_of_a_dead_server_is_unstaged_in_time() {
    for protocol in ["nfs", "iscsi"] {
        let mut fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        fixture.publish("target", false).await.unwrap();
        fixture.tell(|machine| machine.dead = true);
        fixture.restart();
        let begun = Instant::now();
        fixture.unpublish("target").await.unwrap();
        assert!(begun.elapsed() < UNSTAGE_SECONDS, "{protocol}: {:?}", begun.elapsed());
        let begun = Instant::now();
        fixture.unstage().await.unwrap();
        assert!(begun.elapsed() < UNSTAGE_SECONDS, "{protocol}: {:?}", begun.elapsed());
        assert!(fixture.machine.mounts().unwrap().is_empty());
        // Force is for NFS: on a disk it would only wait, in a place for commands.
        assert_eq!(fixture.count("umount -i -c -f"), if protocol == "nfs" { 2 } else { 0 });
        assert_eq!(fixture.records(), 0);
        fixture.unstage().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_mount_in_use_on_a_live_server_is_not_taken_away() {
    let fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    fixture.tell(|machine| machine.in_use = true);
    assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!((fixture.count("-l "), fixture.machine.mounts().unwrap().len()), (0, 1));
    fixture.tell(|machine| machine.in_use = false);
    fixture.unstage().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn data_that_is_being_written_to_a_live_server_is_waited_for() {
    for protocol in ["nfs", "iscsi"] {
        let fixture = Fixture::new();
        fixture.stage(protocol).await.unwrap();
        fixture.tell(|machine| machine.writes = true);
        let begun = Instant::now();
        assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
        assert!(begun.elapsed() < UNSTAGE_SECONDS);
        assert_eq!((fixture.count("umount"), fixture.count("--logout")), (0, 0), "{protocol}");
        fixture.tell(|machine| machine.writes = false);
        fixture.unstage().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_a_file_system_in_the_kernel_is_not_taken_away() {
    // multipathd may have made a device of the paths that came after the mount.
    for has_map in [false, true] {
        let fixture = Fixture::new();
        fixture.stage("iscsi").await.unwrap();
        fixture.tell(|machine| {
            (machine.filesystem, machine.has_map) = (Some("/dev/sdx"), has_map);
        });
        assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
        assert_eq!((fixture.count("--logout"), fixture.count("multipath -f")), (0, 0));
        // Of a dead gateway nothing can be saved.
        fixture.tell(|machine| machine.dead = true);
        fixture.unstage().await.unwrap();
        assert_eq!(fixture.count("--logout"), 1);
    }
}

/// As after the loss of /etc/iscsi.
#[tokio::test(start_paused = true)]
async fn a_session_without_a_record_of_open_iscsi_is_ended_by_its_number() {
    let fixture = Fixture::new();
    fixture.stage("iscsi").await.unwrap();
    fixture.tell(|machine| machine.has_no_records = true);
    fixture.unstage().await.unwrap();
    assert_eq!((fixture.count("-m session -r 7 --logout"), fixture.records()), (1, 0));
    assert!(!fixture.machine.has_session(""));
}

/// It would go on without a record.
#[tokio::test(start_paused = true)]
async fn a_session_that_iscsiadm_does_not_find_has_not_ended() {
    let fixture = Fixture::new();
    fixture.stage("iscsi").await.unwrap();
    fixture.tell(|machine| {
        machine.withheld.insert("iscsiadm", || failed("iscsiadm", 21));
    });
    assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(fixture.records(), 1);
    fixture.tell(|machine| machine.logged_in = false);
    fixture.unstage().await.unwrap();
    assert_eq!(fixture.records(), 0);
}

/// Nobody deletes it, and the volume does not stay on the node for it.
#[tokio::test(start_paused = true)]
async fn what_lies_at_the_path_of_a_pod_without_a_mount_stays_and_holds_up_no_unstage() {
    for protocol in ["nfs", "iscsi"] {
        let fixture = Fixture::new();
        let file = fixture.dir.path().join("full/file");
        for target in ["full", "empty"] {
            fixture.stage(protocol).await.unwrap();
            fixture.publish(target, false).await.unwrap();
            if target == "full" {
                std::fs::write(&file, "kept").unwrap();
            }
            fixture.unstage().await.unwrap();
            let left = (fixture.machine.mounts().unwrap().len(), fixture.records());
            assert_eq!(left, (0, 0), "{protocol}");
        }
        assert!(!fixture.dir.path().join("empty").exists());
        // Its pod's kubelet is told.
        assert_eq!(fixture.unpublish("full").await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
}
