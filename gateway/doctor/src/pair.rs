//! Checks of a pair: whether a takeover would work now, on the machine that serves
//! and on the one that waits. They change nothing and import nothing.

use crate::facts::{ClusterFacts, PairFacts};
use crate::{Check, Verdict};

/// All checks, in the order they are shown.
pub(crate) const CHECKS: &[Check<PairFacts>] = &[
    Check { name: "pair-role", run: role },
    Check { name: "pair-hostid", run: hostid },
    Check { name: "pair-pool", run: pool },
    Check { name: "pair-state", run: state },
    Check { name: "pair-agents", run: agents },
    Check { name: "pair-cluster", run: cluster },
    Check { name: "pair-fencing", run: fencing },
    Check { name: "pair-boot", run: boot },
];

const IMPORTED_BY_TWO: &str = "two machines that import one pool at once destroy it";

/// Says which of the two machines this is.
fn role(facts: &PairFacts) -> Vec<Verdict> {
    let pool = facts.pool_name();
    vec![match (facts.imported, facts.gateway_answers) {
        (true, true) => Verdict::ok(format!("this machine serves pool {pool}")),
        (true, false) => Verdict::error(
            format!("this machine has pool {pool}, and no gateway answers here"),
            "clients wait, and nobody takes over while the pool is here",
            "`crm_mon -1`, the gateway's log (`journalctl -t zgate`)",
        ),
        (false, true) => Verdict::error(
            format!("a gateway answers here, and pool {pool} is not here"),
            "it serves something else than the pair, or in place of it",
            "`zgate status`; only the cluster may start the pair's gateway",
        ),
        (false, false) => Verdict::ok(format!("this machine would take over pool {pool}")),
    }]
}

/// Checks that this machine has an identity of its own for multihost.
fn hostid(facts: &PairFacts) -> Vec<Verdict> {
    let fix = "`zgenhostid` on each machine, then restart it";
    vec![match facts.hostid {
        Some(hostid) if hostid != 0 && facts.hostid_is_kept => Verdict::ok(format!(
            "hostid {hostid:08x}, kept in /etc/hostid; it must be another one on the other machine"
        )),
        Some(hostid) if hostid != 0 => Verdict::warning(
            format!("hostid {hostid:08x} is derived, not kept in /etc/hostid"),
            "it may change, or be that of the other machine, which multihost then takes for this \
             one",
            fix,
        ),
        _ => Verdict::error("this machine has no hostid", "multihost refuses each import", fix),
    }]
}

/// Checks that the pool can be imported here, and protects itself.
fn pool(facts: &PairFacts) -> Vec<Verdict> {
    let Some(pool) = &facts.pool else {
        return vec![Verdict::error(
            "the pair's pool is not known",
            "nothing can be said about a takeover",
            "name it, `--pool tank`; where the pair serves, its configuration, `--config`",
        )];
    };
    let mut verdicts = Vec::new();
    if facts.imported {
        verdicts.push(match facts.multihost {
            Some(true) => Verdict::ok(format!("pool {pool} has multihost=on")),
            Some(false) => Verdict::error(
                format!("pool {pool} has multihost=off"),
                IMPORTED_BY_TWO,
                format!("`zpool set multihost=on {pool}`; not on DRBD, which needs it not"),
            ),
            None => Verdict::warning(
                format!("whether pool {pool} has multihost=on is not known"),
                IMPORTED_BY_TWO,
                format!("`zpool get multihost {pool}`"),
            ),
        });
        return verdicts;
    }
    let look = format!("`zpool import -d /dev/disk/by-id` shows what this machine sees of {pool}");
    verdicts.push(match &facts.visible {
        Ok(Some(health)) if health == "ONLINE" || health == "DEGRADED" => {
            Verdict::ok(format!("the disks of pool {pool} are visible here: {health}"))
        }
        Ok(Some(health)) => Verdict::error(
            format!("pool {pool} is visible here as {health}"),
            "a takeover would fail: its import does",
            look,
        ),
        Ok(None) => Verdict::error(
            format!("no disk of pool {pool} is visible here"),
            "a takeover would fail: there is nothing to import",
            format!("cables, zoning, `ls /dev/disk/by-id`; {look}"),
        ),
        Err(problem) => Verdict::error(
            format!("the disks cannot be looked at: {problem}"),
            "a takeover may fail in the same way",
            look,
        ),
    });
    verdicts
}

