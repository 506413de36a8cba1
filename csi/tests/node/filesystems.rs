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

/// Kernels show in several ways that they have given a file system up.
const GIVEN_UP: [(&str, Change); 4] = [
    ("ext4", |machine| machine.option = Some("ro")),
    ("ext4", |machine| machine.option = Some("emergency_ro")),
    ("ext4", |machine| machine.option = Some("shutdown")),
    ("xfs", |machine| machine.shut_down = true),
];

/// Its disk may answer again, and its figures come from memory.
#[tokio::test(start_paused = true)]
async fn a_file_system_that_the_kernel_has_given_up_is_abnormal() {
    for (kind, give_up) in GIVEN_UP {
        let fixture = Fixture::new();
        fixture.tell(|machine| (machine.formatted, machine.kind) = (true, Some(kind)));
        fixture.stage("iscsi").await.unwrap();
        // Read-only by itself, which is no fault.
        fixture.publish("target", true).await.unwrap();
        for is_abnormal in [false, true] {
            for name in ["staging", "target"] {
                let answer = fixture.stats_at(name).await;
                let condition = answer.volume_condition.unwrap();
                assert_eq!(condition.abnormal, is_abnormal, "{name}: {}", condition.message);
                assert_eq!(answer.usage.len(), 2);
            }
            fixture.tell(give_up);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_the_kernel_has_given_up_makes_way_unless_a_pod_uses_it() {
    for (kind, give_up) in GIVEN_UP {
        let fixture = Fixture::new();
        fixture.tell(|machine| (machine.formatted, machine.kind) = (true, Some(kind)));
        fixture.stage("iscsi").await.unwrap();
        fixture.publish("target", false).await.unwrap();
        fixture.tell(give_up);
        assert_eq!(fixture.stage("iscsi").await.unwrap_err().code(), Code::Unavailable);
        assert_eq!((fixture.count("umount"), fixture.count("mount -t")), (0, 1));
        fixture.unpublish("target").await.unwrap();
        fixture.stage("iscsi").await.unwrap();
        assert_eq!((fixture.count("mount -t"), fixture.machine.mounts().unwrap().len()), (2, 1));
        assert_eq!(fixture.count("e2fsck"), if kind == "ext4" { 2 } else { 0 });
        assert!(!fixture.stats().await.volume_condition.unwrap().abnormal);
    }
}

/// `mkfs.xfs` marks the superblock until it has made the rest, and no kernel mounts what is marked.
/// An XFS that others have marked may be a copy of data.
#[tokio::test(start_paused = true)]
async fn an_xfs_whose_making_was_cut_off_is_made_anew_if_it_is_the_drivers() {
    let own = "5bb4a3f9-0721-873e-95a3-645c8b2d3696";
    let other = own.replace("5b", "5c");
    for (uuid, mark, reads, made, mounted) in [
        (own, "01", false, 1, 1),
        (own, "01", true, 0, 0),
        (own, "00", false, 0, 1),
        (other.as_str(), "01", false, 0, 0),
        (other.as_str(), "00", false, 0, 1),
    ] {
        let mut fixture = Fixture::new();
        fixture.reads = reads;
        let digits: Vec<char> = uuid.chars().filter(|digit| *digit != '-').collect();
        let uuid: String = digits.chunks(2).map(|two| format!(" {}{}", two[0], two[1])).collect();
        let (zeros, more) = (" 00".repeat(28), " 00".repeat(78));
        fixture.tell(|machine| {
            (machine.formatted, machine.kind) = (true, Some("xfs"));
            machine.superblock = format!(" 58 46 53 42{zeros}{uuid}{more} {mark}\n");
        });
        for _ in 0..2 {
            assert_eq!(fixture.stage("iscsi").await.is_ok(), mounted > 0, "{uuid} {mark}");
        }
        let anew = format!("mkfs.xfs -q -m uuid={own} -f /dev/sdx");
        let counts = [anew.as_str(), "mkfs", "mount -t xfs"].map(|part| fixture.count(part));
        assert_eq!(counts, [made, made, mounted], "{uuid} {mark} {reads}");
    }
}
