//! The screen of `zgate acl`.

use super::{Column, Output, hosts, table};
use serde::Deserialize;

/// Answer of a gateway to `zgate acl`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct AccessRules(Vec<Rule>);

#[derive(Debug, Deserialize)]
struct Rule {
    target: String,
    initiator: String,
    /// Networks; none if the initiator may connect from anywhere.
    clients: Vec<String>,
    authentication: String,
    /// Logical units; none if all.
    luns: Option<Vec<u16>>,
    /// A gateway of an earlier version does not tell.
    #[serde(default)]
    read_only: bool,
}

impl AccessRules {
    /// Returns a table of the rules, in the order in which they apply.
    pub(crate) fn text(&self, output: Output) -> String {
        if self.0.is_empty() {
            return "no rules: no initiator may use any target\n".to_owned();
        }
        let columns = ["TARGET", "INITIATOR", "CLIENTS", "AUTHENTICATION", "LUNS", "ACCESS"];
        let rows = self.0.iter().map(|rule| {
            vec![
                rule.target.clone().into(),
                rule.initiator.clone().into(),
                rule.clients().into(),
                rule.authentication.clone().into(),
                rule.luns().into(),
                if rule.read_only { "ro" } else { "rw" }.into(),
            ]
        });
        table(output, &columns.map(Column::Left), rows.collect())
    }
}

impl Rule {
    fn clients(&self) -> String {
        if self.clients.is_empty() { "any".to_owned() } else { hosts(&self.clients.join(" ")) }
    }

    fn luns(&self) -> String {
        let Some(luns) = &self.luns else { return "all".to_owned() };
        if luns.is_empty() {
            return "none".to_owned();
        }
        luns.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_without_bounds_admits_any_client_to_all_luns() {
        let answer = json!([
            { "target": "iqn.2026-11.test:vm", "initiator": "iqn.2026-12.test:a",
                "clients": ["10.0.0.5/32", "10.1.0.0/24"], "authentication": "mutual chap",
                "luns": [0, 7], "read_only": true },
            { "target": "iqn.2026-11.test:vm", "initiator": "*", "clients": [],
                "authentication": "none", "luns": null, "read_only": false },
        ]);
        let expected = "\
TARGET               INITIATOR           CLIENTS               AUTHENTICATION  LUNS  ACCESS
iqn.2026-11.test:vm  iqn.2026-12.test:a  10.0.0.5 10.1.0.0/24  mutual chap     0 7   ro
iqn.2026-11.test:vm  *                   any                   none            all   rw
";
        let rules: AccessRules = serde_json::from_value(answer).unwrap();
        assert_eq!(rules.text(Output::default()), expected);
        let nobody = "no rules: no initiator may use any target\n";
        assert_eq!(AccessRules(Vec::new()).text(Output::default()), nobody);
    }
}
