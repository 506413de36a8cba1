//! A status for tests, with names that a hostile peer might choose.

use super::overview::Overview;
use crate::iscsi::status::{ConnectionView, LunView, PortalView, SessionView, TargetView};
use crate::observe::pools::{Figures, PoolReport, VdevReport};
use crate::schedule;
use crate::server::descriptors::DescriptorStatus;
use crate::server::memory::{BudgetSource, MemoryStatus};
use crate::server::status::{ClientStatus, ExportStatus, RuleStatus, Status};
use crate::server::throughput::{HistoryPoint, Throughput, Transfers};
use crate::server::verdict::{HealthReport, Problem, Verdict};
use zgate_control::VdevClass;
use zgate_control::health::PoolState;

/// Markup, as a client may call itself.
pub(super) const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&</td></table><script>";

fn transfers(bytes_per_second: f64, seconds: Option<f64>) -> Transfers {
    Transfers {
        operations_per_second: bytes_per_second / 4096.0,
        bytes_per_second,
        median_seconds: seconds,
        percentile_99_seconds: seconds,
    }
}

/// Returns a point of the history.
pub(super) fn point(unix_seconds: u64, read: f64, seconds: Option<f64>) -> HistoryPoint {
    let throughput = Throughput {
        seconds: 5.0,
        requests_per_second: read / 4096.0,
        read: transfers(read, seconds),
        write: transfers(read / 2.0, seconds),
    };
    HistoryPoint { unix_seconds, throughput }
}

fn client(number: usize) -> ClientStatus {
    ClientStatus {
        id: format!("{number:016x}"),
        name: format!("{HOSTILE}{number}"),
        address: "10.0.0.1:700".to_owned(),
        implementation: HOSTILE.to_owned(),
        minor: 2,
        idle_seconds: 3,
        courtesy: number == 1,
        sessions: 1,
        opens: 4,
        locks: 5,
        delegations: 6,
    }
}

fn export() -> ExportStatus {
    let rule = RuleStatus {
        matches: "10.0.0.0/8".to_owned(),
        access: "rw",
        squash: "root",
        anon: "65534:65534".to_owned(),
        security: vec!["sys"],
    };
    ExportStatus {
        pseudo_path: format!("/{HOSTILE}"),
        source: "/tank/models".to_owned(),
        fsid: 1,
        read_only: false,
        max_transfer_bytes: 1 << 20,
        versions: vec!["3", "4.2"],
        transports: vec!["tcp"],
        reserved_port_only: false,
        delegations: true,
        delegated_times: true,
        clients: vec![rule],
        condition: None,
        dataset: None,
    }
}

fn target(luns: usize) -> TargetView {
    let lun = |number| LunView {
        number,
        path: format!("/dev/zvol/tank/{HOSTILE}"),
        kind: "device".to_owned(),
        size_bytes: 1 << 40,
        block_bytes: 512,
        physical_block_bytes: 4096,
        read_only: number == 1,
        direct: true,
        serial: "s".to_owned(),
        naa: "naa.6".to_owned(),
        reads: 7,
        read_bytes: 1 << 20,
        writes: 8,
        written_bytes: 1 << 21,
        failures: 9,
        dataset: None,
        space_available_bytes: Some(1 << 30),
    };
    TargetView {
        name: "iqn.2026-11.io.zgate:vm".to_owned(),
        alias: None,
        portals: vec![PortalView {
            address: "10.0.0.1:3260".to_owned(),
            group: 1,
            transport: "tcp",
        }],
        allow_any_initiator: false,
        sessions: 1,
        luns: (0..luns as u16).map(lun).collect(),
    }
}

fn session(number: usize) -> SessionView {
    SessionView {
        tsih: number as u16,
        initiator: format!("iqn.1993-08.org.debian:{number}"),
        isid: "i".to_owned(),
        target: Some("iqn.2026-11.io.zgate:vm".to_owned()),
        portal_group: 1,
        authenticated_as: Some(HOSTILE.to_owned()),
        error_recovery_level: 0,
        header_digest: true,
        data_digest: false,
        tasks: 1,
        running: 2,
        age_seconds: 100,
        luns: vec![0],
        connections: vec![ConnectionView { cid: Some(0), peer: "10.0.0.9:4".to_owned(), core: 0 }],
    }
}

/// Returns a status with so many clients, LUNs and sessions.
pub(super) fn overview(clients: usize, luns: usize, sessions: usize) -> Overview {
    let problem = Problem { severity: Verdict::Failing, text: format!("pool {HOSTILE} is full") };
    let figures = Figures {
        size_bytes: 100,
        allocated_bytes: 90,
        data_errors: 1,
        device_errors: 2,
        scan: None,
        vdevs: vec![VdevReport {
            name: HOSTILE.to_owned(),
            state: PoolState::Faulted,
            class: VdevClass::Data,
            depth: 2,
            read_errors: 3,
            write_errors: 0,
            checksum_errors: 4,
        }],
    };
    let pool = PoolReport {
        name: "tank".to_owned(),
        state: PoolState::Degraded,
        age_seconds: Some(12),
        trouble: Some(HOSTILE.to_owned()),
        warnings: vec![HOSTILE.to_owned()],
        figures: Some(figures),
    };
    let unknown = PoolReport {
        name: "lost".to_owned(),
        state: PoolState::Suspended,
        age_seconds: None,
        trouble: None,
        warnings: Vec::new(),
        figures: None,
    };
    let schedule = schedule::View {
        dataset: "tank/vm".to_owned(),
        failed: vec![HOSTILE.to_owned()],
        ..schedule::View::default()
    };
    Overview::of(Status {
        version: "0.1.0",
        pid: 1,
        health: HealthReport { verdict: Verdict::Failing, problems: vec![problem] },
        silent_cores: vec![1],
        absent: Vec::new(),
        started_unix_seconds: 1,
        uptime_seconds: 90_000,
        throughput: Some(point(1, 1e9, Some(0.002)).throughput),
        nfs_addresses: vec!["10.0.0.1:2049".parse().unwrap()],
        rdma_addresses: Vec::new(),
        rdma: None,
        interfaces: Vec::new(),
        exports: vec![export()],
        clients: (0..clients).map(client).collect(),
        targets: vec![target(luns)],
        sessions: (0..sessions).map(session).collect(),
        snapshots: vec![schedule],
        connections: 3,
        descriptors: DescriptorStatus::default(),
        grace_seconds_left: 0,
        handover_seconds_left: None,
        port_groups: Vec::new(),
        buffers_in_use_bytes: 1 << 20,
        memory: MemoryStatus {
            used_bytes: 100 << 20,
            budget_bytes: Some(448 << 20),
            source: Some(BudgetSource::Configured),
            level: "plenty",
            short_milliseconds: 0,
        },
        data: Vec::new(),
        pools: vec![pool, unknown],
        zfs: None,
    })
}
