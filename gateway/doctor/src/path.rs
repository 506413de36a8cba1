//! Checks of the network between server and clients.

use crate::facts::{HostPath, PathFacts, Probe};
use crate::{Check, Verdict};

/// All checks, in the order they are shown.
pub(crate) const CHECKS: &[Check<PathFacts>] =
    &[Check { name: "reachable", run: reachable }, Check { name: "mtu", run: mtu }];

fn each(facts: &PathFacts, judge: impl Fn(&HostPath) -> Option<Verdict>) -> Vec<Verdict> {
    facts.hosts.iter().filter_map(judge).collect()
}

/// Checks that the host answers.
fn reachable(facts: &PathFacts) -> Vec<Verdict> {
    each(facts, |path| {
        let host = &path.host;
        if let Some(problem) = &path.problem {
            return Some(Verdict::error(
                format!("{host}: {problem}"),
                "no packet can be sent there",
                format!("`ip route get {host}`, and the name in DNS or /etc/hosts"),
            ));
        }
        match &path.port {
            Some((port, Some(problem))) => Some(Verdict::error(
                format!("{host}: port {port} cannot be reached: {problem}"),
                "no process listens there, or a firewall blocks it",
                format!("on {host}: `ss -ltn`, `zgate doctor server`; open TCP port {port}"),
            )),
            Some((port, None)) => Some(Verdict::ok(format!("{host}: port {port} answers"))),
            None if path.probe == Probe::Silent && path.asked_for => Some(Verdict::warning(
                format!("{host}: no answer to ping"),
                "the host or the path is down, or a firewall drops ICMP: then neither TCP nor \
                 this check can determine the path MTU",
                format!("`ip neigh`, `tracepath {host}`; allow ICMP in the firewall"),
            )),
            None => None,
        }
    })
}

/// Checks that packets of the interface's MTU arrive.
fn mtu(facts: &PathFacts) -> Vec<Verdict> {
    each(facts, |path| {
        let (host, device, mtu) = (&path.host, &path.device, path.device_mtu);
        match &path.probe {
            Probe::Full => Some(Verdict::ok(format!("{host}: packets of {mtu} bytes arrive"))),
            Probe::Silent | Probe::NotTried(_) if !path.asked_for => None,
            Probe::Silent => None,
            Probe::NotTried(why) => Some(Verdict::ok(format!("{host}: MTU not tested: {why}"))),
            Probe::Told { mtu: told } => Some(Verdict::warning(
                format!("{host}: {device} sends packets of {mtu} bytes, the path accepts {told}"),
                "TCP detects this and sends smaller ones; RDMA does not",
                fix(path, *told),
            )),
            Probe::Vanish { largest } => Some(Verdict::error(
                format!(
                    "{host}: MTU mismatch: {device} sends packets of {mtu} bytes, those above \
                     {largest} are dropped on the path"
                ),
                "no hop reports that they are too large: mounts and logins work, then transfers \
                 hang",
                fix(path, *largest),
            )),
        }
    })
}

fn fix(path: &HostPath, takes: u64) -> String {
    format!(
        "set {0} at the other end and at every switch between (`ip link set dev INTERFACE mtu \
         {0}`), or here: `ip link set dev {1} mtu {takes}`",
        path.device_mtu, path.device
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finding, Group, Level, examine};

    fn found(probe: Probe, asked_for: bool) -> Vec<Finding> {
        let host = HostPath {
            host: "10.9.0.2".into(),
            asked_for,
            address: None,
            problem: None,
            device: "eth1".into(),
            device_mtu: 9000,
            probe,
            port: None,
        };
        examine(Group::Path, CHECKS, &PathFacts { hosts: vec![host] })
    }

    #[test]
    fn packets_that_vanish_are_an_error() {
        let found_ = found(Probe::Vanish { largest: 1500 }, false);
        assert_eq!((found_[0].check, found_[0].level), ("mtu", Level::Error));
        assert!(found_[0].fix.contains("ip link set dev eth1 mtu 1500"), "{found_:?}");
        assert_eq!(found(Probe::Told { mtu: 1500 }, false)[0].level, Level::Warning);
        assert_eq!(found(Probe::Full, false)[0].level, Level::Ok);
    }

    #[test]
    fn silence_matters_for_those_that_were_named() {
        assert!(found(Probe::Silent, false).is_empty());
        let asked = found(Probe::Silent, true);
        assert_eq!((asked[0].check, asked[0].level), ("reachable", Level::Warning));
    }

    #[test]
    fn a_port_that_is_shut() {
        let mut facts = PathFacts::default();
        facts.hosts.push(HostPath {
            host: "nas".into(),
            asked_for: true,
            address: None,
            problem: None,
            device: "eth1".into(),
            device_mtu: 1500,
            probe: Probe::Full,
            port: Some((2049, Some("Connection refused".into()))),
        });
        let found = examine(Group::Path, CHECKS, &facts);
        assert_eq!(found[0].level, Level::Error);
        facts.hosts[0].port = None;
        facts.hosts[0].problem = Some("no such name".into());
        assert_eq!(examine(Group::Path, CHECKS, &facts)[0].level, Level::Error);
    }
}
