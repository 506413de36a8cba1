//! The screen of `zgate status`: verdict, throughput, and what there is.

use super::answer::{Dataset, Export, Portal, Problem, Rule, Scan, Status, Throughput, Transfers};
use super::units::{byte_rate, bytes, count, duration, latency, rate};
use super::{Column, Output, Text, Tone, hosts, table};

/// Most rows of one table; the commands for each table show all of them.
const MOST_ROWS: usize = 20;

fn tone(verdict: &str) -> Tone {
    match verdict {
        "healthy" => Tone::Good,
        "degraded" => Tone::Warning,
        _ => Tone::Bad,
    }
}

impl Throughput {
    /// Returns rates and latencies on one line.
    pub(super) fn line(&self) -> String {
        let one = |name: &str, of: &Transfers| {
            let mut text = format!("{name} {}", byte_rate(of.bytes_per_second));
            if of.operations_per_second > 0.0 {
                let (median, most) = (of.median_seconds, of.percentile_99_seconds);
                text += &format!(" (p50 {}, p99 {})", latency(median), latency(most));
            }
            text
        };
        format!(
            "{} requests/s, {}, {}, last {:.0} s",
            rate(self.requests_per_second),
            one("read", &self.read),
            one("write", &self.write),
            self.seconds
        )
    }
}

impl Status {
    /// Returns the whole screen.
    pub(crate) fn text(&self, output: Output) -> String {
        let mut text = self.head(output);
        let tables = [
            self.exports(output),
            self.clients(output),
            self.luns(output),
            self.initiators(output),
            self.pools(output),
            self.schedules(output),
        ];
        for table in tables.iter().filter(|table| !table.is_empty()) {
            text.push('\n');
            text += table;
        }
        text
    }

    fn head(&self, output: Output) -> String {
        let verdict = &self.health.verdict;
        let mut text = format!(
            "zgate {} is {}, up {}\n",
            self.version,
            output.paint(tone(verdict), verdict),
            duration(self.uptime_seconds)
        );
        for Problem { severity, text: problem } in &self.health.problems {
            text +=
                &format!("{} {problem}\n", output.paint(tone(severity), &format!("{severity:8}")));
        }
        let line = |name: &str, value: String| format!("{name:8} {value}\n");
        let mut addresses = self.nfs_addresses.clone();
        addresses.extend(self.rdma_addresses.iter().map(|address| format!("{address} (RDMA)")));
        if !addresses.is_empty() {
            text += &line("NFS", addresses.join(", "));
        }
        let portals = self.targets.first().map_or(&[][..], |target| &target.portals);
        if !portals.is_empty() {
            let portal = |portal: &Portal| match portal.transport.as_str() {
                "iser" => format!("{} (iSER)", portal.address),
                _ => portal.address.clone(),
            };
            text += &line("iSCSI", portals.iter().map(portal).collect::<Vec<_>>().join(", "));
        }
        let luns = self.targets.iter().map(|target| target.luns.len()).sum();
        let mut there =
            vec![count(self.exports.len(), "export"), count(self.clients.len(), "client")];
        if !self.targets.is_empty() {
            there.push(count(luns, "LUN"));
            there.push(count(self.sessions.len(), "initiator session"));
        }
        there.push(count(self.connections, "connection"));
        text += &line("serves", there.join(", "));
        if let Some(throughput) = &self.throughput {
            text += &line("load", throughput.line());
        }
        let mut memory = format!("{} in buffers", bytes(self.buffers_in_use_bytes));
        if let Some(caches) = &self.zfs {
            let hits = caches.arc_hit_percent.map(|percent| format!(", {percent} % hits"));
            let (arc, most) = (bytes(caches.arc_bytes), bytes(caches.arc_max_bytes));
            memory += &format!("; ARC {arc} of {most}{}", hits.unwrap_or_default());
        }
        text += &line("memory", memory);
        if self.grace_seconds_left > 0 {
            let left = duration(self.grace_seconds_left);
            text += &line("grace", format!("clients reclaim for {left} at most; others wait"));
        }
        if let Some(left) = self.handover_seconds_left {
            let left = duration(left);
            text += &line("handover", format!("clients wait, for {left} unless it is stopped"));
        }
        text
    }

