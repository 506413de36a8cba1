//! Checks of logical units and their storage.

use crate::Verdict;
use crate::facts::{LunFacts, ServerFacts};
use zgate_control::properties::SyncMode;
use zgate_control::{Dataset, DatasetKind};

/// Record size above which small writes of a virtual machine are amplified, in
/// bytes.
const LARGE_RECORD_BYTES: u64 = 64 << 10;
/// Block size of a zvol below which blocks cannot be compressed and parity is
/// expensive, in bytes.
const SMALL_BLOCK_BYTES: u64 = 8 << 10;

fn with_dataset(facts: &ServerFacts) -> impl Iterator<Item = (&LunFacts, &Dataset)> {
    facts.luns.iter().filter_map(|lun| {
        let dataset = facts.zfs.dataset(lun.dataset.as_ref()?.as_str())?;
        Some((lun, dataset))
    })
}

/// Checks that the device or file exists, and can be a disk.
pub(super) fn store(facts: &ServerFacts) -> Vec<Verdict> {
    let show = facts.luns.iter().map(|lun| match &lun.problem {
        None => Verdict::ok(format!("{}: {}", lun.title(), lun.path.display())),
        Some(problem) if !problem.is_absent => Verdict::error(
            format!("{}: {}", lun.title(), problem.reason),
            "the gateway does not start with it, and a reload changes nothing",
            format!("correct its path, size or direct in {}", facts.config_path.display()),
        ),
        Some(problem) => Verdict::error(
            format!("{}: {}", lun.title(), problem.reason),
            "the gateway starts without this LUN, and serves it as soon as the path is there; \
             `serve --strict` does not start",
            format!(
                "`zpool import` its pool, `zfs create -V SIZE` the volume, `size = \"…\"` for a \
                 new file, or correct path in {}",
                facts.config_path.display()
            ),
        ),
    });
    show.collect()
}

/// Checks that acknowledged writes are stable.
pub(super) fn sync(facts: &ServerFacts) -> Vec<Verdict> {
    let show = with_dataset(facts).map(|(lun, dataset)| {
        if !dataset.loses_sync_writes() {
            return Verdict::ok(format!(
                "{}: {} keeps acknowledged writes",
                lun.title(),
                dataset.name
            ));
        }
        Verdict::error(
            format!("{}: {} has sync=disabled", lun.title(), dataset.name),
            "the file system of the virtual machine relies on flushes: a power failure can \
             destroy it, not only its latest files",
            format!("`zfs set sync=standard {0}` (or `zfs inherit sync {0}`)", dataset.name),
        )
    });
    show.collect()
}

/// Returns whether hosts may be told of a write before it is on stable storage.
fn is_cached(facts: &ServerFacts, lun: &LunFacts) -> bool {
    let targets = facts.config.targets.iter().filter(|target| target.name == lun.target);
    let config = targets.flat_map(|target| &target.luns).find(|one| one.number == lun.number);
    if config.is_some_and(|config| config.read_only) {
        return false;
    }
    let configured = config.and_then(|config| config.write_cache);
    configured.unwrap_or(!facts.config.iscsi.asymmetric)
}

/// Returns whether another machine may import the pool of a dataset.
fn may_move(facts: &ServerFacts, dataset: &Dataset) -> bool {
    let name = dataset.name.pool().to_string();
    let pool = facts.zfs.pools.iter().find(|pool| pool.name == name);
    facts.is_cluster_node || pool.is_some_and(|pool| pool.multihost == Some(true))
}

/// Returns whether a portal can be reached from other machines.
fn has_remote_portal(facts: &ServerFacts) -> bool {
    let iscsi = &facts.config.iscsi;
    let mut portals = iscsi.tcp_listen().chain(iscsi.iser_listen());
    portals.any(|portal| !portal.ip().to_canonical().is_loopback())
}

