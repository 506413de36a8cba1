//! Commands that do not run, because all places are taken or the machine is short of processes:
//! they say nothing about a server.

use super::*;

/// Errors of a program that has asked nobody: no place, no process, killed, not started by
/// `nsenter`.
const NOT_RUN: [fn() -> HostError; 4] = [
    || HostError::Stuck,
    || HostError::Start { program: "p".to_owned(), source: io::ErrorKind::WouldBlock.into() },
    || failed("p", -1),
    || failed("p", 126),
];

/// Unmounts that were forced or lazy, and mounts that are left.
fn taken_away(fixture: &Fixture) -> (usize, usize) {
    let forced = fixture.count("umount -i -c -f") + fixture.count("umount -i -c -l");
    (forced, fixture.machine.mounts().unwrap().len())
}

/// A forced unmount of a live NFS server loses what is not written yet.
#[tokio::test(start_paused = true)]
async fn a_command_that_has_not_run_makes_no_server_dead() {
    // Each program that an unstage asks, and the state of the machine in which it does.
    let states: [(&str, Change); 4] = [
        ("sync", |_| {}),
        ("umount", |machine| machine.forgotten = true),
        ("stat", |machine| machine.in_use = true),
        ("stat", |machine| machine.slow = true),
    ];
    for error in NOT_RUN {
        for (program, state) in states {
            let fixture = Fixture::new();
            fixture.stage("nfs").await.unwrap();
            fixture.tell(state);
            fixture.tell(|machine| {
                machine.withheld.insert(program, error);
            });
            let refused = fixture.unstage().await.unwrap_err();
            assert_eq!(refused.code(), Code::Unavailable, "{program}: {refused}");
            assert_eq!(taken_away(&fixture), (0, 1), "{program}: {}", error());
            fixture.tell(|machine| {
                machine.withheld.clear();
                (machine.in_use, machine.slow, machine.forgotten) = (false, false, false);
            });
            fixture.unstage().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn data_that_is_being_written_is_not_lost_to_a_probe_that_has_not_run() {
    for error in NOT_RUN {
        let fixture = Fixture::new();
        fixture.stage("nfs").await.unwrap();
        fixture.tell(|machine| {
            machine.writes = true;
            machine.withheld.insert("stat", error);
        });
        assert_eq!(fixture.unstage().await.unwrap_err().code(), Code::Unavailable);
        assert_eq!((fixture.count("umount"), taken_away(&fixture)), (0, (0, 1)), "{}", error());
    }
}

/// The disk would come over TCP, and stay so until its next stage.
#[tokio::test(start_paused = true)]
async fn a_login_that_has_found_no_place_says_nothing_about_its_portal() {
    let fixture = Fixture::new();
    fixture.tell(|machine| {
        machine.withheld.insert("iscsiadm", || HostError::Stuck);
    });
    assert_eq!(fixture.stage("iscsi").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!((fixture.count("-I iser"), fixture.count("-I default")), (1, 0));
    fixture.tell(|machine| machine.withheld.clear());
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("--login"), fixture.count("-I default")), (1, 0));
}

/// The path of a pod is one mount of several: force would end the writes of all of them.
#[tokio::test(start_paused = true)]
async fn a_slow_unmount_is_not_forced_while_the_server_answers() {
    let fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    fixture.publish("target", false).await.unwrap();
    fixture.tell(|machine| machine.slow = true);
    assert_eq!(fixture.unpublish("target").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(taken_away(&fixture), (0, 2));
    fixture.tell(|machine| machine.slow = false);
    fixture.unpublish("target").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_nobody_looked_at_does_not_make_way() {
    for error in NOT_RUN {
        let fixture = Fixture::new();
        fixture.stage("nfs").await.unwrap();
        fixture.tell(|machine| {
            machine.withheld.insert("stat", error);
        });
        assert_eq!(fixture.stage("nfs").await.unwrap_err().code(), Code::Unavailable);
        assert_eq!((fixture.count("umount"), taken_away(&fixture)), (0, (0, 1)), "{}", error());
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_nobody_could_examine_is_not_abnormal() {
    for error in NOT_RUN {
        for protocol in ["nfs", "iscsi"] {
            let fixture = Fixture::new();
            fixture.stage(protocol).await.unwrap();
            let before = fixture.stats().await.usage;
            fixture.tell(|machine| {
                machine.withheld.extend([("stat", error), ("dd", error)]);
            });
            let answer = fixture.stats().await;
            let condition = answer.volume_condition.unwrap();
            assert!(!condition.abnormal, "{protocol}: {}", condition.message);
            assert!(condition.message.contains("was not examined"), "{}", condition.message);
            assert_eq!(answer.usage, before);
        }
    }
}
