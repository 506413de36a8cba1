//! SECINFO (RFC 8881 §18.29).

use super::lookup::{lookup_pseudo, require_directory};
use super::{Rule, names};
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
    let address = cx.call.peer.address;
    let rule = export.clients.iter().find(|rule| rule.matches(address));
    let offered = |flavor: &u32| {
        rule.is_some_and(|rule| if *flavor == AUTH_SYS { rule.sys } else { rule.none })
    };
    Res { flavors: both.into_iter().filter(offered).collect() }
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
        for rule in &export.clients {
            if rule.sys {
                offered.push(AUTH_SYS);
            }
            if rule.none {
                offered.push(AUTH_NONE);
            }
        }
        offered.dedup();
    }
    if cx.minor > 0 {
        cx.current = None;
    }
    Res { flavors: offered }
}
