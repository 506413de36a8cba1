//! Checks of pools.

use crate::Verdict;
use crate::facts::{PoolFacts, ServerFacts};
use zgate_control::VdevClass;
use zgate_control::health::watch::{
    CAPACITY_PERCENT, SPECIAL_PERCENT, class_percent, used_percent,
};
use zgate_control::health::{PoolHealth, PoolState, ScanKind, ScanState};

/// Most days since the latest scrub: a month and a few days.
const SCRUB_DAYS: u64 = 35;
/// Smallest sensible allocation, as a power of two.
const MIN_ASHIFT: u32 = 12;

fn each(
    facts: &ServerFacts,
    judge: impl Fn(&PoolFacts, &PoolHealth) -> Vec<Verdict>,
) -> Vec<Verdict> {
    let answered = facts.zfs.pools.iter().filter_map(|pool| Some((pool, pool.health.as_ref()?)));
    answered.flat_map(|(pool, health)| judge(pool, health)).collect()
}

/// Checks that all devices are online.
pub(super) fn state(facts: &ServerFacts) -> Vec<Verdict> {
    facts.zfs.pools.iter().map(pool_state).collect()
}

fn pool_state(pool: &PoolFacts) -> Verdict {
    let name = &pool.name;
    if pool.state == PoolState::Suspended {
        return Verdict::error(
            format!("pool {name} is SUSPENDED"),
            "too many devices failed: all I/O of the pool waits",
            format!("bring the devices back (`zpool status {name}`), then `zpool clear {name}`"),
        );
    }
    let Some(health) = &pool.health else {
        let problem = pool.problem.as_deref().unwrap_or("zpool gave no answer");
        return Verdict::error(
            format!("pool {name}: {problem}"),
            "a pool that does not answer may be suspended, or its devices hang",
            format!("`zpool status {name}`, `dmesg`"),
        );
    };
    let state = health.state();
    if state == PoolState::Online {
        return Verdict::ok(format!("pool {name} is ONLINE"));
    }
    let failed: Vec<_> = health.status.failed_devices().collect();
    let list: Vec<String> =
        failed.iter().map(|device| format!("{} {}", device.name, device.state)).collect();
    let what = format!("pool {name} is {state}: {}", list.join(", "));
    let why = if state == PoolState::Degraded {
        "it has lost redundancy: the next failure can cost data".to_owned()
    } else {
        format!("it cannot be used. {}", health.status.problem)
    };
    let fixes: Vec<String> = failed
        .iter()
        .map(|device| match device.state {
            PoolState::Offline => format!("`zpool online {name} {}`", device.name),
            _ => format!("`zpool replace {name} {} NEW-DEVICE`", device.name),
        })
        .collect();
    let fix = if fixes.is_empty() { health.status.action.clone() } else { fixes.join(", ") };
    Verdict::error(what, why, fix)
}

/// Checks that no errors were counted.
pub(super) fn errors(facts: &ServerFacts) -> Vec<Verdict> {
    each(facts, |pool, health| {
        let name = &pool.name;
        let mut verdicts = Vec::new();
        if health.status.data_errors > 0 {
            verdicts.push(Verdict::error(
                format!("pool {name}: {} damaged blocks", health.status.data_errors),
                "this data cannot be read any more",
                format!(
                    "`zpool status -v {name}` names the files: restore them, then `zpool scrub \
                     {name}`"
                ),
            ));
        }
        for device in health.status.devices_with_errors() {
            verdicts.push(Verdict::warning(
                format!(
                    "pool {name}: {} has {} read, {} write, {} checksum errors",
                    device.name, device.read_errors, device.write_errors, device.checksum_errors
                ),
                "a cable, a controller or the device is going bad",
                format!(
                    "`smartctl -a {0}`; then `zpool clear {name} {0}` or `zpool replace {name} \
                     {0} NEW-DEVICE`",
                    device.name
                ),
            ));
        }
        if verdicts.is_empty() {
            verdicts.push(Verdict::ok(format!("pool {name}: no errors")));
        }
        verdicts
    })
}

