//! SECINFO (RFC 8881 §18.29).

use super::lookup::{lookup_pseudo, require_directory};
use super::{Rule, names};
use crate::namespace::Export;
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::op::Secinfo;
use zgate_nfs_wire::v4::op::secinfo::Res;
use zgate_nfs_wire::v4::{Component, Status};
use zgate_rpc::auth::{AUTH_NONE, AUTH_SYS};

/// Flavours of the export that contains `current`.
pub(super) fn flavors(cx: &Cx<'_>, current: &Current) -> Res {
    let both = vec![AUTH_SYS, AUTH_NONE];
    let Current::Node { export, .. } = current else { return Res { flavors: both } };
    Res { flavors: accepted(cx, export) }
}

/// Flavours that an export accepts from the caller over this connection: none if
/// the export requires TLS and the connection has none.
fn accepted(cx: &Cx<'_>, export: &Export) -> Vec<u32> {
    let peer = &cx.call.peer;
    let rule = export.clients.iter().find(|rule| rule.matches(peer.address));
    let Some(rule) = rule.filter(|rule| peer.protection >= rule.protection) else {
        return Vec::new();
    };
    let flavors = [(AUTH_SYS, rule.sys), (AUTH_NONE, rule.none)];
    flavors.into_iter().filter_map(|(flavor, accepted)| accepted.then_some(flavor)).collect()
}

impl Rule for Secinfo {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<Res, Failure> {
        let found = match cx.current()? {
            Current::Pseudo(id) => {
                names::check(&name.0)?;
                let id = *id;
                match lookup_pseudo(cx, id, &name.0) {
                    // The wrong flavour is the reason for the client's request.
                    Err(Status::Wrongsec) => return Ok(wrong_flavor(cx, id, &name.0)),
                    other => other?,
                }
            }
            Current::Node { .. } => {
                let dir = cx.object(Status::Serverfault)?;
                require_directory(&dir).await?;
                names::check(&name.0)?;
                let node = dir.export.store.lookup(dir.who(), &dir.node, &name.0).await?;
                Current::Node { export: dir.export, node: node.handle, entry: dir.entry }
            }
        };
        let res = flavors(cx, &found);
        if cx.minor > 0 {
            cx.current = None;
        }
        Ok(res)
    }
}

fn wrong_flavor(cx: &mut Cx<'_>, id: crate::namespace::PseudoId, name: &[u8]) -> Res {
    let name = String::from_utf8_lossy(name);
    let mut offered = Vec::new();
    if let Some(crate::namespace::pseudo::Child::Export(id)) = cx.namespace.child(id, &name)
        && let Some(export) = cx.namespace.export(id)
    {
        offered = accepted(cx, export);
    }
    if cx.minor > 0 {
        cx.current = None;
    }
    Res { flavors: offered }
}
