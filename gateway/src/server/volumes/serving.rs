//! The part of the gateway that volumes need: what is served, and to whom.

use crate::exports::granted::ParentPlan;
use crate::server::reconcile::Reconciler;
use crate::server::run::Gateway;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_api::Transport;
use zgate_api::access::Portal;
use zgate_control::DatasetName;
use zgate_control::volume::VolumeKind;
use zgate_nfs::runtime::Runtime;

/// Services of the gateway that volumes need.
pub(crate) trait Serving: Send + Sync {
    /// Parents of volumes in the configuration in effect.
    fn parents(&self) -> Vec<ParentPlan>;
    /// Puts into effect what the datasets say now.
    ///
    /// # Errors
    /// The reason for which everything stays as it was, or what the pool of `changed` has.
    fn apply(&self, changed: &DatasetName) -> io::Result<()>;
    /// Returns whether an export is open to a host.
    fn exports_to(&self, pseudo_path: &str, address: IpAddr) -> bool;
    /// Returns whether a zvol has its device, which appears a moment after it.
    fn has_device(&self, dataset: &DatasetName) -> bool;
    /// Names NFSv4 clients that have files of an export open.
    fn holders(&self, pseudo_path: &str) -> Vec<String>;
    /// Returns whether a target is served.
    fn serves(&self, target: &str) -> bool;
    /// Returns the identifier of a target's disk if the target admits the
    /// initiator.
    fn served_to(&self, target: &str, initiator: &str) -> Option<String>;
    /// Names initiators that are logged in to a target.
    fn logged_in(&self, target: &str) -> Vec<String>;
    /// Returns whether no command of a session that has ended runs on a target's disk any more.
    fn is_settled(&self, target: &str) -> bool;
    /// Returns whether no request that was admitted by earlier rules of an export runs any more.
    fn is_export_settled(&self, pseudo_path: &str) -> bool;
    /// Tells initiators the new size of a target's disk. What they discarded earlier
    /// counts as content again.
    ///
    /// # Errors
    /// The reason for which it cannot be read.
    fn resized(&self, target: &str) -> io::Result<()>;
    /// Tells NFS clients that the content of a dataset may have been replaced: they write again
    /// what they have not committed, and return delegations.
    fn content_replaced(&self, dataset: &DatasetName);
    /// Closes objects of exported directories that no client has open: a dataset
    /// inside of such a directory is busy otherwise.
    fn release(&self);
    /// Brings acknowledged writes to the pool.
    ///
    /// # Errors
    /// The logical unit that cannot be flushed.
    fn flush(&self, dataset: &DatasetName) -> io::Result<()>;
    /// Addresses of NFS or iSCSI.
    fn portals(&self, kind: VolumeKind) -> Vec<Portal>;
}

/// The running gateway.
pub(crate) struct LiveServing {
    gateway: Arc<Gateway>,
    reconciler: Arc<Reconciler>,
}

impl LiveServing {
    pub(crate) fn new(gateway: &Arc<Gateway>, reconciler: &Arc<Reconciler>) -> Self {
        Self { gateway: Arc::clone(gateway), reconciler: Arc::clone(reconciler) }
    }
}

impl Serving for LiveServing {
    fn parents(&self) -> Vec<ParentPlan> {
        self.reconciler.state().plan.parents().to_vec()
    }

    fn apply(&self, changed: &DatasetName) -> io::Result<()> {
        let scanned = self.reconciler.scan_but_zvols(&self.gateway)?;
        // A pool that is late is served as it was: access that was withdrawn there goes on.
        scanned.require(&changed.pool())
    }

    fn exports_to(&self, pseudo_path: &str, address: IpAddr) -> bool {
        let namespace = self.gateway.shared.nfs.v4.namespace();
        namespace.export_at(pseudo_path).is_some_and(|export| export.names_host(address))
    }

    fn has_device(&self, dataset: &DatasetName) -> bool {
        dataset.device().exists()
    }

    fn holders(&self, pseudo_path: &str) -> Vec<String> {
        let nfs = &self.gateway.shared.nfs;
        let namespace = nfs.v4.namespace();
        let Some(export) = namespace.export_at(pseudo_path) else { return Vec::new() };
        let holders = nfs.v4.holders(&BTreeSet::from([export.id]), nfs.runtime.now().seconds());
        holders.into_iter().map(|holder| format!("client at {}", holder.address)).collect()
    }

    fn serves(&self, target: &str) -> bool {
        self.gateway.shared.iscsi.serves(target)
    }

    fn served_to(&self, target: &str, initiator: &str) -> Option<String> {
        self.gateway.shared.iscsi.served_to(target, initiator)
    }

