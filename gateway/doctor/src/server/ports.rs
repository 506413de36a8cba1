//! Checks of the addresses that the gateway listens on.

use crate::Verdict;
use crate::facts::{Holder, ServerFacts};

/// Checks that no other program uses them.
pub(super) fn ports(facts: &ServerFacts) -> Vec<Verdict> {
    let serving = facts.process.gateway.is_some();
    let show = facts.ports.iter().map(|port| {
        let (service, address) = (port.service, port.address);
        match &port.holder {
            Holder::Gateway => Verdict::ok(format!("{service} {address}: the gateway")),
            Holder::Nobody if serving => Verdict::warning(
                format!("{service} {address}: the running gateway does not listen there"),
                "the configuration was changed after it had started",
                "`systemctl restart zgate`",
            ),
            Holder::Nobody => Verdict::ok(format!("{service} {address}: free")),
            Holder::Process { pid, name } => Verdict::error(
                format!("{service} {address}: used by {name} (pid {pid})"),
                "the gateway cannot listen there and does not start",
                format!(
                    "stop it (`systemctl status {pid}` names its unit), or change the address in {}",
                    facts.config_path.display()
                ),
            ),
            Holder::Kernel if facts.nfsd_threads > 0 => Verdict::error(
                format!(
                    "{service} {address}: used by the kernel's NFS server (knfsd, {} threads)",
                    facts.nfsd_threads
                ),
                "the gateway cannot listen there and does not start; clients reach the kernel's \
                 exports instead",
                format!(
                    "`systemctl disable --now nfs-server` (without systemd: `rpc.nfsd 0`), or \
                     change listen in {}",
                    facts.config_path.display()
                ),
            ),
            Holder::Kernel => Verdict::error(
                format!("{service} {address}: used by the kernel"),
                "the gateway cannot listen there and does not start",
                format!(
                    "an in-kernel server has it (LIO: `targetcli ls`; DLM, NFS callbacks): stop \
                     it, or change the address in {}",
                    facts.config_path.display()
                ),
            ),
        }
    });
    show.collect()
}

/// Checks that rpcbind runs if NFSv3 is to be registered.
pub(super) fn rpcbind(facts: &ServerFacts) -> Vec<Verdict> {
    if !facts.config.server.rpcbind {
        return Vec::new();
    }
    vec![if facts.rpcbind_listens {
        Verdict::ok("rpcbind answers on this machine")
    } else {
        Verdict::warning(
            "rpcbind = true, but no program listens at port 111",
            "NFSv3 clients without a port option do not find the gateway",
            "`systemctl enable --now rpcbind`, then restart the gateway; or rpcbind = false",
        )
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};

    #[test]
    fn the_holder_of_a_port_is_named() {
        let mut facts = server();
        facts.process.gateway = None;
        facts.ports[0].holder = Holder::Kernel;
        facts.nfsd_threads = 8;
        let verdicts = ports(&facts);
        assert!(verdicts[0].what.contains("knfsd, 8 threads"), "{verdicts:?}");
        assert!(worst(&verdicts).1.contains("nfs-server"));
        facts.nfsd_threads = 0;
        assert!(worst(&ports(&facts)).1.contains("targetcli"));
        facts.ports[0].holder = Holder::Process { pid: 5, name: "ganesha.nfsd".into() };
        assert!(ports(&facts)[0].what.contains("ganesha.nfsd (pid 5)"));
        facts.ports[0].holder = Holder::Nobody;
        assert_eq!(worst(&ports(&facts)).0, Level::Ok);
        facts.process.gateway = Some(1);
        assert_eq!(worst(&ports(&facts)).0, Level::Warning);
    }

    #[test]
    fn rpcbind_counts_when_it_is_wanted() {
        let mut facts = server();
        assert!(rpcbind(&facts).is_empty());
        facts.config.server.rpcbind = true;
        assert_eq!(worst(&rpcbind(&facts)).0, Level::Warning);
        facts.rpcbind_listens = true;
        assert_eq!(worst(&rpcbind(&facts)).0, Level::Ok);
    }
}
