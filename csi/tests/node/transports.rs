//! Transports: the first one that works. A reason that keeps this node from asking a portal says
//! nothing about its transport.

use super::*;

#[tokio::test(start_paused = true)]
async fn tcp_follows_where_rdma_fails() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.rdma_fails = true);
    fixture.stage("nfs").await.unwrap();
    assert_eq!((fixture.count("proto=rdma"), fixture.count("proto=tcp")), (1, 1));
    fixture.stage("nfs").await.unwrap();
    assert_eq!(fixture.count("proto=tcp"), 1, "the second call finds the mount");
    assert_eq!(fixture.machine.mounts().unwrap()[0].source, b"10.0.0.9:/k8s/a");
}

/// The disk would come over TCP, and stay so until its next stage.
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_made_moves_no_disk_to_another_transport() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.locked, machine.lock_is_young) = (true, true));
    let refused = fixture.stage("iscsi").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("iscsiadm"), "{refused}");
    assert_eq!((fixture.count("-o new"), fixture.count("-I default")), (1, 0));
    // An old one is removed, and the record is made at once.
    fixture.tell(|machine| machine.lock_is_young = false);
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("-o new"), fixture.count("-I default")), (3, 0));
    assert_eq!(fixture.count("-I iser --login"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_iscsiadm_refuses_moves_no_disk_to_another_transport() {
    let refusals: [fn() -> HostError; 2] = [|| failed("iscsiadm", 6), || failed("iscsiadm", 7)];
    for refusal in refusals {
        let fixture = Fixture::new();
        fixture.tell(|machine| {
            machine.withheld.insert("iscsiadm", refusal);
        });
        let refused = fixture.stage("iscsi").await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("status"), "{refused}");
        assert_eq!((fixture.count("--login"), fixture.count("-I default")), (0, 0));
        fixture.tell(|machine| machine.withheld.clear());
        fixture.stage("iscsi").await.unwrap();
        assert_eq!(fixture.count("-I default"), 0);
    }
}

/// iscsid is what asks a portal. An update of open-iscsi restarts it.
#[tokio::test(start_paused = true)]
async fn a_login_without_iscsid_moves_no_disk_to_another_transport() {
    let refusals: [fn() -> HostError; 2] = [|| failed("iscsiadm", 18), || failed("iscsiadm", 20)];
    for refusal in refusals {
        let fixture = Fixture::new();
        fixture.tell(|machine| machine.record_work = Duration::from_secs(2));
        let (staged, ()) = tokio::join!(fixture.stage("iscsi"), async {
            // The second command for its record, the last one, runs.
            sleep(Duration::from_secs(3)).await;
            fixture.tell(|machine| {
                machine.withheld.insert("iscsiadm", refusal);
            });
        });
        assert_eq!(staged.unwrap_err().code(), Code::Unavailable);
        assert_eq!((fixture.count("-I iser --login"), fixture.count("-I default")), (3, 0));
        fixture.tell(|machine| machine.withheld.clear());
        fixture.stage("iscsi").await.unwrap();
        assert_eq!(fixture.count("-I default"), 0);
    }
}

/// It reads its record at its start, and waits for longer than it may take.
#[tokio::test(start_paused = true)]
async fn a_login_behind_a_lock_moves_no_disk_to_another_transport() {
    for (locked, over_tcp) in [(true, 0), (false, 1)] {
        let fixture = Fixture::new();
        fixture.tell(|machine| machine.login_hangs = true);
        let (staged, ()) = tokio::join!(fixture.stage("iscsi"), async {
            sleep(Duration::from_secs(1)).await;
            fixture.tell(|machine| machine.locked = locked);
        });
        assert_eq!(staged.is_ok(), !locked, "{staged:?}");
        assert_eq!(fixture.count("-I default --login"), over_tcp);
        // Without the lock, and with a portal that answers, it is as it was.
        fixture.tell(|machine| (machine.login_hangs, machine.locked) = (false, false));
        fixture.stage("iscsi").await.unwrap();
        assert_eq!(fixture.count("-I default --login"), over_tcp);
    }
}
