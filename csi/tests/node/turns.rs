//! Turns of commands for the records of open-iscsi. One that is killed may leave the lock of the
//! records behind, and all others wait for it then.

use super::*;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Volumes and their staging paths.
const FIRST: (&str, &str) = (VOLUME, "staging");
const SECOND: (&str, &str) = ("g:tank/k8s/b", "second");
const THIRD: (&str, &str) = ("g:tank/k8s/c", "third");
const FOURTH: (&str, &str) = ("g:tank/k8s/d", "fourth");
const FIFTH: (&str, &str) = ("g:tank/k8s/e", "fifth");

impl Told {
    /// Takes the time of a command for records. Returns whether it has ended within its limit.
    pub(super) async fn has_worked(&self, limit: Duration) -> bool {
        let work = {
            let mut machine = self.0.lock().unwrap();
            let (now, most) = machine.records_at_once;
            machine.records_at_once = (now + 1, most.max(now + 1));
            machine.record_work
        };
        if !work.is_zero() {
            sleep(work.min(limit)).await;
        }
        self.0.lock().unwrap().records_at_once.0 -= 1;
        work <= limit
    }
}

fn request(fixture: &Fixture, (volume, staging): (&str, &str)) -> NodeUnstageVolumeRequest {
    NodeUnstageVolumeRequest {
        volume_id: volume.to_owned(),
        staging_target_path: fixture.path(staging),
    }
}

async fn unstage(fixture: &Fixture, volume: (&str, &str)) -> Result<(), Status> {
    let request = Request::new(request(fixture, volume));
    fixture.node.node_unstage_volume(request).await.map(drop)
}

async fn stage(fixture: &Fixture, volume: (&str, &str)) -> Result<(), Status> {
    fixture.stage_volume(volume, "iscsi", PORTALS).await
}

/// Returns the largest number of commands for records that ran at the same time.
fn most_at_once(fixture: &Fixture) -> u32 {
    fixture.machine.0.lock().unwrap().records_at_once.1
}

#[tokio::test(start_paused = true)]
async fn one_command_for_records_runs_at_a_time() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.record_work = Duration::from_secs(1));
    let (first, second) = tokio::join!(stage(&fixture, FIRST), stage(&fixture, SECOND));
    first.and(second).unwrap();
    let begun = Instant::now();
    let (first, second) = tokio::join!(unstage(&fixture, FIRST), unstage(&fixture, SECOND));
    first.and(second).unwrap();
    assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
    assert_eq!((fixture.count("-o update"), fixture.count("-o delete")), (2, 2));
    assert_eq!((most_at_once(&fixture), fixture.records()), (1, 0));
}

/// Its command would be killed with the call, also with the lock.
#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_gives_up_ends_its_turn_by_itself() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.record_work = Duration::from_secs(5));
    assert!(timeout(Duration::from_secs(7), stage(&fixture, FIRST)).await.is_err());
    stage(&fixture, SECOND).await.unwrap();
    assert_eq!((fixture.count("-o update"), fixture.count("--login")), (2, 2));
    assert_eq!(most_at_once(&fixture), 1);
}

/// It would be killed at any moment, also with the lock.
#[tokio::test(start_paused = true)]
async fn a_command_for_records_is_not_repeated_without_time_for_it() {
    for (seconds, deletes) in [(1, 2), (3, 1)] {
        let fixture = Fixture::new();
        fixture.stage("iscsi").await.unwrap();
        fixture.tell(|machine| {
            (machine.raced_records, machine.record_work) = (1, Duration::from_secs(seconds));
        });
        let ended = fixture.unstage().await;
        assert_eq!(fixture.count("-o delete"), deletes);
        assert_eq!(ended.is_ok(), deletes == 2);
        if let Err(refused) = ended {
            assert_eq!(refused.code(), Code::Unavailable);
            assert!(refused.message().contains("status 6"), "{refused}");
            fixture.unstage().await.unwrap();
        }
        // Nobody was killed.
        assert_eq!((fixture.count("find /run"), fixture.records()), (0, 0));
    }
}

