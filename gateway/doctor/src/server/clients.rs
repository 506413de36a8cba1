//! Checks of the running gateway's clients.

use crate::Verdict;
use crate::facts::ServerFacts;

/// Checks that no absent client holds files open.
pub(super) fn stale(facts: &ServerFacts) -> Vec<Verdict> {
    let Some(clients) = &facts.clients else { return Vec::new() };
    let stale: Vec<_> = clients.iter().filter(|client| client.courtesy).collect();
    if stale.is_empty() {
        return vec![Verdict::ok(format!("{} NFSv4 clients, all alive", clients.len()))];
    }
    let show = stale.into_iter().map(|client| {
        Verdict::warning(
            format!(
                "client {} at {} has been silent for {} s, longer than its lease; it holds {} \
                 opens and {} locks",
                client.name, client.address, client.idle_seconds, client.opens, client.locks
            ),
            "it crashed, or its network is down. Its state does not stand in the way of others: it \
             goes as soon as another client or a new open needs it, or after a day",
            format!(
                "bring {} back or unmount there (`umount -f`); otherwise nothing needs to be done",
                client.address.rsplit_once(':').map_or(client.address.as_str(), |(host, _)| host)
            ),
        )
    });
    show.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::facts::ClientFacts;
    use crate::server::sound::{server, worst};

    #[test]
    fn a_silent_client_is_named() {
        let mut facts = server();
        let client = ClientFacts {
            name: "Linux NFSv4.2 b".into(),
            address: "10.9.0.2:744".into(),
            idle_seconds: 200,
            courtesy: false,
            opens: 1,
            locks: 0,
        };
        facts.clients = Some(vec![client]);
        assert_eq!(worst(&stale(&facts)).0, Level::Ok);
        if let Some(clients) = &mut facts.clients {
            clients[0].courtesy = true;
        }
        let (level, fix) = worst(&stale(&facts));
        assert_eq!(level, Level::Warning);
        assert!(fix.starts_with("bring 10.9.0.2 back"), "{fix}");
        // All other clients would wait for the grace period.
        assert!(!fix.contains("restart"), "{fix}");
        facts.clients = None;
        assert!(stale(&facts).is_empty());
    }
}