    fn logged_in(&self, target: &str) -> Vec<String> {
        self.gateway.shared.iscsi.logged_in(target)
    }

    fn is_settled(&self, target: &str) -> bool {
        self.gateway.shared.iscsi.is_settled(target)
    }

    fn is_export_settled(&self, pseudo_path: &str) -> bool {
        !self.gateway.shared.nfs.v4.is_used_as_before(pseudo_path)
    }

    fn resized(&self, target: &str) -> io::Result<()> {
        let lun = crate::iscsi::granted::LUN;
        self.gateway.shared.iscsi.resize_lun(target, lun, None).map(drop)
    }

    fn content_replaced(&self, dataset: &DatasetName) {
        self.gateway.content_replaced(std::slice::from_ref(dataset));
    }

    fn release(&self) {
        self.gateway.release_paths();
    }

    fn flush(&self, dataset: &DatasetName) -> io::Result<()> {
        self.gateway.shared.iscsi.flush_volumes(std::slice::from_ref(dataset)).map(drop)
    }

    fn portals(&self, kind: VolumeKind) -> Vec<Portal> {
        let shared = &self.gateway.shared;
        match kind {
            VolumeKind::Filesystem => {
                let tcp = shared.nfs_addresses.get().into_iter().flatten();
                let tcp = tcp.map(|&address| Portal { address, transport: Transport::Tcp });
                let rdma = self.gateway.rdma_addresses.iter();
                let rdma = rdma.map(|&address| Portal { address, transport: Transport::Rdma });
                tcp.chain(rdma).collect()
            }
            VolumeKind::Block => {
                let portals = shared.iscsi.portals().iter();
                let transport = |iser| if iser { Transport::Rdma } else { Transport::Tcp };
                portals
                    .map(|portal| Portal {
                        address: portal.address,
                        transport: transport(
                            portal.transport == zgate_iscsi::login::Transport::Iser,
                        ),
                    })
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::tcp::tests::gateway_with;
    use crate::server::volumes::VolumeService;
    use crate::server::volumes::tests::{PARENT, asked};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use zgate_api::ErrorCode;
    use zgate_control::volume::model::Model;
    use zgate_control::volume::{self, Grant};
    use zgate_control::{Discovery, Tool, ToolError};

    /// A pool that may not list its datasets in time; its other commands run.
    struct LateLists {
        model: Model,
        is_late: AtomicBool,
    }

    impl Tool for LateLists {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            if self.is_late.load(Ordering::Relaxed) && arguments.contains(&"-r") {
                return Err(ToolError::TimedOut { command: "zfs list".to_owned(), seconds: 2 });
            }
            self.model.run(program, arguments)
        }
    }

    #[test]
    fn access_that_goes_on_because_the_pool_is_late_is_not_said_to_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = Arc::new(gateway_with(dir.path(), ""));
        let model = Model::with(&["tank", PARENT]);
        let tool = Arc::new(LateLists { model, is_late: AtomicBool::new(false) });
        let discovery = || Discovery::new(Arc::<LateLists>::clone(&tool));
        let follow = Reconciler::with(discovery(), discovery());
        let text = format!("[[volumes.parent]]\ndataset = \"{PARENT}\"\npseudo = \"/k8s\"\n");
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        follow.adopt(follow.prepare(&config).unwrap());
        let serving = Arc::new(LiveServing::new(&gateway, &follow));
        let service =
            VolumeService::new(Arc::<LateLists>::clone(&tool), Arc::<LiveServing>::clone(&serving));
        service.create(&asked("a", zgate_api::VolumeKind::Filesystem)).unwrap();
        let id: DatasetName = format!("{PARENT}/a").parse().unwrap();
        let made = volume::read(&*tool, &id).unwrap().unwrap();
        let grant = Grant {
            node: "n1".to_owned(),
            addresses: vec![IpAddr::from([10, 0, 0, 1])],
            initiator: None,
            read_only: false,
        };
        volume::grant(&*tool, &made, &grant).unwrap();
        serving.apply(&id).unwrap();
        let is_served = || gateway.export_paths().contains(Path::new("/tank/k8s/a"));
        assert!(is_served());
        tool.is_late.store(true, Ordering::Relaxed);
        // The second request finds the grant gone.
        for _ in 0..2 {
            let error = service.withdraw(id.as_str(), "n1", "csi").unwrap_err();
            assert!(error.code == ErrorCode::Storage && error.message.contains("tank"), "{error}");
            assert!(is_served());
        }
        serving.apply(&"other/k8s/a".parse().unwrap()).unwrap();
        tool.is_late.store(false, Ordering::Relaxed);
        service.withdraw(id.as_str(), "n1", "csi").unwrap();
        assert!(!is_served());
    }
}
