//! Mounts over NFS: RDMA first where the node has it, TCP if that fails.

use super::Node;
use super::host::{Host, HostError};
use super::mount::{Server, make_way, mounted_at, ours, text};
use super::record::Record;
use crate::limits::{MOUNT_SECONDS, PROBE_SECONDS};
use crate::publication::{NodePortal, Publication};
use tonic::Status;
use zgate_api::Transport;

/// Options of every mount. `hard`: a write that was acknowledged to a program is
/// not lost while the gateway is away. `retry=0`: one attempt, the bound is ours.
const OPTIONS: &str = "hard,noatime,retry=0";

pub(super) async fn mount(
    node: &Node,
    publication: &Publication,
    path: &str,
    record: &Record,
    flags: &[String],
) -> Result<(), Status> {
    let host = &*node.host;
    if is_mounted(host, publication, path, record).await? {
        return Ok(());
    }
    let staging = &record.staging;
    let staging_text = text(staging)?;
    let mut reasons = Vec::new();
    for portal in attempts(node, publication) {
        let source = source(portal, path);
        let options = options(portal, publication.read_only, flags);
        let arguments = ["-t", "nfs4", "-o", &options, &source, staging_text];
        match host.run("mount", &arguments, MOUNT_SECONDS).await {
            Ok(_) => return Ok(()),
            Err(error) => {
                tracing::warn!(%source, %options, %error, "not mounted");
                reasons.push(error.to_string());
            }
        }
        // A mount that was too late for us may have come through.
        super::mount::unmount(host, staging).await?;
    }
    Err(ours("not mounted", &reasons.join("; ")))
}

/// Returns whether the volume is mounted already. Another mount, and one whose server does
/// not know it any more, makes way; one whose server does not answer goes on when it is
/// back.
async fn is_mounted(
    host: &dyn Host,
    publication: &Publication,
    path: &str,
    record: &Record,
) -> Result<bool, Status> {
    let Some(mount) = mounted_at(host, &record.staging)? else { return Ok(false) };
    let is_its = |portal: &NodePortal| source(portal, path).as_bytes() == mount.source;
    let why = if publication.portals.iter().any(is_its) {
        let answered = host.run("stat", &["-f", text(&record.staging)?], PROBE_SECONDS).await;
        match answered {
            Ok(_) => return Ok(true),
            Err(error @ HostError::TimedOut { .. }) => {
                return Err(ours("the server of the mount does not answer", &error));
            }
            Err(error) if !error.has_run() => {
                return Err(ours("the server of the mount was not asked", &error));
            }
            Err(error) => format!("the mount does not answer: {error}"),
        }
    } else {
        format!("{} is mounted", String::from_utf8_lossy(&mount.source))
    };
    make_way(host, record, Server::Files, &why).await?;
    Ok(false)
}

/// Source of a mount, as the table of mounts has it.
fn source(portal: &NodePortal, path: &str) -> String {
    format!("{}:{path}", portal.bracketed_host())
}

/// Portals in the order in which they are tried.
fn attempts<'a>(node: &Node, publication: &'a Publication) -> Vec<&'a NodePortal> {
    node.transports.iter().flat_map(|one: &Transport| publication.portals(*one)).collect()
}

fn options(portal: &NodePortal, read_only: bool, flags: &[String]) -> String {
    let mut options = vec![OPTIONS.to_owned()];
    if !flags.iter().any(|flag| flag.contains("vers=")) {
        options.push("vers=4.2".to_owned());
    }
    let is_v6 = portal.host.contains(':');
    let protocol = match (portal.transport, is_v6) {
        (Transport::Tcp, false) => "tcp",
        (Transport::Tcp, true) => "tcp6",
        (Transport::Rdma, false) => "rdma",
        (Transport::Rdma, true) => "rdma6",
    };
    options.push(format!("proto={protocol},port={}", portal.port));
    if read_only {
        options.push("ro".to_owned());
    }
    options.extend(flags.iter().cloned());
    options.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_transport_and_port() {
        let portal =
            |host: &str, transport| NodePortal { transport, host: host.to_owned(), port: 20049 };
        let rdma = options(&portal("fd00::1", Transport::Rdma), true, &["nconnect=4".to_owned()]);
        assert_eq!(rdma, "hard,noatime,retry=0,vers=4.2,proto=rdma6,port=20049,ro,nconnect=4");
        let older = options(&portal("nas", Transport::Tcp), false, &["nfsvers=4.1".to_owned()]);
        assert_eq!(older, "hard,noatime,retry=0,proto=tcp,port=20049,nfsvers=4.1");
    }
}