/// Checks that all data was scrubbed recently.
pub(super) fn scrub(facts: &ServerFacts) -> Vec<Verdict> {
    each(facts, |pool, health| vec![pool_scrub(&pool.name, health, facts.now_unix_seconds)])
}

fn pool_scrub(name: &str, health: &PoolHealth, now: u64) -> Verdict {
    let why = "damage in data that is not read stays undetected until the good copy is lost, too";
    let fix = format!(
        "`zpool scrub {name}`, and each month from now on: `systemctl enable --now \
         zfs-scrub-monthly@{name}.timer`"
    );
    let Some(scan) = &health.status.scan else {
        return Verdict::warning(format!("pool {name} was never scrubbed"), why, fix);
    };
    let kind = if scan.kind == ScanKind::Scrub { "scrub" } else { "resilver" };
    let age = scan.age_days(now);
    match (scan.state, age) {
        (ScanState::Running, _) => {
            let done =
                scan.done_ratio.map_or(String::new(), |done| format!(", {:.0} %", done * 100.0));
            Verdict::ok(format!("pool {name}: a {kind} runs{done}"))
        }
        (ScanState::Paused, _) => Verdict::warning(
            format!("pool {name}: the {kind} is paused"),
            why,
            format!("`zpool scrub {name}` resumes it"),
        ),
        (ScanState::Canceled, _) => {
            Verdict::warning(format!("pool {name}: the latest {kind} was stopped"), why, fix)
        }
        (ScanState::Finished, None) => {
            Verdict::ok(format!("pool {name}: a {kind} ended, its date is not known"))
        }
        (ScanState::Finished, Some(days)) if days > SCRUB_DAYS => Verdict::warning(
            format!("pool {name}: the latest {kind} ended {days} days ago"),
            why,
            fix,
        ),
        // ZFS remembers only the latest of both; a resilver reads all data
        // related to the device it repairs.
        (ScanState::Finished, Some(days)) => {
            Verdict::ok(format!("pool {name}: the latest {kind} ended {days} days ago"))
        }
    }
}

/// Checks that there is free space.
pub(super) fn capacity(facts: &ServerFacts) -> Vec<Verdict> {
    each(facts, |pool, health| {
        let name = &pool.name;
        let percent = used_percent(&health.pool);
        let crossed = CAPACITY_PERCENT.iter().rev().find(|limit| percent >= f64::from(**limit));
        let what = format!("pool {name} is {percent:.0} % full");
        let Some(limit) = crossed else { return vec![Verdict::ok(what)] };
        let fix = format!(
            "`zfs list -o space -r {name}` shows what takes the space: destroy old snapshots \
             (`zfs destroy POOL/DATASET@SNAPSHOT`) or files, or `zpool add {name} …` devices"
        );
        vec![match limit {
            95.. => Verdict::error(what, "writes become very slow and soon fail", fix),
            90.. => Verdict::warning(what, "writes become slow: free space is scattered", fix),
            _ => {
                Verdict::warning(what, "above 80 % ZFS finds free space less and less easily", fix)
            }
        }]
    })
}

/// Checks that there is space for metadata and small blocks.
pub(super) fn special(facts: &ServerFacts) -> Vec<Verdict> {
    each(facts, |pool, health| {
        let name = &pool.name;
        let Some(percent) = class_percent(&health.pool, VdevClass::Special) else {
            return Vec::new();
        };
        let what = format!("special vdevs of pool {name} are {percent:.0} % full");
        if percent < f64::from(SPECIAL_PERCENT) {
            return vec![Verdict::ok(what)];
        }
        vec![Verdict::warning(
            what,
            "small blocks now go to the ordinary vdevs, and soon metadata will, too",
            format!(
                "`zpool add {name} special mirror DEVICE DEVICE`, or a smaller \
                 special_small_blocks for new data"
            ),
        )]
    })
}