/// Checks that hosts which outlive a crash of this machine lose no write that they
/// believe to be safe, with a takeover by another machine or without.
pub(super) fn cache(facts: &ServerFacts) -> Vec<Verdict> {
    let is_remote = has_remote_portal(facts);
    let judge = |(lun, dataset): (&LunFacts, &Dataset)| {
        let is_safe = dataset.sync == SyncMode::Always || !is_cached(facts, lun);
        let may_move = may_move(facts, dataset);
        if is_safe || !(may_move || is_remote) {
            return None;
        }
        let name = &dataset.name;
        let what =
            format!("{}: its write cache is on, {name} has sync={}", lun.title(), dataset.sync);
        let fix = format!(
            "`write_cache = false` for this LUN in {}, or `zfs set sync=always {name}`",
            facts.config_path.display()
        );
        Some(if may_move {
            Verdict::warning(
                format!("{what}, and another machine may take over"),
                "after a crash of this machine the host's next flush succeeds on the other one, \
                 although what it wrote before is gone",
                fix,
            )
        } else {
            Verdict::note(
                format!("{what}, and hosts reach it over the network"),
                "a host that goes on while this machine crashes or loses power does not learn \
                 what the cache has lost: files that a program had synced can be missing",
                fix,
            )
        })
    };
    with_dataset(facts).filter_map(judge).collect()
}

