//! The screen of `zgate exports`.

use super::datasets::{self, Properties};
use super::units::bytes;
use super::{Column, Output, Text, Tone, hosts, table};
use serde::Deserialize;

/// Answer of a gateway to `zgate exports`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Exports(Vec<Export>);

#[derive(Debug, Deserialize)]
struct Export {
    pseudo_path: String,
    source: String,
    read_only: bool,
    max_transfer_bytes: u64,
    versions: Vec<String>,
    transports: Vec<String>,
    delegations: bool,
    clients: Vec<Rule>,
    condition: Option<String>,
    dataset: Option<Properties>,
}

/// An export that is configured, but absent on the gateway's machine.
#[derive(Debug)]
pub(crate) struct AbsentExport {
    pseudo_path: String,
    reason: String,
    next_step: String,
}

impl AbsentExport {
    /// Returns those of a gateway's answer to `zgate status`.
    pub(crate) fn all(status: &serde_json::Value) -> Vec<Self> {
        let items = status["absent"].as_array().into_iter().flatten();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let found = items.filter_map(|item| {
            // Other items are clients, LUNs and addresses.
            let pseudo_path = item["name"].as_str()?.strip_prefix("export ")?.to_owned();
            let (reason, next_step) = (text(&item["reason"]), text(&item["next_step"]));
            Some(Self { pseudo_path, reason, next_step })
        });
        found.collect()
    }

    /// Returns its path among the exports.
    pub(crate) fn pseudo_path(&self) -> &str {
        &self.pseudo_path
    }

    /// Returns why it is absent, and the next step.
    pub(crate) fn reason(&self) -> String {
        format!("export {} is absent: {}; {}", self.pseudo_path, self.reason, self.next_step)
    }
}

#[derive(Debug, Deserialize)]
struct Rule {
    #[serde(rename = "match")]
    matches: String,
    access: String,
    squash: String,
    anon: String,
    security: Vec<String>,
}

impl Exports {
    /// Returns a table of exports with those that are absent, the reasons of these, a
    /// table of the hosts that may use the others, and one of their datasets.
    pub(crate) fn text(&self, absent: &[AbsentExport], output: Output) -> String {
        use Column::{Left, Right};
        if self.0.is_empty() && absent.is_empty() {
            return "no exports\n".to_owned();
        }
        let columns = [
            Left("EXPORT"),
            Left("SOURCE"),
            Left("STATE"),
            Left("NFS"),
            Left("TRANSPORTS"),
            Right("TRANSFER"),
            Left("DELEGATIONS"),
        ];
        let rows = self.0.iter().map(|export| {
            vec![
                export.pseudo_path.clone().into(),
                export.source.clone().into(),
                export.state(),
                export.versions.join(" ").into(),
                export.transports.join(" ").into(),
                bytes(export.max_transfer_bytes).into(),
                if export.delegations { "yes" } else { "no" }.into(),
            ]
        });
        let without = absent.iter().map(|export| {
            let state = Text(Tone::Bad, "absent".to_owned());
            let mut row: Vec<Text> = vec![export.pseudo_path.clone().into(), "-".into(), state];
            row.resize_with(columns.len(), || "-".into());
            row
        });
        let mut text = table(output, &columns, rows.chain(without).collect());
        for export in absent {
            text += &format!("{}\n", export.reason());
        }
        if self.0.is_empty() {
            return text;
        }
        text.push('\n');
        text += &self.rules(output);
        text + &datasets::text(output, self.0.iter().filter_map(|export| export.dataset.as_ref()))
    }

    fn rules(&self, output: Output) -> String {
        let columns = ["EXPORT", "HOSTS", "ACCESS", "SQUASH", "ANONYMOUS", "SECURITY"];
        let rows = self.0.iter().flat_map(|export| {
            let nobody = || {
                let mut row = vec![export.pseudo_path.clone().into()];
                row.push(Text(Tone::Warning, "nobody".to_owned()));
                row.resize_with(columns.len(), || "-".into());
                row
            };
            let rules = export.clients.iter().map(|rule| {
                vec![
                    export.pseudo_path.clone().into(),
                    hosts(&rule.matches).into(),
                    if export.read_only { "ro" } else { &rule.access }.into(),
                    rule.squash.clone().into(),
                    rule.anon.clone().into(),
                    rule.security.join(" ").into(),
                ]
            });
            let empty = export.clients.is_empty().then(nobody);
            rules.chain(empty).collect::<Vec<_>>()
        });
        table(output, &columns.map(Column::Left), rows.collect())
    }
}