/// Checks that what makes the gateway this server is on the pool.
fn state(facts: &PairFacts) -> Vec<Verdict> {
    if !facts.imported {
        return Vec::new();
    }
    let pool = facts.pool_name();
    let mut verdicts = Vec::new();
    let mut add = |lies_there, what: &str, why: &str, fix: String| {
        verdicts.push(if lies_there {
            Verdict::ok(format!("{what} lies on pool {pool}"))
        } else {
            Verdict::error(format!("{what} does not lie on pool {pool}"), why, fix)
        });
    };
    add(
        facts.state_on_pool,
        "state_dir",
        "the other machine would be another server: handles stale, locks lost",
        format!("move it to /{pool}/zgate/state, with the gateway stopped"),
    );
    add(
        facts.config_on_pool,
        "the configuration",
        "the other machine may have another one",
        format!("move it to /{pool}/zgate/zgate.toml, and name it in the cluster's resource"),
    );
    verdicts
}

/// Checks that what the cluster runs is installed.
fn agents(facts: &PairFacts) -> Vec<Verdict> {
    if facts.missing.is_empty() {
        return vec![Verdict::ok("the resource agents and programs are installed")];
    }
    let missing = |path: &&str| {
        Verdict::error(
            format!("{path} is missing or cannot be executed"),
            "the cluster cannot start its resource here",
            "install the packages zgate, resource-agents, zfsutils; by hand from deploy/ocf",
        )
    };
    facts.missing.iter().map(missing).collect()
}

/// Checks that the other machine is in the cluster.
fn cluster(facts: &PairFacts) -> Vec<Verdict> {
    let fix = "`corosync-quorumtool`, `crm_mon -1`";
    vec![match &facts.cluster {
        Err(problem) => Verdict::error(
            format!("Pacemaker does not answer: {problem}"),
            "nobody takes over, in either direction",
            "`systemctl start pacemaker`, `journalctl -u pacemaker -u corosync`",
        ),
        Ok(ClusterFacts { nodes, online, .. }) if *nodes < 2 || online < nodes => Verdict::error(
            format!("{online} of {nodes} nodes of the cluster are online"),
            "there is nobody to take over",
            fix,
        ),
        Ok(ClusterFacts { standby, .. }) if *standby > 0 => Verdict::warning(
            format!("{standby} nodes are in standby or maintenance"),
            "they do not take over",
            "`pcs node unstandby`, `crm_standby -v off`",
        ),
        Ok(ClusterFacts { nodes, .. }) => Verdict::ok(format!("all {nodes} nodes are online")),
    }]
}

/// Checks that a machine that does not answer is switched off.
fn fencing(facts: &PairFacts) -> Vec<Verdict> {
    let Ok(cluster) = &facts.cluster else { return Vec::new() };
    vec![match (cluster.fencing, cluster.fence_devices) {
        (Some(false), _) => Verdict::error(
            "stonith-enabled is false",
            "a machine that hangs keeps address and clients, and multihost alone protects the pool",
            "`pcs property set stonith-enabled=true`, with a fence device for each node",
        ),
        (_, 0) => Verdict::error(
            "no fence device is registered",
            "after a crash nothing moves: the cluster waits for the other machine to be switched off",
            "`pcs stonith create`, or deploy/pacemaker/pair.sh",
        ),
        (_, devices) => Verdict::ok(format!("fencing is on, {devices} devices")),
    }]
}

