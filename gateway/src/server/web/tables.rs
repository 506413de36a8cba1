//! Tables of the page. Text is escaped by the template, and cut if it is long, except for what the
//! doctor says.

use super::doctor::Examination;
use super::latest::Collected;
use super::overview::Overview;
use super::units::{bytes, short, span};
use crate::iscsi::status::{LunView, SessionView};
use crate::observe::pools::PoolReport;
use crate::schedule;
use crate::server::limits::{MAX_API_ROWS, MAX_PAGE_ROWS};
use crate::server::status::{ClientStatus, ExportStatus};
use maud::{Markup, html};
use zgate_control::health::PoolState;

/// Most levels of groups that the names of devices are indented by.
const MAX_INDENT: usize = 4;

/// Contents of a cell.
enum Cell {
    Text(String),
    /// Text that is never cut.
    Whole(String),
    /// Aligned at the right.
    Number(String),
    /// Text in a colour: `good`, `warn` or `bad`.
    Mark(&'static str, String),
}

use Cell::{Mark, Number, Text, Whole};

/// A table.
struct Table<'a> {
    title: &'a str,
    /// Text of a table without rows.
    empty: &'a str,
    /// Command that shows all rows.
    command: &'a str,
    columns: &'a [&'a str],
    /// Number of all rows, shown or not.
    total: usize,
}

impl Table<'_> {
    fn draw(&self, rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
        let rows: Vec<_> = rows.take(MAX_PAGE_ROWS).collect();
        html! {
            section {
                h2 { (self.title) " " small { (self.total) } }
                @if rows.is_empty() {
                    p class="none" { (self.empty) }
                } @else {
                    table {
                        thead { tr { @for column in self.columns { th scope="col" { (column) } } } }
                        tbody { @for row in &rows { (self.row(row)) } }
                    }
                }
                @if self.total > rows.len() && !rows.is_empty() {
                    p class="cut" {
                        (rows.len()) " of " (self.total) " are shown; the API shows up to "
                        (MAX_API_ROWS) ", " code { (self.command) } " all of them"
                    }
                }
            }
        }
    }

    fn row(&self, row: &[Cell]) -> Markup {
        html! {
            tr {
                @for (column, cell) in self.columns.iter().zip(row) {
                    @match cell {
                        Text(text) => td data-label=(column) { (short(text)) },
                        Whole(text) => td data-label=(column) { (text) },
                        Number(text) => td class="number" data-label=(column) { (short(text)) },
                        Mark(class, text) => td data-label=(column) {
                            span class={ "mark " (class) } { (short(text)) }
                        },
                    }
                }
            }
        }
    }
}

/// Draws all tables.
pub(super) fn all(overview: &Overview) -> Markup {
    let Overview { status, totals } = overview;
    let exports = Table {
        title: "Exports",
        empty: "Nothing is exported.",
        command: "zgate exports",
        columns: &["Export", "Source", "State", "Access", "Versions", "Transports", "Used", "Free"],
        total: totals.exports,
    };
    let clients = Table {
        title: "NFS clients",
        empty: "No NFSv4 client has state here; NFSv3 clients are in zgate top.",
        command: "zgate clients",
        columns: &[
            "Client",
            "Address",
            "Version",
            "Idle",
            "Sessions",
            "Opens",
            "Locks",
            "Delegations",
        ],
        total: totals.clients,
    };
    let luns = Table {
        title: "LUNs",
        empty: "There is no LUN.",
        command: "zgate targets",
        columns: &[
            "Target", "LUN", "Storage", "Size", "Free", "Access", "Read", "Written", "Failures",
        ],
        total: totals.luns,
    };
    let initiators = Table {
        title: "iSCSI initiators",
        empty: "No initiator is logged in.",
        command: "zgate sessions",
        columns: &[
            "Initiator",
            "Address",
            "Target",
            "LUNs",
            "User",
            "Connections",
            "Running",
            "Since",
        ],
        total: totals.sessions,
    };
    let pools = Table {
        title: "Pools",
        empty: "No ZFS pool is known.",
        command: "zpool list",
        columns: &[
            "Pool",
            "State",
            "Used",
            "Size",
            "Full",
            "Data errors",
            "Device errors",
            "Sampled",
        ],
        total: totals.pools,
    };
    let devices: Vec<_> = status.pools.iter().flat_map(vdev_rows).collect();
    let vdevs = Table {
        title: "Devices of pools",
        empty: "No device is known.",
        command: "zpool status",
        columns: &["Pool", "Device", "State", "For", "Read errors", "Write errors", "Checksums"],
        total: devices.len(),
    };
    let snapshots = Table {
        title: "Snapshot schedules",
        empty: "There is no snapshot schedule.",
        command: "zgate snapshot schedules",
        columns: &[
            "Dataset",
            "State",
            "Snapshots",
            "Last run (UTC)",
            "Next run (UTC)",
            "Taken",
            "Destroyed",
        ],
        total: totals.snapshots,
    };
    let units = status
        .targets
        .iter()
        .flat_map(|target| target.luns.iter().map(move |lun| lun_row(&target.name, lun)));
    html! {
        (exports.draw(status.exports.iter().map(export_row)))
        (clients.draw(status.clients.iter().map(client_row)))
        (initiators.draw(status.sessions.iter().map(session_row)))
        (luns.draw(units))
        (pools.draw(status.pools.iter().map(pool_row)))
        @if !devices.is_empty() { (vdevs.draw(devices.into_iter())) }
        (snapshots.draw(status.snapshots.iter().map(schedule_row)))
    }
}

