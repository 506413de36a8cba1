//! Statistics and conditions of volumes.

use super::*;

#[tokio::test(start_paused = true)]
async fn statistics_of_a_dead_server_say_so() {
    let mut fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    let answer = fixture.stats().await;
    assert!(!answer.volume_condition.unwrap().abnormal && answer.usage.len() == 2);
    let before = answer.usage;
    fixture.tell(|machine| machine.dead = true);
    // Without figures, Kubernetes would drop the condition.
    let answer = fixture.stats().await;
    assert!(answer.volume_condition.unwrap().abnormal && answer.usage == before);
    // A driver that was restarted does not know them.
    fixture.restart();
    let answer = fixture.stats().await;
    assert!(answer.volume_condition.unwrap().abnormal && !answer.usage.is_empty());
}

/// The file system itself would answer from memory.
#[tokio::test(start_paused = true)]
async fn a_disk_without_a_session_or_that_cannot_be_read_is_abnormal() {
    let faults: [fn(&mut Machine); 3] = [
        |machine| machine.unreadable = true,
        |machine| machine.dead = true,
        |machine| machine.mounts[0].0 = "/dev/gone".to_owned(),
    ];
    for fault in faults {
        let fixture = Fixture::new();
        fixture.stage("iscsi").await.unwrap();
        let answer = fixture.stats().await;
        assert!(!answer.volume_condition.unwrap().abnormal && answer.usage.len() == 2);
        fixture.tell(fault);
        let answer = fixture.stats().await;
        assert!(answer.volume_condition.unwrap().abnormal && !answer.usage.is_empty());
    }
}

/// Each of two that wait for ever would have its process, and they have one place.
#[tokio::test(start_paused = true)]
async fn figures_are_not_asked_for_where_an_inode_was_not_told_in_time() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.formatted, machine.kind) = (true, Some("xfs")));
    fixture.stage("iscsi").await.unwrap();
    let before = fixture.stats().await.usage;
    assert_eq!((fixture.count("stat -c"), fixture.count("stat -f")), (1, 1));
    fixture.tell(|machine| machine.inodes_hang = true);
    let answer = fixture.stats().await;
    assert!(answer.volume_condition.unwrap().abnormal && answer.usage == before);
    assert_eq!((fixture.count("stat -c"), fixture.count("stat -f")), (2, 1));
}

/// Each of them would keep one of the places for commands, until none is left.
#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_has_one_read_waiting_and_stops_no_other_volume() {
    let fixture = Fixture::new();
    fixture.stage("iscsi").await.unwrap();
    fixture.tell(|machine| machine.hangs = true);
    for _ in 0..100 {
        assert!(fixture.stats().await.volume_condition.unwrap().abnormal);
    }
    assert_eq!(fixture.count("dd status=none"), 1);
    fixture.stage_volume(("g:tank/k8s/b", "other"), "nfs", PORTALS).await.unwrap();
    // The read ends after all.
    fixture.tell(|machine| {
        machine.hangs = false;
        machine.stuck.clear();
    });
    assert!(!fixture.stats().await.volume_condition.unwrap().abnormal);
    assert_eq!(fixture.count("dd status=none"), 2);
}