/// Checks that allocations match the devices' sectors.
pub(super) fn ashift(facts: &ServerFacts) -> Vec<Verdict> {
    each(facts, |pool, _| {
        let name = &pool.name;
        let small: Vec<_> =
            pool.ashifts.iter().filter(|(_, ashift)| *ashift < MIN_ASHIFT).collect();
        let Some(first) = small.first() else {
            return match pool.ashifts.is_empty() {
                true => Vec::new(),
                false => vec![Verdict::ok(format!("pool {name}: all vdevs write 4 KiB or more"))],
            };
        };
        let list: Vec<String> =
            small.iter().map(|(vdev, ashift)| format!("{vdev} (ashift={ashift})")).collect();
        vec![Verdict::warning(
            format!("pool {name}: {} write units of less than 4 KiB", list.join(", ")),
            "almost all devices have sectors of 4 KiB: each smaller write makes them read and \
             write again, and a replacement with such sectors is refused",
            format!(
                "it cannot be changed: `zpool add -o ashift=12 {name} …` new vdevs and `zpool \
                 remove {name} {}`, or create the pool again with `-o ashift=12`",
                first.0
            ),
        )]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{NOW, server, worst};
    use zgate_control::health::Device;

    fn health(facts: &mut ServerFacts) -> &mut PoolHealth {
        facts.zfs.pools[0].health.as_mut().unwrap()
    }

    fn device(state: PoolState) -> Device {
        Device {
            name: "/dev/sdb".into(),
            state,
            class: VdevClass::Data,
            depth: 1,
            is_group: false,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 7,
        }
    }

    #[test]
    fn a_degraded_pool_names_the_device() {
        let mut facts = server();
        health(&mut facts).status.state = PoolState::Degraded;
        health(&mut facts).status.devices.push(device(PoolState::Offline));
        let expected = (Level::Error, "`zpool online tank /dev/sdb`".to_owned());
        assert_eq!(worst(&state(&facts)), expected);
        health(&mut facts).status.devices[0].state = PoolState::Faulted;
        assert!(worst(&state(&facts)).1.contains("zpool replace tank /dev/sdb"));
        assert!(worst(&errors(&facts)).1.contains("zpool clear tank /dev/sdb"));
        facts.zfs.pools[0].state = PoolState::Suspended;
        assert!(worst(&state(&facts)).1.contains("zpool clear tank"));
    }

    #[test]
    fn a_scrub_grows_old() {
        let mut facts = server();
        let mut at = |days: u64| {
            let scan = health(&mut facts).status.scan.as_mut().unwrap();
            scan.ended_unix_seconds = Some(NOW - days * 86_400);
            worst(&scrub(&facts))
        };
        assert_eq!(at(35).0, Level::Ok);
        assert_eq!(at(36).0, Level::Warning);
        assert!(at(36).1.starts_with("`zpool scrub tank`"));
        health(&mut facts).status.scan = None;
        assert_eq!(worst(&scrub(&facts)).0, Level::Warning);
    }

    #[test]
    fn fullness_gets_worse() {
        let mut facts = server();
        let mut at = |taken: u64| {
            health(&mut facts).pool.allocated_bytes = taken;
            worst(&capacity(&facts)).0
        };
        assert_eq!(at(799), Level::Ok);
        assert_eq!(at(800), Level::Warning);
        assert_eq!(at(900), Level::Warning);
        assert_eq!(at(950), Level::Error);
    }

    #[test]
    fn small_sectors() {
        let mut facts = server();
        facts.zfs.pools[0].ashifts[0].1 = 9;
        assert!(worst(&ashift(&facts)).1.contains("zpool remove tank /dev/sda"));
        assert!(special(&facts).is_empty());
    }
}
