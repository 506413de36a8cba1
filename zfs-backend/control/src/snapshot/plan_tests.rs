use super::*;

fn at(text: &str) -> Moment {
    text.parse().unwrap()
}

fn policy(keep: &[(Kind, u32)]) -> Policy {
    let mut numbers = [0; 6];
    for (kind, count) in keep {
        numbers[*kind as usize] = *count;
    }
    Policy {
        dataset: "llm/vm".parse().unwrap(),
        recursive: false,
        keep: numbers,
        frequent_minutes: 15,
        autosnap: true,
        autoprune: true,
    }
}

fn snapshot(name: &str, createtxg: u64) -> Snapshot {
    Snapshot {
        name: name.parse().unwrap(),
        guid: createtxg,
        creation_seconds: 0,
        createtxg,
        used_bytes: 1,
        referenced_bytes: 1,
        holds: 0,
        clones: Vec::new(),
    }
}

/// Runs a schedule at each of the moments, as the gateway does.
fn live_through(policy: &Policy, moments: impl IntoIterator<Item = Moment>) -> Vec<Snapshot> {
    let mut existing: Vec<Snapshot> = Vec::new();
    for (txg, now) in moments.into_iter().enumerate() {
        let plan = plan(now, policy, &existing);
        for creation in &plan.create {
            existing.push(snapshot(creation.snapshot.as_str(), 1 + txg as u64));
        }
        existing.retain(|known| plan.prune.iter().all(|removal| removal.snapshot != known.name));
    }
    existing
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.create.iter().map(|creation| creation.snapshot.name()).collect()
}

fn pruned(plan: &Plan) -> Vec<&str> {
    plan.prune.iter().map(|removal| removal.snapshot.as_str()).collect()
}

#[test]
fn at_first_one_of_each_wanted_kind() {
    let plan =
        plan(at("2026-11-21_10:17:59"), &policy(&[(Kind::Hourly, 24), (Kind::Daily, 7)]), &[]);
    assert_eq!(
        names(&plan),
        ["zgate_2026-11-21_10:17:59_daily", "zgate_2026-11-21_10:17:59_hourly"]
    );
    assert!(plan.prune.is_empty());
}

