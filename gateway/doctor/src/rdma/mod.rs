//! Checks of RDMA devices: function, and limits of their speed.

pub(crate) mod link;
mod network;
mod ports;
mod speed;

use crate::facts::RdmaFacts;
use crate::{Check, Verdict};

/// All checks, in the order they are shown.
pub(crate) const CHECKS: &[Check<RdmaFacts>] = &[
    Check { name: "rdma-library", run: library },
    Check { name: "rdma-device", run: device },
    Check { name: "rdma-served", run: served },
    Check { name: "rdma-port", run: ports::port },
    Check { name: "rdma-gid", run: ports::gid },
    Check { name: "rdma-address", run: ports::address },
    Check { name: "rdma-memlock", run: memlock },
    Check { name: "rdma-caps", run: caps },
    Check { name: "rdma-mtu", run: network::mtu },
    Check { name: "rdma-lossless", run: network::lossless },
    Check { name: "rdma-errors", run: network::errors },
    Check { name: "rdma-pcie", run: speed::pcie },
    Check { name: "rdma-speed", run: speed::limit },
];

/// Returns whether the configuration uses RDMA on real devices.
fn is_wanted(facts: &RdmaFacts) -> bool {
    !facts.listen.is_empty()
}

/// Checks that rdma-core is installed.
fn library(facts: &RdmaFacts) -> Vec<Verdict> {
    let Some(problem) = &facts.library_problem else { return Vec::new() };
    let fix = "apt-get install librdmacm1 ibverbs-providers rdma-core; `modprobe rdma_ucm`";
    let verdict = if is_wanted(facts) {
        Verdict::error(problem, "RDMA clients are not served; TCP clients are", fix)
    } else if facts.devices.is_empty() {
        return Vec::new();
    } else {
        Verdict::warning(problem, "there is an RDMA device, but nothing can use it", fix)
    };
    vec![verdict]
}

/// Checks that there is a device, and that it is hardware.
fn device(facts: &RdmaFacts) -> Vec<Verdict> {
    if facts.devices.is_empty() {
        if !is_wanted(facts) {
            return Vec::new();
        }
        return vec![Verdict::error(
            "no RDMA device",
            "rdma.listen is set: RDMA clients are not served; TCP clients are",
            "`rdma link`, `lspci -d ::0200`, `dmesg | grep -i -e mlx5 -e irdma -e bnxt_re`",
        )];
    }
    let judge = |device: &crate::facts::RdmaDevice| {
        let what = format!("{}: {}", device.name, device.description());
        if device.is_software() {
            Verdict::warning(
                what,
                "a software device copies every byte and occupies a core for few Gb/s: good for \
                 tests, slower than TCP",
                format!(
                    "serve TCP here, or use a network card with RoCE; `rdma link del {}`",
                    device.name
                ),
            )
        } else {
            Verdict::ok(what)
        }
    };
    facts.devices.iter().map(judge).collect()
}

/// Checks that the running gateway listens at all its RDMA addresses.
fn served(facts: &RdmaFacts) -> Vec<Verdict> {
    let Some(away) = facts.not_served.as_ref().filter(|_| is_wanted(facts)) else {
        return Vec::new();
    };
    if away.is_empty() {
        return vec![Verdict::ok("the running gateway serves RDMA")];
    }
    let judge = |what: &String| {
        Verdict::error(
            format!("the running gateway does not serve RDMA: {what}"),
            "clients there are served over TCP; the gateway retries every few seconds",
            "`rdma link`, `ip link`, the address; no restart is needed",
        )
    };
    away.iter().map(judge).collect()
}

/// Checks that the arena can be pinned.
fn memlock(facts: &RdmaFacts) -> Vec<Verdict> {
    if !is_wanted(facts) || facts.devices.is_empty() {
        return Vec::new();
    }
    let needed = facts.arena_bytes + facts.arena_bytes / 8;
    match facts.locked_memory_bytes {
        Some(limit) if limit < needed => vec![Verdict::error(
            format!(
                "{} may pin {} MiB of memory, the arena and its queues need {} MiB",
                facts.whose,
                limit >> 20,
                needed >> 20
            ),
            "the arena cannot be registered: RDMA clients are not served",
            "LimitMEMLOCK=infinity in the unit, `ulimit -l unlimited`, CAP_IPC_LOCK, or a smaller \
             rdma.arena",
        )],
        _ => {
            vec![Verdict::ok(format!("an arena of {} MiB may be pinned", facts.arena_bytes >> 20))]
        }
    }
}

