//! Checks of the gateway's machine.

mod absent;
mod certificates;
mod clients;
mod exports;
mod luns;
mod pair;
mod pools;
mod ports;
mod process;
mod zfs;

use crate::Check;
use crate::facts::ServerFacts;

/// All checks, in the order they are shown.
pub(crate) const CHECKS: &[Check<ServerFacts>] = &[
    Check { name: "config", run: process::config },
    Check { name: "state-dir", run: process::state_dir },
    Check { name: "pair", run: pair::pair },
    Check { name: "capabilities", run: process::capabilities },
    Check { name: "rollbacks", run: process::rollbacks },
    Check { name: "memlock", run: process::locked_memory },
    Check { name: "open-files", run: process::open_files },
    Check { name: "io-uring", run: process::io_uring },
    Check { name: "time-sync", run: process::time_sync },
    Check { name: "ports", run: ports::ports },
    Check { name: "rpcbind", run: ports::rpcbind },
    Check { name: "absent", run: absent::absent },
    Check { name: "tls-certificate", run: certificates::certificates },
    Check { name: "export-path", run: exports::path },
    Check { name: "dataset-mounted", run: exports::dataset_mounted },
    Check { name: "shared-files", run: exports::shared_files },
    Check { name: "read-only", run: exports::read_only },
    Check { name: "export-sync", run: exports::sync },
    Check { name: "recordsize", run: exports::record_size },
    Check { name: "lun-store", run: luns::store },
    Check { name: "lun-sync", run: luns::sync },
    Check { name: "lun-cache", run: luns::cache },
    Check { name: "lun-blocksize", run: luns::block_size },
    Check { name: "pool-state", run: pools::state },
    Check { name: "pool-errors", run: pools::errors },
    Check { name: "scrub", run: pools::scrub },
    Check { name: "capacity", run: pools::capacity },
    Check { name: "special", run: pools::special },
    Check { name: "ashift", run: pools::ashift },
    Check { name: "slog", run: zfs::slog },
    Check { name: "arc-limit", run: zfs::arc_limit },
    Check { name: "stale-clients", run: clients::stale },
];

/// A machine without faults, for tests that add one.
#[cfg(test)]
pub(super) mod sound {
    use crate::facts::{
        ExportFacts, Holder, LunFacts, Mount, PoolFacts, PortFacts, ProcessFacts, ServerFacts,
        StateDirFacts, ZedFacts, ZfsFacts,
    };
    use crate::{Level, Verdict};
    use zgate_control::health::{PoolHealth, PoolState, PoolStatus, Scan, ScanKind, ScanState};
    use zgate_control::properties::OutputForm::Columns;
    use zgate_control::{datasets, pools};

    pub(crate) const NOW: u64 = 2_000_000_000;

    const DATASETS: &str = "\
tank\tfilesystem\t1\t1\t9\t9\t9\t131072\t-\t-\tstandard\tlatency\tlz4\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\tyes\t/tank
tank/data\tfilesystem\t2\t2\t9\t9\t9\t1048576\t-\t-\tstandard\tlatency\tlz4\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\tyes\t/tank/data
tank/vol\tvolume\t3\t3\t9\t9\t9\t-\t16384\t1073741824\tstandard\tlatency\toff\t-\t-\t-\t0\t0\toff\t-\toff\t-\t-\t-\t-
";

    fn pool() -> PoolFacts {
        let list = "tank\t1\tONLINE\t1000\t500\t500\t50\t0\t1.00\toff\toff\t12\t-\n\
                    \t/dev/sda\t-\tONLINE\t1000\t500\t500\t50\t0\t-\t-\t-\t-\t-\n";
        let mut scan = Scan::new(ScanKind::Scrub, ScanState::Finished);
        scan.ended_unix_seconds = Some(NOW - 5 * 86_400);
        let health = PoolHealth {
            status: PoolStatus {
                name: "tank".into(),
                state: PoolState::Online,
                problem: String::new(),
                action: String::new(),
                scan: Some(scan),
                data_errors: 0,
                devices: Vec::new(),
            },
            pool: pools::parse(Columns, list).unwrap().remove(0),
            freeing_bytes: 0,
            leaked_bytes: 0,
            latencies: Vec::new(),
        };
        PoolFacts {
            name: "tank".into(),
            state: PoolState::Online,
            health: Some(health),
            problem: None,
            ashifts: vec![("/dev/sda".into(), 12)],
            rotational: Some(true),
            multihost: Some(false),
        }
    }

    pub(crate) fn server() -> ServerFacts {
        let text = "[[export]]\npath = \"/tank/data\"\npseudo = \"/data\"\n";
        ServerFacts {
            config_path: "/etc/zgate/zgate.toml".into(),
            config_problem: None,
            config: zgate_config::parse(text, std::path::Path::new("x")).unwrap(),
            state_dir: StateDirFacts { exists: true, mode: 0o700, ..StateDirFacts::default() },
            process: ProcessFacts {
                gateway: Some(77),
                user: 0,
                capabilities: u64::MAX,
                locked_memory_bytes: None,
                open_files: Some(1 << 20),
            },
            uring_problem: None,
            ports: vec![PortFacts {
                service: "NFS",
                address: "0.0.0.0:2049".parse().unwrap(),
                holder: Holder::Gateway,
            }],
            nfsd_threads: 0,
            rpcbind_listens: false,
            clients: Some(Vec::new()),
            absent: Some(Vec::new()),
            certificates: Ok(Vec::new()),
            exports: vec![ExportFacts {
                pseudo: "/data".into(),
                path: Some("/tank/data".into()),
                real_path: Some("/tank/data".into()),
                dataset: None,
                path_problem: None,
                mount: Some(Mount {
                    source: "tank/data".into(),
                    target: "/tank/data".into(),
                    kind: "zfs".into(),
                    options: [("rw".to_owned(), String::new())].into(),
                }),
                writable: true,
                max_transfer_bytes: 1 << 20,
            }],
            luns: vec![LunFacts {
                target: "iqn.x".into(),
                number: 0,
                path: "/dev/zvol/tank/vol".into(),
                dataset: Some("tank/vol".parse().unwrap()),
                problem: None,
            }],
            zfs: ZfsFacts {
                pools: vec![pool()],
                datasets: datasets::parse(Columns, DATASETS).unwrap(),
                datasets_problem: None,
                arc: None,
            },
            zed: ZedFacts { runs: true, has_zedlet: true },
            memory_bytes: 64 << 30,
            rdma_devices: 0,
            is_cluster_node: false,
            clock_synchronized: Some(true),
            now_unix_seconds: NOW,
        }
    }

    /// Returns the worst verdict of a check, and its fix.
    pub(crate) fn worst(verdicts: &[Verdict]) -> (Level, String) {
        let worst = verdicts.iter().max_by_key(|verdict| verdict.level);
        worst.map_or((Level::Ok, String::new()), |verdict| (verdict.level, verdict.fix.clone()))
    }

    #[test]
    fn nothing_is_found_on_it() {
        let findings = crate::examine(crate::Group::Server, super::CHECKS, &server());
        let bad: Vec<_> = findings.iter().filter(|one| one.level != Level::Ok).collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert!(findings.len() > 15, "{findings:?}");
    }
}