#[test]
fn once_a_period_and_the_newest_are_kept() {
    let policy = policy(&[(Kind::Frequently, 4), (Kind::Hourly, 3)]);
    let start = at("2026-11-21_10:00:00").0;
    // Runs every ten seconds for a day.
    let left = live_through(&policy, (0..8640).map(|step| Moment(start + step * 10)));
    let of = |kind| {
        let ours = left.iter().filter_map(|known| OurName::parse(known.name.name()));
        ours.filter(|name| name.kind == kind).map(|name| name.taken.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        of(Kind::Hourly),
        ["2026-11-22_07:00:00", "2026-11-22_08:00:00", "2026-11-22_09:00:00"]
    );
    assert_eq!(of(Kind::Frequently).len(), 4);
    assert_eq!(of(Kind::Frequently)[3], "2026-11-22_09:45:00");
}

#[test]
fn daylight_saving_changes_nothing() {
    // Europe 2026: 29 March 01:00 UTC and 25 October 01:00 UTC.
    for day in ["2026-03-29_00:00:00", "2026-10-25_00:00:00"] {
        let start = at(day).0;
        let hours = (0..24).map(|hour| Moment(start + hour * 3600));
        let left = live_through(&policy(&[(Kind::Hourly, 100), (Kind::Daily, 100)]), hours);
        assert_eq!(left.len(), 25, "{day}");
    }
}

#[test]
fn after_missed_periods_one_is_taken() {
    let policy = policy(&[(Kind::Hourly, 24)]);
    let existing = [snapshot("llm/vm@zgate_2026-11-18_03:00:00_hourly", 5)];
    let plan = plan(at("2026-11-21_10:17:59"), &policy, &existing);
    assert_eq!(names(&plan), ["zgate_2026-11-21_10:17:59_hourly"]);
    assert!(plan.prune.is_empty());
}

#[test]
fn a_clock_that_jumps_back_costs_one_snapshot_and_no_gap() {
    let policy = policy(&[(Kind::Hourly, 100)]);
    let start = at("2026-11-21_10:00:00").0;
    let before = (0..6).map(|hour| start + hour * 3600);
    // Six hours back, then forward normally.
    let after = (0..360).map(|minute| start + 30 + minute * 60);
    let left = live_through(&policy, before.chain(after).map(Moment));
    assert_eq!(left.len(), 12);
    let newest = OurName::parse(left.last().unwrap().name.name()).unwrap();
    assert_eq!(newest.taken.to_string(), "2026-11-21_15:00:30");
}

#[test]
fn a_start_with_a_wrong_clock_pushes_nothing_out() {
    let policy = policy(&[(Kind::Yearly, 2)]);
    let existing = [
        snapshot("llm/vm@zgate_2025-01-01_00:00:00_yearly", 1),
        snapshot("llm/vm@zgate_2026-01-01_00:00:00_yearly", 2),
    ];
    assert_eq!(EARLIEST_CLOCK, at("2026-01-01_00:00:00"));
    let wrong = plan(at("1970-01-01_00:00:20"), &policy, &existing);
    assert!(wrong.refused.is_some());
    assert_eq!(Plan { refused: None, ..wrong }, Plan::default());
    let right = plan(at("2026-11-21_00:00:00"), &policy, &existing);
    assert_eq!(right, Plan::default(), "nothing is due");
}

#[test]
fn the_one_taken_in_the_future_is_not_the_last_to_go() {
    // The clock was years ahead for a moment; order goes by transaction group.
    let policy = policy(&[(Kind::Daily, 2)]);
    let existing = [
        snapshot("llm/vm@zgate_2026-11-18_00:00:00_daily", 1),
        snapshot("llm/vm@zgate_2099-01-01_00:00:00_daily", 2),
        snapshot("llm/vm@zgate_2026-11-20_00:00:00_daily", 3),
    ];
    let plan = plan(at("2026-11-21_00:00:00"), &policy, &existing);
    assert_eq!(
        pruned(&plan),
        ["llm/vm@zgate_2026-11-18_00:00:00_daily", "llm/vm@zgate_2099-01-01_00:00:00_daily"]
    );
}

#[test]
fn a_name_that_is_taken_becomes_the_next_second() {
    let policy = policy(&[(Kind::Hourly, 9)]);
    let existing = [
        snapshot("llm/vm@zgate_2026-11-21_10:00:00_hourly", 1),
        snapshot("llm/vm@zgate_2026-11-21_11:00:00_hourly", 2),
    ];
    let plan = plan(at("2026-11-21_10:00:00"), &policy, &existing);
    assert_eq!(names(&plan), ["zgate_2026-11-21_10:00:01_hourly"]);
}

#[test]
fn held_and_cloned_ones_stay_and_count() {
    let policy = policy(&[(Kind::Daily, 1)]);
    let mut existing = [
        snapshot("llm/vm@zgate_2026-11-18_00:00:00_daily", 1),
        snapshot("llm/vm@zgate_2026-11-19_00:00:00_daily", 2),
        snapshot("llm/vm@zgate_2026-11-20_00:00:00_daily", 3),
        snapshot("llm/vm@zgate_2026-11-21_00:00:00_daily", 4),
    ];
    existing[0].holds = 1;
    existing[1].clones = vec!["llm/copy".to_owned()];
    let plan = plan(at("2026-11-21_10:00:00"), &policy, &existing);
    assert_eq!(pruned(&plan), ["llm/vm@zgate_2026-11-20_00:00:00_daily"]);
    let reasons: Vec<_> = plan.spared.iter().map(|spared| spared.reason).collect();
    assert_eq!(reasons, [SpareReason::Held, SpareReason::Cloned]);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let mut policy = policy(&[(Kind::Hourly, 1)]);
    policy.recursive = true;
    let foreign = [
        snapshot("llm/vm@autosnap_2026-11-20_00:00:00_hourly", 1),
        snapshot("llm/vm@before-upgrade", 2),
        snapshot("llm/vm@zgate_2026-11-20_00:00:00_manual", 3),
        snapshot("llm/vm2@zgate_2026-11-19_00:00:00_hourly", 4),
        snapshot("llm/vm2@zgate_2026-11-20_00:00:00_hourly", 5),
        snapshot("llm@zgate_2026-11-20_00:00:00_hourly", 6),
    ];
    let plan = plan(at("2026-11-21_10:00:00"), &policy, &foreign);
    assert_eq!((plan.create.len(), plan.prune.len()), (1, 0));
}

#[test]
fn a_recursive_one_is_one_creation_and_each_dataset_keeps_its_own() {
    let mut policy = policy(&[(Kind::Hourly, 2)]);
    policy.recursive = true;
    let existing = [
        snapshot("llm/vm@zgate_2026-11-21_08:00:00_hourly", 1),
        snapshot("llm/vm/a@zgate_2026-11-21_08:00:00_hourly", 1),
        snapshot("llm/vm@zgate_2026-11-21_09:00:00_hourly", 2),
        snapshot("llm/vm/a@zgate_2026-11-21_09:00:00_hourly", 2),
        // Created later: it has only one.
        snapshot("llm/vm/b@zgate_2026-11-21_09:00:00_hourly", 2),
    ];
    let plan = plan(at("2026-11-21_10:00:00"), &policy, &existing);
    assert_eq!(names(&plan), ["zgate_2026-11-21_10:00:00_hourly"]);
    assert!(plan.create[0].recursive);
    assert_eq!(
        pruned(&plan),
        ["llm/vm@zgate_2026-11-21_08:00:00_hourly", "llm/vm/a@zgate_2026-11-21_08:00:00_hourly"]
    );
}

#[test]
fn zero_means_none_of_that_kind() {
    let policy = policy(&[(Kind::Daily, 1)]);
    let existing = [
        snapshot("llm/vm@zgate_2026-11-21_09:00:00_hourly", 1),
        snapshot("llm/vm@zgate_2026-11-21_09:00:00_daily", 1),
    ];
    let plan = plan(at("2026-11-21_10:00:00"), &policy, &existing);
    assert!(plan.create.is_empty());
    assert_eq!(pruned(&plan), ["llm/vm@zgate_2026-11-21_09:00:00_hourly"]);
}

#[test]
fn taking_and_pruning_can_be_switched_off() {
    let mut policy = policy(&[(Kind::Hourly, 1)]);
    let existing = [
        snapshot("llm/vm@zgate_2026-11-21_07:00:00_hourly", 1),
        snapshot("llm/vm@zgate_2026-11-21_08:00:00_hourly", 2),
    ];
    policy.autosnap = false;
    let now = at("2026-11-21_10:00:00");
    let copy = plan(now, &policy, &existing);
    assert_eq!((copy.create.len(), copy.prune.len()), (0, 1));
    policy.autoprune = false;
    assert_eq!(plan(now, &policy, &existing), Plan::default());
}

#[test]
fn the_next_look_is_at_the_next_boundary() {
    let due = |keep: &[(Kind, u32)]| policy(keep).next_due(at("2026-11-21_10:17:59"));
    assert_eq!(due(&[(Kind::Hourly, 1), (Kind::Yearly, 1)]), Some(at("2026-11-21_11:00:00")));
    assert_eq!(due(&[(Kind::Frequently, 1)]), Some(at("2026-11-21_10:30:00")));
    assert_eq!(due(&[(Kind::Monthly, 1)]), Some(at("2026-12-01_00:00:00")));
    assert_eq!(due(&[]), None);
}