/// Checks that the block size suits a virtual machine.
pub(super) fn block_size(facts: &ServerFacts) -> Vec<Verdict> {
    let judge = |(lun, dataset): (&LunFacts, &Dataset)| {
        let name = &dataset.name;
        match dataset.kind {
            DatasetKind::Filesystem { recordsize_bytes, .. }
                if recordsize_bytes > LARGE_RECORD_BYTES =>
            {
                Some(Verdict::warning(
                    format!(
                        "{}: a file in {name} with recordsize {} KiB",
                        lun.title(),
                        recordsize_bytes >> 10
                    ),
                    "each small write of the virtual machine reads and writes a whole record",
                    format!("`zfs set recordsize=16K {name}`, then copy the file; or use a zvol"),
                ))
            }
            DatasetKind::Volume { volblocksize_bytes, .. }
                if volblocksize_bytes < SMALL_BLOCK_BYTES =>
            {
                Some(Verdict::warning(
                    format!("{}: {name} has volblocksize {volblocksize_bytes}", lun.title()),
                    "much metadata, no compression, and on raidz much parity for each block",
                    format!(
                        "a new volume, `zfs create -V SIZE -o volblocksize=16K {name}-new`, and \
                         copy: it cannot be changed"
                    ),
                ))
            }
            _ => None,
        }
    };
    with_dataset(facts).filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};

    #[test]
    fn a_volume_without_sync_is_an_error() {
        let mut facts = server();
        assert_eq!(worst(&sync(&facts)).0, Level::Ok);
        facts.zfs.datasets[2].sync = SyncMode::Disabled;
        let (level, fix) = worst(&sync(&facts));
        assert_eq!(level, Level::Error);
        assert!(fix.contains("zfs set sync=standard tank/vol"), "{fix}");
    }

    #[test]
    fn a_write_cache_that_a_takeover_would_lose_is_found() {
        let mut facts = server();
        assert!(cache(&facts).is_empty(), "one machine, and no portal");
        facts.zfs.pools[0].multihost = Some(true);
        let (level, fix) = worst(&cache(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.contains("write_cache = false") && fix.contains("sync=always tank/vol"));
        facts.zfs.datasets[2].sync = SyncMode::Always;
        assert!(cache(&facts).is_empty());
        facts.zfs.datasets[2].sync = SyncMode::Standard;
        facts.zfs.pools[0].multihost = Some(false);
        facts.is_cluster_node = true;
        assert_eq!(cache(&facts).len(), 1);
        facts.luns[0].target = "iqn.2026-11.test:vm".into();
        let mut configure = |asymmetric: bool, keys: &str| {
            let text = format!(
                "[iscsi]\nlisten = [\"192.0.2.1:3260\"]\nasymmetric = {asymmetric}\n\
                 [[iscsi.group]]\ntag = 2\nlisten = [\"192.0.2.2:3260\"]\n\
                 [[target]]\nname = \"iqn.2026-11.test:vm\"\nallow_any_initiator = true\n\
                 [[target.lun]]\nnumber = 0\npath = \"/dev/zvol/tank/vol\"\n{keys}"
            );
            facts.config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
            cache(&facts).len()
        };
        assert_eq!(configure(false, ""), 1);
        assert_eq!(configure(false, "write_cache = false\n"), 0);
        assert_eq!(configure(false, "read_only = true\n"), 0);
        assert_eq!(configure(true, ""), 0, "off unless it is configured");
        assert_eq!(configure(true, "write_cache = true\n"), 1);
    }

    #[test]
    fn a_write_cache_is_noted_where_hosts_reach_a_portal_over_the_network() {
        let mut facts = server();
        let mut with = |portals: &str, sync: SyncMode| {
            let text = format!("[iscsi]\n{portals}\n");
            facts.config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
            facts.zfs.datasets[2].sync = sync;
            cache(&facts)
        };
        for local in [
            "listen = [\"127.0.0.1:3260\", \"[::1]:3260\"]",
            "listen = [\"[::ffff:127.0.0.1]:3260\"]",
        ] {
            assert!(with(local, SyncMode::Standard).is_empty(), "{local}");
        }
        for remote in [
            "listen = [\"0.0.0.0:3260\"]",
            "listen = [\"127.0.0.1:3260\", \"[2001:db8::1]:3260\"]",
            "listen = [\"127.0.0.1:3260\"]\n\
             [[iscsi.group]]\ntag = 2\nlisten = [\"192.0.2.2:3260\"]",
            "iser_listen = [\"192.0.2.1:3260\"]",
        ] {
            let noted = with(remote, SyncMode::Standard);
            assert_eq!(noted.len(), 1, "{remote}");
            assert_eq!(noted[0].level, Level::Ok, "a healthy machine stays healthy");
            assert!(noted[0].what.starts_with("LUN 0 of iqn.x: "), "{noted:?}");
            assert!(noted[0].why.contains("loses power"), "{noted:?}");
            assert!(noted[0].fix.contains("`zfs set sync=always tank/vol`"), "{noted:?}");
            assert!(with(remote, SyncMode::Always).is_empty(), "{remote}");
        }
        let remote = "listen = [\"192.0.2.1:3260\"]\n\
                      [[iscsi.group]]\ntag = 2\nlisten = [\"192.0.2.2:3260\"]";
        let paths_over_two = format!("asymmetric = true\n{remote}");
        assert_eq!(with(remote, SyncMode::Standard).len(), 1);
        assert!(with(&paths_over_two, SyncMode::Standard).is_empty(), "its cache is off");
    }

    #[test]
    fn blocks_that_do_not_fit() {
        let mut facts = server();
        assert!(block_size(&facts).is_empty());
        if let DatasetKind::Volume { volblocksize_bytes, .. } = &mut facts.zfs.datasets[2].kind {
            *volblocksize_bytes = 512;
        }
        assert!(worst(&block_size(&facts)).1.contains("volblocksize=16K"));
        facts.luns[0].dataset = Some("tank/data".parse().unwrap());
        assert!(worst(&block_size(&facts)).1.contains("recordsize=16K tank/data"));
        let problem = |reason: &str, is_absent| {
            Some(zgate_gateway::LunProblem { reason: reason.to_owned(), is_absent })
        };
        facts.luns[0].problem = problem("/dev/zvol/x: not found", true);
        let (level, fix) = worst(&store(&facts));
        assert!(level == Level::Error && fix.contains("zpool import"), "{fix}");
        facts.luns[0].problem = problem("/tank is a directory", false);
        let (level, fix) = worst(&store(&facts));
        assert!(level == Level::Error && fix.contains("correct its path"), "{fix}");
    }
}
