//! Audit lines of refused NFS and MOUNT calls.

use crate::observe::audit::refused;
use zgate_nfs::namespace::ExportId;
use zgate_nfs::runtime::Refused;
use zgate_nfs::v4::Server;
use zgate_nfs::{Call, Peer};

/// Reports the access that was refused during a call, if any.
pub(super) fn report(server: &Server, call: &Call) {
    let Some(Refused { export, reason }) = call.refused.take() else { return };
    let namespace = server.namespace();
    let export = export.and_then(|id| namespace.export(ExportId(id)));
    let export = export.map(|export| export.pseudo_path.as_str());
    let Peer { address, port, rdma, .. } = call.peer;
    refused!(Nfs, address, %address, port, rdma, export, reason, "NFS refused");
}

/// Reports a call whose host no export names.
pub(super) fn report_stranger(peer: &Peer) {
    let Peer { address, port, rdma, .. } = *peer;
    let reason = "no export names this host; add it to the `clients` of an export";
    refused!(Nfs, address, %address, port, rdma, reason, "NFS refused");
}
