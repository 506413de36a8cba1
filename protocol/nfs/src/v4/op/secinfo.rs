//! SECINFO (RFC 8881 §18.29).

use super::lookup::{lookup_pseudo, require_directory};
use super::{Rule, names};
use crate::namespace::{Export, Flavor};
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::op::Secinfo;
use zgate_nfs_wire::v4::op::secinfo::Res;
use zgate_nfs_wire::v4::{Component, Status};

/// Flavours of the export that contains `current`.
pub(super) fn flavors(cx: &Cx<'_>, current: &Current) -> Res {
    let flavors = match current {
        Current::Node { export, .. } => accepted(cx, export),
        Current::Pseudo(_) => of_pseudo_directories(cx),
    };
    Res { flavors }
}

/// Flavours of the pseudo file system, which is open to all. Kerberos is named
/// only if an export accepts it from the caller: the server may have none.
fn of_pseudo_directories(cx: &Cx<'_>) -> Vec<u32> {
    let peer = &cx.call.peer;
    let mut rules = cx.namespace.exports().filter_map(|export| export.rule_for(peer));
    let open = [Flavor::Sys, Flavor::None].into_iter();
    let has_kerberos = rules.any(|rule| rule.flavors.accepts_kerberos());
    let kerberos = Flavor::KERBEROS.into_iter().filter(|_| has_kerberos);
    open.chain(kerberos).map(Flavor::number).collect()
}

/// Flavours that an export accepts from the caller over this connection: none if
/// the export requires TLS and the connection has none.
pub(super) fn accepted(cx: &Cx<'_>, export: &Export) -> Vec<u32> {
    let peer = &cx.call.peer;
    let rule = export.clients.iter().find(|rule| rule.matches(peer.address));
    let Some(rule) = rule.filter(|rule| peer.protection >= rule.protection) else {
        return Vec::new();
    };
    rule.flavors.iter().map(Flavor::number).collect()
}

impl Rule for Secinfo {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<Res, Failure> {
        if let Some(unentered) = cx.unentered.take() {
            return Ok(Res { flavors: accepted(cx, &unentered.export) });
        }
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
