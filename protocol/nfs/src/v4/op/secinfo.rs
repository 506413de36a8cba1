//! SECINFO (RFC 8881 §18.29).

use super::lookup::{lookup_pseudo, require_directory};
use super::{Failure, Operation, names};
use crate::v4::cx::{Current, Cx};
use crate::v4::wire::{Component, OpNum, Status};
use zgate_rpc::auth::{AUTH_NONE, AUTH_SYS};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The flavours a client may use, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// secinfo4 without GSS: flavour numbers.
    pub flavors: Vec<u32>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.flavors);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.array(16).map(|flavors| Self { flavors })
    }
}

/// Flavours for what `current` leads to.
pub(super) fn flavors(cx: &Cx<'_>, current: &Current) -> Res {
    let both = vec![AUTH_SYS, AUTH_NONE];
    let Current::Node { export, .. } = current else { return Res { flavors: both } };
    let address = cx.call.peer.address;
    let rule = export.clients.iter().find(|rule| {
        rule.networks.is_empty() || rule.networks.iter().any(|network| network.contains(address))
    });
    let offered = |flavor: &u32| {
        rule.is_some_and(|rule| if *flavor == AUTH_SYS { rule.sys } else { rule.none })
    };
    Res { flavors: both.into_iter().filter(offered).collect() }
}

/// The operation. From minor version 1 on it consumes the current file handle
/// (RFC 8881 §2.6.3.1.1.8).
pub struct Secinfo;

impl Operation for Secinfo {
    const NUM: OpNum = OpNum::Secinfo;
    type Args = Component;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<Res, Failure> {
        let found = match cx.current()? {
            Current::Pseudo(id) => {
                names::check(&name.0)?;
                let id = *id;
                match lookup_pseudo(cx, id, &name.0) {
                    // The wrong flavour is just why the client asks.
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
