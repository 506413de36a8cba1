//! File systems on disks: made, checked, grown.

use super::*;
use tokio::task::JoinSet;
use zgate_csi::limits::{FORMAT_SECONDS, MAX_FORMATS};

#[tokio::test(start_paused = true)]
async fn a_disk_that_cannot_be_read_is_not_formatted_nor_one_mounted_whose_check_was_killed() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.formatted, machine.unreadable) = (true, true));
    fixture.stage("iscsi").await.unwrap_err();
    assert_eq!((fixture.count("mkfs"), fixture.count("mount -t")), (0, 0));
    fixture.tell(|machine| (machine.unreadable, machine.checks_are_killed) = (false, true));
    fixture.stage("iscsi").await.unwrap_err();
    assert_eq!((fixture.count("mkfs"), fixture.count("mount -t")), (0, 0));
    fixture.tell(|machine| machine.checks_are_killed = false);
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("mkfs"), fixture.count("mount -t")), (0, 1));
}

/// A caller waits for two minutes, and repeats the call for as long as it takes.
#[tokio::test(start_paused = true)]
async fn a_check_that_takes_hours_ends_once() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.formatted, machine.work) = (true, FORMAT_SECONDS / 2));
    let begun = Instant::now();
    let (first, repeated) = tokio::join!(fixture.stage("iscsi"), async {
        sleep(Duration::from_secs(3600)).await;
        fixture.stage("iscsi").await
    });
    assert_eq!(repeated.unwrap_err().code(), Code::Aborted);
    first.unwrap();
    assert!(begun.elapsed() > FORMAT_SECONDS / 2);
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("e2fsck"), fixture.count("mount -t")), (1, 1));
}

/// Otherwise a pod whose gateway is gone for good could not be deleted for hours.
#[tokio::test(start_paused = true)]
async fn a_check_is_given_up_when_its_gateway_stays_away() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.formatted, machine.work) = (true, FORMAT_SECONDS));
    let begun = Instant::now();
    let (staged, ()) = tokio::join!(fixture.stage("iscsi"), async {
        // A restart is no reason.
        for (dead, seconds) in [(false, 590), (true, 20), (false, 600), (true, 0)] {
            fixture.tell(|machine| machine.dead = dead);
            sleep(Duration::from_secs(seconds)).await;
        }
    });
    assert_eq!(staged.unwrap_err().code(), Code::Unavailable);
    let took = begun.elapsed().as_secs();
    assert!((1210..1500).contains(&took), "{took} s");
    fixture.unstage().await.unwrap();
    assert_eq!(fixture.count("mount -t"), 0);
}

/// Each has a part of the driver's memory, and one of the places for commands.
#[tokio::test(start_paused = true)]
async fn few_file_systems_are_checked_at_a_time() {
    let fixture = Arc::new(Fixture::new());
    fixture.tell(|machine| (machine.formatted, machine.work) = (true, FORMAT_SECONDS));
    let mut stages = JoinSet::new();
    for number in 0..=MAX_FORMATS {
        let fixture = Arc::clone(&fixture);
        stages.spawn(async move {
            let (volume, staging) = (format!("g:tank/k8s/{number}"), format!("staging{number}"));
            fixture.stage_volume((&volume, &staging), "iscsi", PORTALS).await
        });
    }
    let begun = Instant::now();
    let first = stages.join_next().await.unwrap().unwrap();
    assert_eq!(first.unwrap_err().code(), Code::Unavailable);
    assert!(begun.elapsed() < 2 * FORMAT_LOOK_SECONDS);
    assert_eq!(stages.len(), MAX_FORMATS);
}
