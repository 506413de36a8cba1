//! The screen of `zgate clients`.

use super::units::duration;
use super::{Column, Output, Text, Tone, table};
use serde::Deserialize;

/// Explanation of expired clients.
const EXPIRED: &str = "\
Expired clients have been silent for longer than the lease. What one holds is kept until another
client needs it, for a day at most; one that holds nothing is forgotten after eight leases.
";

/// Answer of a gateway to `zgate clients`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Clients(Vec<Client>);

#[derive(Debug, Deserialize)]
struct Client {
    id: String,
    name: String,
    address: String,
    implementation: String,
    minor: u8,
    idle_seconds: u64,
    courtesy: bool,
    sessions: usize,
    opens: usize,
    locks: usize,
    delegations: usize,
}

impl Clients {
    /// Returns a table of clients with what each holds; expired ones are marked
    /// and explained.
    pub(crate) fn text(&self, output: Output) -> String {
        use Column::{Left, Right};
        if self.0.is_empty() {
            return "no NFSv4 clients\n".to_owned();
        }
        let columns = [
            Left("CLIENT"),
            Left("NAME"),
            Left("NFS"),
            Left("STATE"),
            Right("IDLE"),
            Right("SESSIONS"),
            Right("OPENS"),
            Right("LOCKS"),
            Right("DELEGATIONS"),
            Left("IMPLEMENTATION"),
            Left("ID"),
        ];
        let rows = self.0.iter().map(|client| {
            vec![
                client.address.clone().into(),
                client.name.clone().into(),
                if client.minor == 0 { "4.0" } else { "4.1+" }.into(),
                client.state(),
                duration(client.idle_seconds).into(),
                client.sessions.to_string().into(),
                client.opens.to_string().into(),
                client.locks.to_string().into(),
                client.delegations.to_string().into(),
                if client.implementation.is_empty() { "-" } else { &client.implementation }.into(),
                client.id.clone().into(),
            ]
        });
        let mut text = table(output, &columns, rows.collect());
        if self.0.iter().any(|client| client.courtesy) {
            text += &format!("\n{EXPIRED}");
        }
        text
    }
}

impl Client {
    fn state(&self) -> Text {
        match self.courtesy {
            true => Text(Tone::Warning, "expired".to_owned()),
            false => "active".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn client(address: &str, idle_seconds: u64, courtesy: bool) -> serde_json::Value {
        json!({
            "id": "00000001deadbeef", "name": "gpu05", "address": address, "implementation": "",
            "minor": 1, "idle_seconds": idle_seconds, "courtesy": courtesy, "sessions": 1,
            "opens": 3, "locks": 0, "delegations": 2,
        })
    }

    fn screen(clients: Vec<serde_json::Value>) -> String {
        serde_json::from_value::<Clients>(clients.into()).unwrap().text(Output::default())
    }

    #[test]
    fn an_expired_client_is_marked_and_explained() {
        let active = client("10.0.0.5", 2, false);
        let expected = "\
CLIENT    NAME   NFS   STATE   IDLE  SESSIONS  OPENS  LOCKS  DELEGATIONS  IMPLEMENTATION  ID
10.0.0.5  gpu05  4.1+  active   2 s         1      3      0            2  -               00000001deadbeef
";
        assert_eq!(screen(vec![active.clone()]), expected);
        let expected = "\
CLIENT    NAME   NFS   STATE          IDLE  SESSIONS  OPENS  LOCKS  DELEGATIONS  IMPLEMENTATION  ID
10.0.0.5  gpu05  4.1+  active          2 s         1      3      0            2  -               00000001deadbeef
10.0.0.6  gpu05  4.1+  expired  40 min 0 s         1      3      0            2  -               00000001deadbeef

Expired clients have been silent for longer than the lease. What one holds is kept until another
client needs it, for a day at most; one that holds nothing is forgotten after eight leases.
";
        assert_eq!(screen(vec![active, client("10.0.0.6", 2400, true)]), expected);
        assert_eq!(screen(Vec::new()), "no NFSv4 clients\n");
    }
}