impl Export {
    fn state(&self) -> Text {
        match self.condition.as_deref() {
            None => "served".into(),
            Some("away") => Text(Tone::Bad, "away".to_owned()),
            Some(condition) => condition.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exports_hosts_and_datasets_are_tables() {
        let answer = json!([
            {
                "pseudo_path": "/models", "source": "/tank/models", "fsid": 7, "read_only": false,
                "max_transfer_bytes": 1 << 20, "versions": ["4.1", "4.2"],
                "transports": ["tcp", "rdma"], "reserved_port_only": false, "delegations": true,
                "clients": [
                    { "match": "10.0.0.5/32", "access": "rw", "squash": "none",
                        "anon": "65534:65534", "security": ["sys"] },
                    { "match": "10.0.0.0/24", "access": "ro", "squash": "root",
                        "anon": "65534:65534", "security": ["sys", "none"] },
                ],
                "condition": "in-use",
                "dataset": { "name": "tank/models", "guid": 1, "sync": "disabled",
                    "compression": "lz4", "recordsize_bytes": 1 << 20, "volblocksize_bytes": null,
                    "used_bytes": 1_u64 << 30, "available_bytes": 1_u64 << 40,
                    "quota_bytes": null, "refquota_bytes": null, "encrypted": false,
                    "key_loaded": true, "warning": "sync=disabled: acknowledged writes are lost" },
            },
            {
                "pseudo_path": "/old", "source": "/srv/old", "read_only": true,
                "max_transfer_bytes": 65536, "versions": ["3"], "transports": ["tcp"],
                "delegations": false, "clients": [],
            },
        ]);
        let expected = "\
EXPORT   SOURCE        STATE   NFS      TRANSPORTS   TRANSFER  DELEGATIONS
/models  /tank/models  in-use  4.1 4.2  tcp rdma     1.00 MiB  yes
/old     /srv/old      served  3        tcp         64.00 KiB  no

EXPORT   HOSTS        ACCESS  SQUASH  ANONYMOUS    SECURITY
/models  10.0.0.5     rw      none    65534:65534  sys
/models  10.0.0.0/24  ro      root    65534:65534  sys none
/old     nobody       -       -       -            -

DATASET      SYNC      COMPRESSION     BLOCK  ENCRYPTION      USED      FREE  QUOTA
tank/models  disabled  lz4          1.00 MiB  none        1.00 GiB  1.00 TiB      -
tank/models: sync=disabled: acknowledged writes are lost
";
        let exports: Exports = serde_json::from_value(answer).unwrap();
        assert_eq!(exports.text(&[], Output::default()), expected);
        assert_eq!(Exports(Vec::new()).text(&[], Output::default()), "no exports\n");
    }

    #[test]
    fn an_absent_export_is_shown_with_the_reason() {
        let item = |kind: &str, name: &str| {
            json!({ "kind": kind, "name": name, "reason": "cannot open /tank/models",
                "next_step": "import its pool", "absent_seconds": 3 })
        };
        let of = |items: &[serde_json::Value]| AbsentExport::all(&json!({ "absent": items }));
        let absent = of(&[
            item("export", "export /models"),
            item("client", "client gpu7.lan"),
            item("dataset", "export /vm"),
        ]);
        let expected = "\
EXPORT   SOURCE  STATE   NFS  TRANSPORTS  TRANSFER  DELEGATIONS
/models  -       absent  -    -                  -  -
/vm      -       absent  -    -                  -  -
export /models is absent: cannot open /tank/models; import its pool
export /vm is absent: cannot open /tank/models; import its pool
";
        assert_eq!(Exports(Vec::new()).text(&absent, Output::default()), expected);
        // A gateway of an earlier version does not tell.
        assert!(AbsentExport::all(&json!({})).is_empty());
    }
}