    fn exports(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("EXPORT"),
            Left("SOURCE"),
            Left("CLIENTS"),
            Left("OVER"),
            Left("DATASET"),
            Right("USED"),
            Right("FREE"),
        ];
        // RDMA is on by default, but not every gateway serves it.
        let over = |export: &Export| {
            let served = |name: &&String| *name != "rdma" || !self.rdma_addresses.is_empty();
            export.transports.iter().filter(served).cloned().collect::<Vec<_>>().join(" ")
        };
        let rows = self.exports.iter().map(|export| {
            let access = |rule: &Rule| {
                let access = if export.read_only { "ro" } else { &rule.access };
                format!("{} {access}", hosts(&rule.matches))
            };
            let rules: Vec<_> = export.clients.iter().map(access).collect();
            let clients = match rules.is_empty() {
                true => Text(Tone::Warning, "nobody".to_owned()),
                false => rules.join(", ").into(),
            };
            let dataset = match (&export.dataset, export.condition.as_deref()) {
                (_, Some("away")) => Text(Tone::Bad, "away".to_owned()),
                (Some(dataset), _) => dataset.name.clone().into(),
                (None, _) => "-".into(),
            };
            let space = |value: fn(&Dataset) -> u64| {
                export.dataset.as_ref().map_or("-".to_owned(), |dataset| bytes(value(dataset)))
            };
            vec![
                export.pseudo_path.clone().into(),
                export.source.clone().into(),
                clients,
                over(export).into(),
                dataset,
                space(|dataset| dataset.used_bytes).into(),
                space(|dataset| dataset.available_bytes).into(),
            ]
        });
        limited(output, &columns, rows.collect(), "zgate exports")
    }

    fn clients(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("CLIENT"),
            Left("NAME"),
            Left("NFS"),
            Right("OPENS"),
            Right("LOCKS"),
            Right("DELEGATIONS"),
            Right("IDLE"),
        ];
        let rows = self.clients.iter().map(|client| {
            let idle = duration(client.idle_seconds);
            vec![
                client.address.clone().into(),
                client.name.clone().into(),
                if client.minor == 0 { "4.0" } else { "4.1+" }.into(),
                client.opens.to_string().into(),
                client.locks.to_string().into(),
                client.delegations.to_string().into(),
                if client.courtesy { Text(Tone::Warning, idle + ", expired") } else { idle.into() },
            ]
        });
        limited(output, &columns, rows.collect(), "zgate clients")
    }

    fn luns(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("TARGET"),
            Right("LUN"),
            Left("STORE"),
            Right("SIZE"),
            Right("READ"),
            Right("WRITTEN"),
            Right("FAILURES"),
        ];
        let rows = self.targets.iter().flat_map(|target| {
            target.luns.iter().map(|lun| {
                let read_only = if lun.read_only { " (ro)" } else { "" };
                let failures = lun.failures.to_string();
                vec![
                    target.name.clone().into(),
                    lun.number.to_string().into(),
                    format!("{} {}{read_only}", lun.kind, lun.path).into(),
                    bytes(lun.size_bytes).into(),
                    bytes(lun.read_bytes).into(),
                    bytes(lun.written_bytes).into(),
                    if lun.failures > 0 { Text(Tone::Bad, failures) } else { failures.into() },
                ]
            })
        });
        limited(output, &columns, rows.collect(), "zgate targets")
    }

    fn initiators(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("INITIATOR"),
            Left("TARGET"),
            Left("ADDRESS"),
            Right("CONNECTIONS"),
            Right("COMMANDS"),
            Right("AGE"),
        ];
        let rows = self.sessions.iter().map(|session| {
            let peer = session.connections.first().map_or("-", |connection| &connection.peer);
            vec![
                session.initiator.clone().into(),
                session.target.as_deref().unwrap_or("discovery").into(),
                peer.into(),
                session.connections.len().to_string().into(),
                session.running.to_string().into(),
                duration(session.age_seconds).into(),
            ]
        });
        limited(output, &columns, rows.collect(), "zgate sessions")
    }

    fn pools(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("POOL"),
            Left("STATE"),
            Right("USED"),
            Right("SIZE"),
            Right("ERRORS"),
            Left("SCAN"),
        ];
        let rows = self.pools.iter().map(|pool| {
            let state = match (pool.state.as_str(), pool.warnings.is_empty()) {
                ("ONLINE", true) => Tone::Good,
                ("ONLINE" | "DEGRADED" | "UNKNOWN", _) => Tone::Warning,
                _ => Tone::Bad,
            };
            let shown = |value: Option<u64>| value.map_or("-".to_owned(), bytes);
            let errors = pool.data_errors.map_or("-".to_owned(), |errors| errors.to_string());
            let bad = pool.data_errors.is_some_and(|errors| errors > 0);
            vec![
                pool.name.clone().into(),
                Text(state, pool.state.clone()),
                shown(pool.allocated_bytes).into(),
                shown(pool.size_bytes).into(),
                if bad { Text(Tone::Bad, errors) } else { errors.into() },
                pool.scan.as_ref().map_or("none".to_owned(), Scan::text).into(),
            ]
        });
        limited(output, &columns, rows.collect(), "zgate pool list")
    }

    fn schedules(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("SNAPSHOTS OF"),
            Right("COUNT"),
            Left("LAST RUN (UTC)"),
            Left("NEXT"),
            Left("RESULT"),
        ];
        let rows = self.snapshots.iter().map(|schedule| {
            let time = |moment: &str| match moment {
                "" => "-".to_owned(),
                moment => moment.replace('_', " "),
            };
            vec![
                schedule.dataset.clone().into(),
                schedule.snapshots.to_string().into(),
                time(&schedule.looked).into(),
                time(&schedule.next).into(),
                match schedule.failed.first() {
                    Some(error) => Text(Tone::Bad, error.clone()),
                    None => "ok".into(),
                },
            ]
        });
        limited(output, &columns, rows.collect(), "zgate snapshot schedules")
    }
}