/// Checks that nothing but the cluster imports the pool or starts the gateway.
fn boot(facts: &PairFacts) -> Vec<Verdict> {
    if facts.enabled_units.is_empty() {
        return vec![Verdict::ok("nothing but the cluster imports pools or starts the gateway")];
    }
    let enabled = |unit: &String| {
        Verdict::warning(
            format!("{unit} is enabled"),
            if unit.starts_with("zfs") {
                "it may import the pool at boot, while the other machine has it"
            } else {
                "it may start a gateway at boot that is not the cluster's"
            },
            format!("`systemctl disable {unit}`, unless this machine needs it for something else"),
        )
    };
    facts.enabled_units.iter().map(enabled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finding, Group, Level, examine};

    fn waiting() -> PairFacts {
        PairFacts {
            pool: Some("tank".into()),
            imported: false,
            visible: Ok(Some("ONLINE".into())),
            multihost: None,
            hostid: Some(0x0a11_ce0b),
            hostid_is_kept: true,
            gateway_answers: false,
            state_on_pool: false,
            config_on_pool: false,
            missing: Vec::new(),
            cluster: Ok(ClusterFacts {
                nodes: 2,
                online: 2,
                standby: 0,
                fencing: Some(true),
                fence_devices: 2,
            }),
            enabled_units: Vec::new(),
        }
    }

    fn serving() -> PairFacts {
        PairFacts {
            imported: true,
            multihost: Some(true),
            gateway_answers: true,
            state_on_pool: true,
            config_on_pool: true,
            ..waiting()
        }
    }

    fn faults(facts: &PairFacts) -> Vec<Finding> {
        let mut found = examine(Group::Pair, CHECKS, facts);
        found.retain(|finding| finding.level != Level::Ok);
        found
    }

    #[test]
    fn a_sound_pair_has_no_faults_on_either_machine() {
        assert!(faults(&waiting()).is_empty(), "{:?}", faults(&waiting()));
        assert!(faults(&serving()).is_empty(), "{:?}", faults(&serving()));
    }

    /// Expects one fault, of this check and level.
    fn fault(facts: PairFacts, check: &str, level: Level) {
        let found = faults(&facts);
        let found: Vec<_> = found.iter().map(|finding| (finding.check, finding.level)).collect();
        assert_eq!(found, [(check, level)], "{facts:?}");
    }

    #[test]
    fn each_reason_for_which_a_takeover_would_fail_is_found() {
        use Level::{Error, Warning};
        fault(PairFacts { visible: Ok(None), ..waiting() }, "pair-pool", Error);
        fault(PairFacts { visible: Ok(Some("FAULTED".into())), ..waiting() }, "pair-pool", Error);
        fault(PairFacts { visible: Err("no answer".into()), ..waiting() }, "pair-pool", Error);
        fault(PairFacts { multihost: Some(false), ..serving() }, "pair-pool", Error);
        fault(PairFacts { hostid: Some(0), ..waiting() }, "pair-hostid", Error);
        fault(PairFacts { hostid_is_kept: false, ..waiting() }, "pair-hostid", Warning);
        fault(PairFacts { state_on_pool: false, ..serving() }, "pair-state", Error);
        fault(PairFacts { config_on_pool: false, ..serving() }, "pair-state", Error);
        fault(PairFacts { gateway_answers: false, ..serving() }, "pair-role", Error);
        fault(PairFacts { gateway_answers: true, ..waiting() }, "pair-role", Error);
        fault(PairFacts { missing: vec!["/x"], ..waiting() }, "pair-agents", Error);
        fault(
            PairFacts { cluster: Err("it is stopped".into()), ..waiting() },
            "pair-cluster",
            Error,
        );
        let enabled_units = vec!["zfs-import-cache.service".to_owned()];
        fault(PairFacts { enabled_units, ..waiting() }, "pair-boot", Warning);
        let with = |change: fn(&mut ClusterFacts)| {
            let mut facts = waiting();
            change(facts.cluster.as_mut().unwrap());
            facts
        };
        fault(with(|cluster| cluster.online = 1), "pair-cluster", Error);
        fault(with(|cluster| cluster.standby = 1), "pair-cluster", Warning);
        fault(with(|cluster| cluster.fencing = Some(false)), "pair-fencing", Error);
        fault(with(|cluster| cluster.fence_devices = 0), "pair-fencing", Error);
    }
}