/// The two commands of a login have one turn, and the turns before it take 32 s.
#[tokio::test(start_paused = true)]
async fn an_unstage_that_waits_for_its_turn_ends_in_time_and_starts_nothing() {
    let fixture = Fixture::new();
    stage(&fixture, SECOND).await.unwrap();
    fixture.tell(|machine| machine.record_work = Duration::from_secs(8));
    let (first, third) = (stage(&fixture, FIRST), stage(&fixture, THIRD));
    let (first, third, refused) = tokio::join!(first, third, async {
        let begun = Instant::now();
        let refused = unstage(&fixture, SECOND).await.unwrap_err();
        assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
        refused
    });
    first.and(third).unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("no turn within"), "{refused}");
    assert_eq!((fixture.count("-o delete"), fixture.records()), (0, 3));
    fixture.tell(|machine| machine.record_work = Duration::ZERO);
    unstage(&fixture, SECOND).await.unwrap();
    assert_eq!((fixture.count("-o delete"), fixture.records()), (1, 2));
}

/// The next transport, or one path less, would be no answer to it.
#[tokio::test(start_paused = true)]
async fn a_stage_without_its_turn_says_nothing_about_its_portals() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.record_work = Duration::from_secs(9));
    let (first, second, third, fourth, fifth) = tokio::join!(
        stage(&fixture, FIRST),
        stage(&fixture, SECOND),
        stage(&fixture, THIRD),
        stage(&fixture, FOURTH),
        stage(&fixture, FIFTH)
    );
    first.and(second).and(third).and(fourth).unwrap();
    let refused = fifth.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("no turn within"), "{refused}");
    assert_eq!((fixture.count("-o new"), fixture.count("-I default")), (4, 0));
    stage(&fixture, FIFTH).await.unwrap();
    assert_eq!(most_at_once(&fixture), 1);
}

/// The login to the next portal does not wait for that for long.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_dead_portal_stays_while_others_have_their_turns() {
    let fixture = Fixture::new();
    fixture.tell(|machine| {
        (machine.record_work, machine.down) = (Duration::from_secs(8), Some("10.0.0.9:20049"));
    });
    let (first, second) = tokio::join!(stage(&fixture, FIRST), stage(&fixture, SECOND));
    first.and(second).unwrap();
    assert_eq!((fixture.count("-o delete"), most_at_once(&fixture)), (0, 1));
    fixture.tell(|machine| machine.record_work = Duration::ZERO);
    unstage(&fixture, FIRST).await.unwrap();
    // One of a portal that is down is removed where nobody waits.
    stage(&fixture, FIRST).await.unwrap();
    assert_eq!(fixture.count("-o delete"), 2);
}

/// As when a node is drained.
#[tokio::test(start_paused = true)]
async fn a_hundred_unstages_of_a_slow_node_end_in_time_and_after_repetitions() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..100).map(|number| format!("g:tank/k8s/{number}")).collect();
    let volumes: Vec<(&str, &str)> =
        names.iter().map(|name| (name.as_str(), name.rsplit('/').next().unwrap())).collect();
    for volume in &volumes {
        stage(&fixture, *volume).await.unwrap();
    }
    fixture.tell(|machine| machine.record_work = Duration::from_millis(500));
    let mut rounds = 0;
    while fixture.records() > 0 {
        rounds += 1;
        assert!(rounds <= 3, "{} are left", fixture.records());
        let begun = Instant::now();
        let mut calls = JoinSet::new();
        for volume in &volumes {
            let (node, request) = (fixture.node.clone(), request(&fixture, *volume));
            calls.spawn(async move { node.node_unstage_volume(Request::new(request)).await });
        }
        for refused in calls.join_all().await.into_iter().filter_map(Result::err) {
            assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        }
        assert!(begun.elapsed() < UNSTAGE_SECONDS, "{:?}", begun.elapsed());
    }
    // None was started in vain, or killed.
    assert_eq!((fixture.count("-o delete"), fixture.count("find /run")), (100, 0));
    assert_eq!(most_at_once(&fixture), 1);
}
