//! Logins, and disks with one path and with several.

use super::*;

const TWO_PORTALS: &str = "tcp=10.0.0.9:3260,tcp=10.0.1.9:3260";

#[tokio::test(start_paused = true)]
async fn a_login_is_tried_again_and_a_disk_is_formatted_once() {
    let mut fixture = Fixture::new();
    fixture.tell(|machine| machine.refused_logins = 2);
    fixture.stage("iscsi").await.unwrap();
    // A record, its settings and three logins, all by iSER.
    assert_eq!((fixture.count("--login"), fixture.count("-I iser")), (3, 5));
    fixture.unstage().await.unwrap();
    assert!(!fixture.machine.has_session(""));
    fixture.restart();
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("mkfs.ext4"), fixture.count("e2fsck")), (1, 1));
}

/// Each is a process that goes through the records of all targets while others wait for their
/// turn.
#[tokio::test(start_paused = true)]
async fn all_settings_of_a_record_are_made_by_one_command() {
    let fixture = Fixture::new();
    fixture.stage("iscsi").await.unwrap();
    let settings = "-o update -n node.startup -v manual -n node.conn[0].startup -v manual \
                    -n node.session.timeo.replacement_timeout -v 120";
    assert_eq!((fixture.count("-o update"), fixture.count(settings)), (1, 1));
    assert_eq!(fixture.count("iscsiadm"), 3, "a record, its settings, a login");
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_killed_iscsiadm_stops_nobody_for_ever() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.locked = true);
    // The first attempt finds it, the others go on, over the same transport.
    fixture.stage("iscsi").await.unwrap();
    assert_eq!(fixture.count("-I default"), 0);
    fixture.tell(|machine| machine.locked = true);
    let begun = Instant::now();
    assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
    assert!(begun.elapsed() < UNSTAGE_SECONDS);
    fixture.unstage().await.unwrap();
}

/// A portal that was left out for it would be no path until the next stage.
#[tokio::test(start_paused = true)]
async fn a_record_that_another_volume_removes_meanwhile_costs_no_path() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.raced_records) = (true, 2));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    assert_eq!((fixture.count("-o new"), fixture.count("--login")), (4, 2));
    fixture.tell(|machine| machine.raced_records = 2);
    fixture.unstage().await.unwrap();
    assert_eq!((fixture.count("-o delete"), fixture.records()), (3, 0));
    // One that stays so is an error, in time.
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| machine.raced_records = u32::MAX);
    let begun = Instant::now();
    assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
    assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
}

/// Without the daemon nobody would bring a path back that has failed.
#[tokio::test(start_paused = true)]
async fn two_portals_are_a_multipath_device_where_multipathd_runs() {
    for (multipathd, device) in [(true, "/dev/dm-0"), (false, "/dev/sdx")] {
        let fixture = Fixture::new();
        fixture.tell(|machine| machine.multipathd = multipathd);
        fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
        assert_eq!(fixture.count("multipath -v1"), usize::from(multipathd));
        let commands = fixture.machine.0.lock().unwrap().commands.clone();
        let made = commands.iter().find(|command| command.starts_with("mkfs.ext4")).unwrap();
        assert!(made.ends_with(device), "{made}");
    }
}

/// Nobody takes over for a single path, however many portals there are: it is waited for. Nor does
/// anybody keep commands when both paths have failed, unless multipath was told to.
#[tokio::test(start_paused = true)]
async fn commands_fail_soon_only_where_another_path_takes_them_and_multipath_keeps_them() {
    let other = Some("10.0.1.9:3260");
    let cases = [
        (true, None, true, 5),
        (true, None, false, 120),
        (true, other, true, PATIENCE_SECONDS),
        (false, None, true, PATIENCE_SECONDS),
    ];
    for (multipathd, down, queues, patience) in cases {
        let fixture = Fixture::new();
        fixture.tell(|machine| {
            (machine.multipathd, machine.down, machine.queues) = (multipathd, down, queues);
        });
        fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
        assert_eq!(fixture.count("replacement_timeout -v 5"), 0);
        let told = fixture.machine.0.lock().unwrap().patience;
        assert_eq!(told, Some(Patience::Seconds(patience)), "{multipathd} {down:?} {queues}");
    }
}

/// Of a device that nobody could ask about it is not known that it keeps commands.
#[tokio::test(start_paused = true)]
async fn a_multipath_device_without_an_answer_about_it_is_waited_for() {
    let fixture = Fixture::new();
    fixture.tell(|machine| {
        (machine.multipathd, machine.queues) = (true, true);
        machine.withheld.insert("dmsetup", || failed("dmsetup", 1));
    });
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    let told = fixture.machine.0.lock().unwrap().patience;
    assert_eq!(told, Some(Patience::Seconds(120)));
}

/// Over a later session they would reach the disk, after what another node has written.
#[tokio::test(start_paused = true)]
async fn a_multipath_device_that_may_keep_writes_is_not_left_behind() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| {
        machine.dead = true;
        machine.withheld.insert("multipathd", || failed("multipathd", 1));
    });
    for _ in 0..2 {
        let begun = Instant::now();
        let refused = fixture.unstage().await.unwrap_err();
        assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("/dev/dm-0 may keep"), "{refused}");
        assert_eq!((fixture.count("--logout"), fixture.records()), (0, 1));
    }
    fixture.tell(|machine| machine.withheld.clear());
    fixture.unstage().await.unwrap();
    assert!(!fixture.machine.0.lock().unwrap().has_map);
    assert_eq!((fixture.count("--logout"), fixture.records()), (1, 0));
}