fn export_row(export: &ExportStatus) -> Vec<Cell> {
    let rules = export.clients.iter().map(|rule| format!("{} {}", rule.matches, rule.access));
    let access = rules.collect::<Vec<_>>().join(", ");
    let space = export.dataset.as_ref();
    vec![
        Text(export.pseudo_path.clone()),
        Text(export.source.clone()),
        match export.condition {
            Some("away") => Mark("bad", "away".to_owned()),
            Some(condition) => Mark("good", condition.to_owned()),
            None => Mark("good", "served".to_owned()),
        },
        if access.is_empty() { Mark("warn", "nobody".to_owned()) } else { Text(access) },
        Text(export.versions.join(" ")),
        Text(export.transports.join(" ")),
        Number(space.map_or_else(unknown, |space| bytes(space.used_bytes))),
        Number(space.map_or_else(unknown, |space| bytes(space.available_bytes))),
    ]
}

/// Text of a figure that is not known.
fn unknown() -> String {
    "–".to_owned()
}

fn client_row(client: &ClientStatus) -> Vec<Cell> {
    let idle = span(client.idle_seconds);
    vec![
        Text(client.name.clone()),
        Text(client.address.clone()),
        Text(format!("4.{}", client.minor)),
        if client.courtesy { Mark("warn", format!("{idle}, lease ran out")) } else { Number(idle) },
        Number(client.sessions.to_string()),
        Number(client.opens.to_string()),
        Number(client.locks.to_string()),
        Number(client.delegations.to_string()),
    ]
}

fn lun_row(target: &str, lun: &LunView) -> Vec<Cell> {
    vec![
        Text(target.to_owned()),
        Number(lun.number.to_string()),
        Text(lun.path.clone()),
        Number(bytes(lun.size_bytes)),
        Number(lun.space_available_bytes.map_or_else(unknown, bytes)),
        Text(if lun.read_only { "ro" } else { "rw" }.to_owned()),
        Number(bytes(lun.read_bytes)),
        Number(bytes(lun.written_bytes)),
        match lun.failures {
            0 => Number("0".to_owned()),
            failures => Mark("bad", failures.to_string()),
        },
    ]
}

fn session_row(session: &SessionView) -> Vec<Cell> {
    let mut peers: Vec<_> = session.connections.iter().map(|one| one.peer.as_str()).collect();
    peers.sort_unstable();
    let luns: Vec<_> = session.luns.iter().take(MAX_PAGE_ROWS).map(ToString::to_string).collect();
    vec![
        Text(session.initiator.clone()),
        Text(peers.join(" ")),
        Text(session.target.clone().unwrap_or_else(|| "discovery".to_owned())),
        Text(luns.join(" ")),
        Text(session.authenticated_as.clone().unwrap_or_else(unknown)),
        Number(session.connections.len().to_string()),
        Number(session.running.to_string()),
        Number(span(session.age_seconds)),
    ]
}

