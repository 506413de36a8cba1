//! The part of the gateway that volumes need: what is served, and to whom.

use crate::exports::granted::ParentPlan;
use crate::server::reconcile::Reconciler;
use crate::server::run::Gateway;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
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
    /// The reason for which everything stays as it was.
    fn apply(&self) -> io::Result<()>;
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
    /// Tells initiators the new size of a target's disk.
    ///
    /// # Errors
    /// The reason for which it cannot be read.
    fn resized(&self, target: &str) -> io::Result<()>;
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
    asked: AtomicU64,
    /// Number of the last request whose change is in effect.
    applied: Mutex<u64>,
}

impl LiveServing {
    pub(crate) fn new(gateway: &Arc<Gateway>, reconciler: &Arc<Reconciler>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            reconciler: Arc::clone(reconciler),
            asked: AtomicU64::new(0),
            applied: Mutex::new(0),
        }
    }
}

impl Serving for LiveServing {
    fn parents(&self) -> Vec<ParentPlan> {
        self.reconciler.state().plan.parents().to_vec()
    }

    /// One search is enough for all requests that waited for the one before.
    fn apply(&self) -> io::Result<()> {
        let mine = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        if *applied >= mine {
            return Ok(());
        }
        let covers = self.asked.load(Ordering::Acquire);
        self.reconciler.scan(&self.gateway)?;
        *applied = covers;
        Ok(())
    }

    fn exports_to(&self, pseudo_path: &str, address: IpAddr) -> bool {
        let namespace = self.gateway.shared.nfs.v4.namespace();
        let found = namespace.exports().find(|export| export.pseudo_path == pseudo_path);
        found.is_some_and(|export| export.names_host(address))
    }

    fn has_device(&self, dataset: &DatasetName) -> bool {
        std::path::Path::new("/dev/zvol").join(dataset.as_str()).exists()
    }

    fn holders(&self, pseudo_path: &str) -> Vec<String> {
        let nfs = &self.gateway.shared.nfs;
        let namespace = nfs.v4.namespace();
        let found = namespace.exports().find(|export| export.pseudo_path == pseudo_path);
        let Some(export) = found else { return Vec::new() };
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

    fn resized(&self, target: &str) -> io::Result<()> {
        let lun = crate::iscsi::granted::LUN;
        self.gateway.shared.iscsi.resize_lun(target, lun, None).map(drop)
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