impl Scan {
    fn text(&self) -> String {
        let errors = match self.errors {
            0 => String::new(),
            errors => format!(", {errors} errors"),
        };
        let done = self.done_ratio.filter(|_| self.state != "finished");
        let done = done.map(|ratio| format!(" {:.0} %", ratio * 100.0)).unwrap_or_default();
        format!("{} {}{done}{errors}", self.kind, self.state)
    }
}

/// Returns the first rows of a table, and the command that shows the others.
fn limited(output: Output, columns: &[Column], mut rows: Vec<Vec<Text>>, all: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let hidden = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let mut text = table(output, columns, rows);
    if hidden > 0 {
        text += &format!("... and {hidden} more: `{all}`\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn screen(answer: serde_json::Value) -> String {
        serde_json::from_value::<Status>(answer).unwrap().text(Output::default())
    }

    fn idle() -> serde_json::Value {
        json!({
            "version": "0.1.0",
            "health": { "verdict": "healthy", "problems": [] },
            "uptime_seconds": 200_000,
            "nfs_addresses": ["0.0.0.0:2049"],
            "rdma_addresses": [],
            "exports": [{
                "pseudo_path": "/models", "source": "/tank/models", "read_only": false,
                "transports": ["tcp", "rdma"],
                "clients": [{ "match": "10.0.0.0/24", "access": "rw" }],
            }],
            "clients": [], "targets": [], "sessions": [], "snapshots": [],
            "connections": 0, "grace_seconds_left": 0, "buffers_in_use_bytes": 0, "pools": [],
        })
    }

    #[test]
    fn an_idle_gateway_fits_on_a_few_lines() {
        let expected = "\
zgate 0.1.0 is healthy, up 2 d 7 h
NFS      0.0.0.0:2049
serves   1 export, no clients, no connections
memory   0 B in buffers

EXPORT   SOURCE        CLIENTS         OVER  DATASET  USED  FREE
/models  /tank/models  10.0.0.0/24 rw  tcp   -           -     -
";
        assert_eq!(screen(idle()), expected);
    }

    #[test]
    fn a_busy_gateway_shows_everything() {
        let mut answer = idle();
        let more = json!({
            "health": { "verdict": "failing", "problems": [
                { "severity": "failing", "text": "pool tank: suspended" },
                { "severity": "degraded", "text": "pool zfast: 91 % full" },
            ]},
            "throughput": {
                "seconds": 10.0, "requests_per_second": 12_345.0,
                "read": { "operations_per_second": 9000.0, "bytes_per_second": 3.2e9,
                    "median_seconds": 1.2e-4, "percentile_99_seconds": 1.9e-3 },
                "write": { "operations_per_second": 0.0, "bytes_per_second": 0.0 },
            },
            "rdma_addresses": ["10.9.0.1:20049"],
            "clients": [{
                "name": "Linux NFSv4.2 gpu05", "address": "10.0.0.5", "minor": 1,
                "idle_seconds": 2, "courtesy": false, "opens": 3, "locks": 0, "delegations": 1,
            }],
            "targets": [{
                "name": "iqn.2026-11.test:vm",
                "portals": [
                    { "address": "0.0.0.0:3260", "transport": "tcp" },
                    { "address": "10.9.0.1:3261", "transport": "iser" },
                ],
                "luns": [{
                    "number": 3, "path": "/dev/zvol/tank/vm", "kind": "device",
                    "size_bytes": 1_u64 << 40, "read_only": false, "read_bytes": 4096,
                    "written_bytes": 0, "failures": 2,
                }],
            }],
            "sessions": [{
                "initiator": "iqn.2026-11.test:host", "target": "iqn.2026-11.test:vm",
                "running": 32, "age_seconds": 125, "connections": [{ "peer": "10.0.0.9:40000" }],
            }],
            "snapshots": [{
                "dataset": "tank/vm", "looked": "2026-11-23_10:00:00",
                "next": "2026-11-23_11:00:00", "failed": [], "snapshots": 48,
            }],
            "connections": 4,
            "grace_seconds_left": 40,
            "pools": [{
                "name": "tank", "state": "SUSPENDED", "warnings": ["suspended"],
                "size_bytes": 1_u64 << 42, "allocated_bytes": 1_u64 << 41, "data_errors": 0,
                "scan": { "kind": "scrub", "state": "running", "done_ratio": 0.25, "errors": 1 },
            }],
            "zfs": { "arc_bytes": 1_u64 << 30, "arc_max_bytes": 1_u64 << 34, "arc_hit_percent": 98 },
        });
        for (key, value) in more.as_object().unwrap() {
            answer[key] = value.clone();
        }
        answer["exports"][0]["condition"] = json!("in-use");
        answer["exports"][0]["dataset"] =
            json!({ "name": "tank/models", "used_bytes": 1 << 20, "available_bytes": 1 << 30 });
        let expected = "\
zgate 0.1.0 is failing, up 2 d 7 h
failing  pool tank: suspended
degraded pool zfast: 91 % full
NFS      0.0.0.0:2049, 10.9.0.1:20049 (RDMA)
iSCSI    0.0.0.0:3260, 10.9.0.1:3261 (iSER)
serves   1 export, 1 client, 1 LUN, 1 initiator session, 4 connections
load     12.3k requests/s, read 3.20 GB/s (p50 120 us, p99 1.90 ms), write 0 B/s, last 10 s
memory   0 B in buffers; ARC 1.00 GiB of 16.00 GiB, 98 % hits
grace    clients reclaim for 40 s at most; others wait

EXPORT   SOURCE        CLIENTS         OVER      DATASET          USED      FREE
/models  /tank/models  10.0.0.0/24 rw  tcp rdma  tank/models  1.00 MiB  1.00 GiB

CLIENT    NAME                 NFS   OPENS  LOCKS  DELEGATIONS  IDLE
10.0.0.5  Linux NFSv4.2 gpu05  4.1+      3      0            1   2 s

TARGET               LUN  STORE                         SIZE      READ  WRITTEN  FAILURES
iqn.2026-11.test:vm    3  device /dev/zvol/tank/vm  1.00 TiB  4.00 KiB      0 B         2

INITIATOR              TARGET               ADDRESS         CONNECTIONS  COMMANDS        AGE
iqn.2026-11.test:host  iqn.2026-11.test:vm  10.0.0.9:40000            1        32  2 min 5 s

POOL  STATE          USED      SIZE  ERRORS  SCAN
tank  SUSPENDED  2.00 TiB  4.00 TiB       0  scrub running 25 %, 1 errors

SNAPSHOTS OF  COUNT  LAST RUN (UTC)       NEXT                 RESULT
tank/vm          48  2026-11-23 10:00:00  2026-11-23 11:00:00  ok
";
        assert_eq!(screen(answer), expected);
    }

    #[test]
    fn a_single_host_has_no_prefix_length() {
        assert_eq!(hosts("10.0.0.1/32 10.1.0.0/16 fd00::/32"), "10.0.0.1 10.1.0.0/16 fd00::/32");
        assert_eq!([hosts("*"), hosts("fd00::1/128")], ["*", "fd00::1"]);
    }

    #[test]
    fn a_long_table_names_the_command_that_shows_all_of_it() {
        let mut answer = idle();
        let export = answer["exports"][0].clone();
        answer["exports"] = vec![export; 25].into();
        let text = screen(answer);
        assert!(text.ends_with("... and 5 more: `zgate exports`\n"), "{text}");
    }
}