fn pool_row(pool: &PoolReport) -> Vec<Cell> {
    let figures = pool.figures.as_ref();
    let state = match pool.state {
        PoolState::Online => "good",
        PoolState::Degraded | PoolState::Unknown => "warn",
        _ => "bad",
    };
    let errors = |count: Option<u64>| match count {
        None => Number(unknown()),
        Some(0) => Number("0".to_owned()),
        Some(count) => Mark("bad", count.to_string()),
    };
    let full = figures.filter(|one| one.size_bytes > 0);
    let full = full.map(|one| one.allocated_bytes as f64 * 100.0 / one.size_bytes as f64);
    vec![
        Text(pool.name.clone()),
        Mark(state, pool.state.to_string()),
        Number(figures.map_or_else(unknown, |one| bytes(one.allocated_bytes))),
        Number(figures.map_or_else(unknown, |one| bytes(one.size_bytes))),
        Number(full.map_or_else(unknown, |percent| format!("{percent:.0} %"))),
        errors(figures.map(|one| one.data_errors)),
        errors(figures.map(|one| one.device_errors)),
        Number(pool.age_seconds.map_or_else(unknown, |age| format!("{} ago", span(age)))),
    ]
}

fn vdev_rows(pool: &PoolReport) -> impl Iterator<Item = Vec<Cell>> {
    let vdevs = pool.figures.iter().flat_map(|figures| &figures.vdevs);
    vdevs.map(|vdev| {
        let state = match vdev.state {
            PoolState::Online => "good",
            PoolState::Degraded | PoolState::Unknown => "warn",
            _ => "bad",
        };
        let errors = |count: u64| match count {
            0 => Number("0".to_owned()),
            count => Mark("bad", count.to_string()),
        };
        let indent = "\u{2003}".repeat(vdev.depth.saturating_sub(1).min(MAX_INDENT));
        vec![
            Text(pool.name.clone()),
            Text(format!("{indent}{}", vdev.name)),
            Mark(state, vdev.state.to_string()),
            Text(vdev.class.to_string()),
            errors(vdev.read_errors),
            errors(vdev.write_errors),
            errors(vdev.checksum_errors),
        ]
    })
}

/// Draws the findings of `zgate doctor`: the faults, and the number of checks.
pub(super) fn doctor(last: Option<&Collected<Examination>>) -> Markup {
    let Some(last) = last else {
        return html! {
            section {
                h2 { "Doctor" }
                p class="none" { "This machine is being examined." }
            }
        };
    };
    let found = &last.value;
    let faults = found.items.iter().filter(|finding| finding.level != "ok");
    let passed = found.items.len() - faults.clone().count();
    let empty = found.problem.clone().unwrap_or_else(|| format!("No faults: {passed} checks."));
    let table = Table {
        title: "Doctor",
        empty: &empty,
        command: "zgate doctor",
        columns: &["Check", "Level", "Finding", "Consequence", "Remedy"],
        total: found.errors + found.warnings,
    };
    let rows = faults.map(|finding| {
        let class = if finding.level == "error" { "bad" } else { "warn" };
        vec![
            Text(format!("{} {}", finding.group, finding.check)),
            Mark(class, finding.level.clone()),
            Whole(finding.what.clone()),
            Whole(finding.why.clone()),
            Whole(finding.fix.clone()),
        ]
    });
    table.draw(rows)
}

fn schedule_row(view: &schedule::View) -> Vec<Cell> {
    let time = |text: &str| if text.is_empty() { unknown() } else { text.replace('_', " ") };
    vec![
        Text(if view.recursive {
            format!("{} and below", view.dataset)
        } else {
            view.dataset.clone()
        }),
        match view.failed.first() {
            None => Mark("good", "works".to_owned()),
            Some(error) => Mark("warn", error.clone()),
        },
        Number(view.figures.snapshots.to_string()),
        Number(time(&view.looked)),
        Number(time(&view.next)),
        Number(view.figures.taken_total.to_string()),
        Number(view.figures.pruned_total.to_string()),
    ]
}