/// A session may be logged in again while the paths of the device still count as failed.
#[tokio::test(start_paused = true)]
async fn a_multipath_device_keeps_nothing_at_its_end_also_with_a_session() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    assert_eq!(fixture.count("multipathd restorequeueing map /dev/dm-0"), 1, "of one before");
    fixture.unstage().await.unwrap();
    assert_eq!(fixture.count("multipathd disablequeueing map /dev/dm-0"), 1);
    assert_eq!((fixture.count("multipath -f"), fixture.count("--logout")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_idle_multipath_device_needs_no_multipathd_for_its_end() {
    for dead in [false, true] {
        let fixture = Fixture::new();
        fixture.stage("iscsi").await.unwrap();
        fixture.tell(|machine| (machine.has_map, machine.dead) = (true, dead));
        fixture.unstage().await.unwrap();
        assert_eq!((fixture.count("multipath -f"), fixture.count("--logout")), (1, 1), "{dead}");
    }
}

/// A file system waits in it for the end of the session. multipathd tries only once to remove a
/// device whose last path is gone.
#[tokio::test(start_paused = true)]
async fn a_multipath_device_that_was_in_use_at_the_logout_is_removed_after_it() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| {
        machine.dead = true;
        machine.map_is_open = Some(Duration::from_secs(3));
    });
    let begun = Instant::now();
    fixture.unstage().await.unwrap();
    assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
    let machine = fixture.machine.0.lock().unwrap();
    assert!(!machine.has_map && machine.portals.is_empty());
}

/// Its removal does not wait for the turn, or for the end, of the command for records.
#[tokio::test(start_paused = true)]
async fn a_multipath_device_is_removed_also_where_a_record_is_not() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| {
        (machine.dead, machine.locked) = (true, true);
        machine.map_is_open = Some(Duration::from_secs(3));
    });
    let begun = Instant::now();
    let refused = fixture.unstage().await.unwrap_err();
    assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("iscsiadm"), "{refused}");
    assert_eq!((fixture.machine.0.lock().unwrap().has_map, fixture.records()), (false, 1));
    fixture.unstage().await.unwrap();
    assert_eq!((fixture.count("-o delete"), fixture.records()), (2, 0));
}

/// A process that has it open may never end. The next stage would find what the kernel remembers
/// of the disk from before.
#[tokio::test(start_paused = true)]
async fn a_multipath_device_that_stays_in_use_keeps_out_the_next_stage_and_not_the_unstage() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| (machine.dead, machine.map_is_open) = (true, Some(Duration::MAX)));
    let begun = Instant::now();
    fixture.unstage().await.unwrap();
    assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
    assert_eq!((fixture.machine.has_session(""), fixture.records()), (false, 0));
    assert!(fixture.machine.0.lock().unwrap().has_map);
    fixture.tell(|machine| machine.dead = false);
    let refused = fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("/dev/dm-0 is still in use"), "{refused}");
    // Nothing has brought paths back; such a stage can be unstaged, too.
    assert_eq!(fixture.count("--login"), 2);
    fixture.unstage().await.unwrap();
    fixture.tell(|machine| machine.map_is_open = None);
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    assert_eq!((fixture.count("--login"), fixture.count("mount -t")), (4, 2));
}

/// udev looks at a device after an unmount, say.
#[tokio::test(start_paused = true)]
async fn a_brief_use_of_a_multipath_device_is_waited_for() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| machine.map_is_open = Some(Duration::ZERO));
    let (unstaged, ()) = tokio::join!(fixture.unstage(), async {
        sleep(Duration::from_millis(800)).await;
        assert_eq!(fixture.count("multipath -f"), 2);
        fixture.tell(|machine| machine.map_is_open = None);
    });
    unstaged.unwrap();
    assert_eq!((fixture.count("--logout"), fixture.records()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_multipath_device_in_use_keeps_its_sessions_while_the_gateway_answers() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| machine.map_is_open = Some(Duration::ZERO));
    let refused = fixture.unstage().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("/dev/dm-0 is still in use"), "{refused}");
    assert_eq!((fixture.count("--logout"), fixture.records()), (0, 1));
    fixture.tell(|machine| machine.map_is_open = None);
    fixture.unstage().await.unwrap();
    assert_eq!((fixture.count("--logout"), fixture.records()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_multipath_device_under_lvm_keeps_no_other_node_from_the_volume() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.multipathd, machine.queues) = (true, true));
    fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap();
    fixture.tell(|machine| {
        (machine.map_is_open, machine.map_has_holders) = (Some(Duration::MAX), true);
    });
    fixture.unstage().await.unwrap();
    assert_eq!((fixture.count("--logout"), fixture.records()), (1, 0));
    // This node would get what its kernel remembers of the disk.
    let refused = fixture.stage_at("iscsi", TWO_PORTALS).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("/dev/dm-0 is still in use"), "{refused}");
}