/// Checks abilities of devices that the protocols benefit from.
fn caps(facts: &RdmaFacts) -> Vec<Verdict> {
    let judge = |device: &crate::facts::RdmaDevice| {
        (device.can_invalidate == Some(false)).then(|| {
            Verdict::warning(
                format!("{}: no Send with Invalidate", device.name),
                "clients must invalidate each registration themselves",
                "another device or firmware; data is not affected",
            )
        })
    };
    facts.devices.iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::RdmaDevice;
    use crate::gather::rdma::fixtures;
    use crate::{Finding, Group, Level, examine};

    fn found(facts: &RdmaFacts) -> Vec<Finding> {
        examine(Group::Rdma, CHECKS, facts)
    }

    fn of<'a>(found: &'a [Finding], check: &str) -> Vec<&'a Finding> {
        found.iter().filter(|finding| finding.check == check).collect()
    }

    #[test]
    fn nothing_is_said_of_a_machine_that_has_and_wants_none() {
        let none = RdmaFacts {
            library_problem: Some("librdmacm.so.1 is missing".into()),
            ..RdmaFacts::default()
        };
        assert!(found(&none).is_empty());
        let wanted = RdmaFacts { listen: vec!["0.0.0.0:20049".parse().unwrap()], ..none };
        let found = found(&wanted);
        let errors: Vec<_> = found.iter().map(|one| (one.check, one.level)).collect();
        assert_eq!(errors, [("rdma-library", Level::Error), ("rdma-device", Level::Error)]);
    }

    #[test]
    fn a_good_machine_has_no_complaints_and_says_what_limits() {
        let facts = fixtures::good();
        let found = found(&facts);
        let bad: Vec<_> = found.iter().filter(|one| one.level != Level::Ok).collect();
        assert!(bad.is_empty(), "{bad:?}");
        let speed = of(&found, "rdma-speed");
        assert!(speed[0].what.contains("limited by the link"), "{speed:?}");
        assert!(speed[0].what.contains("12.3 GB/s"), "{speed:?}");
    }

    #[test]
    fn each_fault_is_found() {
        let found = found(&fixtures::faulty());
        for (check, level, word) in [
            ("rdma-port", Level::Warning, "DOWN"),
            ("rdma-gid", Level::Error, "no RoCE v2"),
            ("rdma-address", Level::Error, "192.0.2.9"),
            ("rdma-memlock", Level::Error, "64 MiB"),
            ("rdma-mtu", Level::Warning, "1500"),
            ("rdma-lossless", Level::Warning, "no priority"),
            ("rdma-errors", Level::Warning, "out_of_sequence"),
            ("rdma-pcie", Level::Warning, "x4"),
        ] {
            let of = of(&found, check);
            assert!(
                of.iter().any(|one| one.level == level && one.what.contains(word)),
                "{check}: {of:?}"
            );
        }
    }

    #[test]
    fn what_the_gateway_does_not_serve_is_told() {
        let served = |not_served| RdmaFacts { not_served, ..fixtures::good() };
        let said = |facts: &RdmaFacts| {
            of(&found(facts), "rdma-served").iter().map(|one| one.level).collect::<Vec<_>>()
        };
        assert!(said(&served(None)).is_empty());
        assert_eq!(said(&served(Some(Vec::new()))), [Level::Ok]);
        let away = served(Some(vec!["10.9.0.1:20049 (nfs): no such device".into()]));
        assert_eq!(said(&away), [Level::Error]);
    }

    #[test]
    fn a_machine_without_a_link_serves_nobody() {
        let mut facts = fixtures::good();
        facts.devices[0].ports[0].state = "DOWN".into();
        let found = found(&facts);
        assert_eq!(of(&found, "rdma-port")[0].level, Level::Error);
        assert!(of(&found, "rdma-speed").is_empty());
    }

    #[test]
    fn software_devices_are_for_tests() {
        let rxe = RdmaDevice { driver: "rdma_rxe".into(), ..RdmaDevice::named("rxe0") };
        let facts = RdmaFacts { devices: vec![rxe], ..RdmaFacts::default() };
        let found = found(&facts);
        assert_eq!(of(&found, "rdma-device")[0].level, Level::Warning);
        assert!(of(&found, "rdma-lossless").is_empty());
    }
}
