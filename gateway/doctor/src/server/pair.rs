//! Checks of a gateway that another machine takes over: its state and its pools
//! must be able to move, and only one machine may import a pool.

use crate::Verdict;
use crate::facts::{Mount, PoolFacts, ServerFacts};
use std::collections::BTreeSet;

/// Returns the pool of a mounted dataset.
fn pool_of(mount: &Mount) -> Option<&str> {
    (mount.kind == "zfs").then(|| mount.source.split('/').next().unwrap_or_default())
}

/// Returns the pools whose datasets and zvols are served, and that `is`.
fn served(facts: &ServerFacts, is: impl Fn(&PoolFacts) -> bool) -> BTreeSet<&str> {
    let exports = facts.exports.iter().flat_map(|export| facts.zfs.of_export(export));
    let names: BTreeSet<String> = exports
        .map(|dataset| &dataset.name)
        .chain(facts.luns.iter().filter_map(|lun| lun.dataset.as_ref()))
        .map(|name| name.pool().to_string())
        .collect();
    let pools = facts.zfs.pools.iter().filter(|pool| names.contains(&pool.name) && is(pool));
    pools.map(|pool| pool.name.as_str()).collect()
}

/// Checks that the state travels with pools that another machine may import, and
/// that those pools are protected.
pub(super) fn pair(facts: &ServerFacts) -> Vec<Verdict> {
    let state = &facts.config.server.state_dir;
    let state_pool = facts.state_dir.mount.as_ref().and_then(pool_of);
    let shared = served(facts, |pool| pool.multihost == Some(true));
    let mut verdicts = Vec::new();
    if !shared.is_empty() && !state_pool.is_some_and(|pool| shared.contains(pool)) {
        let pools: Vec<_> = shared.iter().copied().collect();
        verdicts.push(Verdict::warning(
            format!(
                "{} does not lie on pool {}, which has multihost=on",
                state.display(),
                pools.join(" or ")
            ),
            "a machine that imports the pool is another server to clients: their handles become \
             stale and their locks are lost",
            format!(
                "`zfs create {}/zgate` and move state_dir there, with the \
                 gateway stopped (docs/HIGH_AVAILABILITY.md); on a single machine `zpool set \
                 multihost=off {}`",
                pools[0], pools[0]
            ),
        ));
    }
    if facts.is_cluster_node {
        let open = served(facts, |pool| pool.multihost == Some(false));
        verdicts.extend(open.into_iter().map(|pool| {
            Verdict::warning(
                format!("pool {pool} has multihost=off, and this machine is a node of a cluster"),
                "if two nodes import it at once, its data is destroyed; fencing alone protects it",
                format!(
                    "`zpool set multihost=on {pool}`, with a hostid of its own on each node \
                     (`zgenhostid`); not needed on DRBD, which lets one node only open it"
                ),
            )
        }));
    }
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok(match (shared.is_empty(), facts.is_cluster_node) {
            (false, _) => {
                "the state directory travels with the pools that another machine may import"
            }
            (true, true) => "no pool is served that another machine may import",
            (true, false) => "this machine is no node of a cluster",
        }));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};

    fn mount(source: &str, kind: &str) -> Option<Mount> {
        Some(Mount {
            source: source.into(),
            target: "/x".into(),
            kind: kind.into(),
            options: [].into(),
        })
    }

    #[test]
    fn state_that_stays_behind_is_found() {
        let mut facts = server();
        facts.zfs.pools[0].multihost = Some(true);
        for (place, level) in [
            (mount("/dev/vda1", "ext4"), Level::Warning),
            (mount("rpool/var", "zfs"), Level::Warning),
            (mount("tank/zgate", "zfs"), Level::Ok),
            (mount("tank", "zfs"), Level::Ok),
            (None, Level::Warning),
        ] {
            facts.state_dir.mount = place;
            assert_eq!(worst(&pair(&facts)).0, level, "{:?}", facts.state_dir.mount);
        }
        assert!(worst(&pair(&facts)).1.contains("zfs create"));
        // A pool that nothing is served of has no clients.
        facts.exports.clear();
        facts.luns.clear();
        assert_eq!(worst(&pair(&facts)).0, Level::Ok);
    }

    #[test]
    fn an_unprotected_pool_matters_on_a_cluster_node_only() {
        let mut facts = server();
        facts.zfs.pools[0].multihost = Some(false);
        assert_eq!(worst(&pair(&facts)).0, Level::Ok);
        facts.is_cluster_node = true;
        let (level, fix) = worst(&pair(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.contains("zpool set multihost=on tank"), "{fix}");
        // Only a zvol of it is served.
        facts.exports.clear();
        assert_eq!(worst(&pair(&facts)).0, Level::Warning);
        facts.zfs.pools[0].multihost = None;
        assert_eq!(worst(&pair(&facts)).0, Level::Ok, "not known");
    }
}
