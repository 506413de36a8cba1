//! The screen of `zgate targets`.

use super::datasets::{self, Properties};
use super::units::bytes;
use super::{Column, Output, Text, Tone, table};
use serde::Deserialize;

/// Answer of a gateway to `zgate targets`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Targets(Vec<Target>);

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    alias: Option<String>,
    portals: Vec<Portal>,
    allow_any_initiator: bool,
    sessions: usize,
    luns: Vec<Lun>,
}

#[derive(Debug, Deserialize)]
struct Portal {
    address: String,
    group: u16,
    transport: String,
}

#[derive(Debug, Deserialize)]
struct Lun {
    number: u16,
    path: String,
    kind: String,
    size_bytes: u64,
    block_bytes: u64,
    read_only: bool,
    direct: bool,
    serial: String,
    naa: String,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    failures: u64,
    dataset: Option<Properties>,
    space_available_bytes: Option<u64>,
}

impl Targets {
    /// Returns a table of targets, two of their LUNs, and one of the zvols.
    pub(crate) fn text(&self, output: Output) -> String {
        use Column::{Left, Right};
        if self.0.is_empty() {
            return "no targets\n".to_owned();
        }
        let columns = [
            Left("TARGET"),
            Left("ALIAS"),
            Left("INITIATORS"),
            Right("SESSIONS"),
            Right("LUNS"),
            Left("PORTALS"),
        ];
        let rows = self.0.iter().map(|target| {
            let any = if target.allow_any_initiator { "any" } else { "by rule" };
            vec![
                target.name.clone().into(),
                target.alias.as_deref().unwrap_or("-").into(),
                any.into(),
                target.sessions.to_string().into(),
                target.luns.len().to_string().into(),
                target.portals.iter().map(Portal::text).collect::<Vec<_>>().join(", ").into(),
            ]
        });
        let mut text = table(output, &columns, rows.collect());
        if self.luns().next().is_some() {
            text += &format!("\n{}\n{}", self.stores(output), self.loads(output));
        }
        text + &datasets::text(output, self.luns().filter_map(|(_, lun)| lun.dataset.as_ref()))
    }

    fn luns(&self) -> impl Iterator<Item = (&Target, &Lun)> {
        self.0.iter().flat_map(|target| target.luns.iter().map(move |lun| (target, lun)))
    }

    fn stores(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("TARGET"),
            Right("LUN"),
            Left("STORE"),
            Right("SIZE"),
            Right("BLOCK"),
            Right("FREE"),
            Left("CACHE"),
            Left("SERIAL"),
            Left("NAA"),
        ];
        let rows = self.luns().map(|(target, lun)| {
            let read_only = if lun.read_only { " (ro)" } else { "" };
            vec![
                target.name.clone().into(),
                lun.number.to_string().into(),
                format!("{} {}{read_only}", lun.kind, lun.path).into(),
                bytes(lun.size_bytes).into(),
                bytes(lun.block_bytes).into(),
                lun.space_available_bytes.map_or("-".to_owned(), bytes).into(),
                if lun.direct { "direct" } else { "page cache" }.into(),
                lun.serial.clone().into(),
                lun.naa.clone().into(),
            ]
        });
        table(output, &columns, rows.collect())
    }

    fn loads(&self, output: Output) -> String {
        use Column::{Left, Right};
        let columns = [
            Left("TARGET"),
            Right("LUN"),
            Right("READS"),
            Right("READ"),
            Right("WRITES"),
            Right("WRITTEN"),
            Right("FAILURES"),
        ];
        let rows = self.luns().map(|(target, lun)| {
            let failures = lun.failures.to_string();
            vec![
                target.name.clone().into(),
                lun.number.to_string().into(),
                lun.reads.to_string().into(),
                bytes(lun.read_bytes).into(),
                lun.writes.to_string().into(),
                bytes(lun.written_bytes).into(),
                if lun.failures > 0 { Text(Tone::Bad, failures) } else { failures.into() },
            ]
        });
        table(output, &columns, rows.collect())
    }
}

impl Portal {
    fn text(&self) -> String {
        let iser = if self.transport == "iser" { " (iSER)" } else { "" };
        format!("{},{}{iser}", self.address, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn targets_luns_and_their_load_are_tables() {
        let answer = json!([{
            "name": "iqn.2026-11.test:vm", "alias": null, "allow_any_initiator": false,
            "portals": [
                { "address": "0.0.0.0:3260", "group": 1, "transport": "tcp" },
                { "address": "10.9.0.1:3261", "group": 1, "transport": "iser" },
            ],
            "sessions": 2,
            "luns": [{
                "number": 3, "path": "/dev/zvol/tank/vm", "kind": "device",
                "size_bytes": 1_u64 << 40, "block_bytes": 512, "physical_block_bytes": 16384,
                "read_only": true, "direct": true, "serial": "abc", "naa": "600x", "reads": 12,
                "read_bytes": 4096, "writes": 0, "written_bytes": 0, "failures": 2,
                "space_available_bytes": null,
            }],
        }]);
        let expected = "\
TARGET               ALIAS  INITIATORS  SESSIONS  LUNS  PORTALS
iqn.2026-11.test:vm  -      by rule            2     1  0.0.0.0:3260,1, 10.9.0.1:3261,1 (iSER)

TARGET               LUN  STORE                              SIZE  BLOCK  FREE  CACHE   SERIAL  NAA
iqn.2026-11.test:vm    3  device /dev/zvol/tank/vm (ro)  1.00 TiB  512 B     -  direct  abc     600x

TARGET               LUN  READS      READ  WRITES  WRITTEN  FAILURES
iqn.2026-11.test:vm    3     12  4.00 KiB       0      0 B         2
";
        let targets: Targets = serde_json::from_value(answer).unwrap();
        assert_eq!(targets.text(Output::default()), expected);
        assert_eq!(Targets(Vec::new()).text(Output::default()), "no targets\n");
    }
}
