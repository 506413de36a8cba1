//! The screen of `zgate sessions`.

use super::units::duration;
use super::{Column, Output, table};
use serde::Deserialize;

/// Answer of a gateway to `zgate sessions`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Sessions(Vec<Session>);

#[derive(Debug, Deserialize)]
struct Session {
    tsih: u16,
    initiator: String,
    target: Option<String>,
    authenticated_as: Option<String>,
    error_recovery_level: u32,
    header_digest: bool,
    data_digest: bool,
    tasks: usize,
    running: usize,
    age_seconds: u64,
    luns: Vec<u16>,
    connections: Vec<Connection>,
}

#[derive(Debug, Deserialize)]
struct Connection {
    peer: String,
    core: usize,
}

impl Sessions {
    /// Returns a table of sessions.
    pub(crate) fn text(&self, output: Output) -> String {
        use Column::{Left, Right};
        if self.0.is_empty() {
            return "no initiators are logged in\n".to_owned();
        }
        let columns = [
            Left("INITIATOR"),
            Left("TARGET"),
            Right("TSIH"),
            Left("LUNS"),
            Left("CHAP USER"),
            Right("RECOVERY"),
            Left("DIGESTS"),
            Right("TASKS"),
            Right("RUNNING"),
            Right("AGE"),
            Left("CONNECTIONS"),
        ];
        let rows = self.0.iter().map(|session| {
            let luns: Vec<_> = session.luns.iter().map(ToString::to_string).collect();
            vec![
                session.initiator.clone().into(),
                session.target.as_deref().unwrap_or("discovery").into(),
                session.tsih.to_string().into(),
                if luns.is_empty() { "-".to_owned() } else { luns.join(" ") }.into(),
                session.authenticated_as.as_deref().unwrap_or("-").into(),
                session.error_recovery_level.to_string().into(),
                session.digests().into(),
                session.tasks.to_string().into(),
                session.running.to_string().into(),
                duration(session.age_seconds).into(),
                session
                    .connections
                    .iter()
                    .map(Connection::text)
                    .collect::<Vec<_>>()
                    .join(", ")
                    .into(),
            ]
        });
        table(output, &columns, rows.collect())
    }
}

impl Session {
    fn digests(&self) -> &'static str {
        match (self.header_digest, self.data_digest) {
            (false, false) => "none",
            (true, false) => "header",
            (false, true) => "data",
            (true, true) => "header data",
        }
    }
}

impl Connection {
    fn text(&self) -> String {
        format!("{} (core {})", self.peer, self.core)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sessions_are_a_table() {
        let answer = json!([{
            "tsih": 7, "initiator": "iqn.2026-11.test:host", "isid": "1", "target": null,
            "portal_group": 1, "authenticated_as": "joe", "error_recovery_level": 2,
            "header_digest": true, "data_digest": false, "tasks": 3, "running": 2,
            "age_seconds": 125, "luns": [0, 3],
            "connections": [
                { "cid": 1, "peer": "10.0.0.9:40000", "core": 0 },
                { "cid": null, "peer": "10.0.0.9:40001", "core": 1 },
            ],
        }]);
        let expected = "\
INITIATOR              TARGET     TSIH  LUNS  CHAP USER  RECOVERY  DIGESTS  TASKS  RUNNING        AGE  CONNECTIONS
iqn.2026-11.test:host  discovery     7  0 3   joe               2  header       3        2  2 min 5 s  10.0.0.9:40000 (core 0), 10.0.0.9:40001 (core 1)
";
        let sessions: Sessions = serde_json::from_value(answer).unwrap();
        assert_eq!(sessions.text(Output::default()), expected);
        assert_eq!(Sessions(Vec::new()).text(Output::default()), "no initiators are logged in\n");
    }
}
