//! SETCLIENTID (RFC 7530 §16.33), minor version 0 only.

use super::Rule;
use crate::callback_security::CallbackSecurity;
use crate::runtime::Protection;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::callback_path::{Callback40, CallbackUpdate};
use crate::v4::tables::client::Client;
use std::sync::Arc;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Setclientid;
use zgate_nfs_wire::v4::op::setclientid::{Args, NetAddress, Res};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::{AuthSys, Credential};

impl Rule for Setclientid {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.require_named_host()?;
        let state = &cx.server.state;
        let now = cx.now.seconds();
        let mut tables = state.lock();
        let slot = tables.by_name.get(&args.name.0).copied().unwrap_or_default();
        // A record that lost its state is ignored: the client starts again.
        let confirmed = slot
            .confirmed
            .and_then(|id| tables.clients.get(&id))
            .filter(|client| !client.lease.revoked());
        let mut keep_id = None;
        if let Some(client) = confirmed {
            let other = client.is_another_caller(cx.call, args.verifier);
            if (other || !client.minor_zero) && client.keeps_name(cx.call, now, state.lease_seconds)
            {
                return Err(in_use(client));
            }
            // The same client with the same verifier changes its callback: the
            // client id stays. The path is the old one until the new one is confirmed
            // (RFC 7530 §16.33.5).
            if !other && client.minor_zero && client.verifier == args.verifier {
                keep_id = Some(client.id);
            }
        }
        let callback = callback_path(cx, &args);
        if let Some(id) = keep_id {
            let confirm = state.ids.verifier();
            if let Some(old) = slot.unconfirmed {
                state.drop_client(&mut tables, old, now);
            }
            if let Some(client) = tables.clients.get_mut(&id) {
                client.hosts.add(cx.call.peer.address);
                client.callback_update = Some(CallbackUpdate { confirm, callback });
            }
            return Ok(Res { clientid: id, confirm });
        }
        let id = state.add_client(&mut tables, cx.call, &args.name.0, args.verifier, true, now)?;
        let client = tables.clients.get_mut(&id).ok_or(Status::Serverfault)?;
        client.callback = callback;
        Ok(Res { clientid: id, confirm: client.confirm_verifier })
    }
}

/// The callback path that a client requests; `None` if the client uses TLS, or the
/// path leads to another host: the server does not connect to a third party on
/// behalf of a client. See docs/spec-exceptions/callback-address.md.
fn callback_path(cx: &Cx<'_>, args: &Args) -> Option<Callback40> {
    if cx.call.peer.protection > Protection::Plain {
        // A new connection in the clear would carry what the client protects.
        return None;
    }
    // Nothing less than what the client calls with (RFC 7530 §3.3.3).
    let security = match &cx.call.credential {
        Credential::Gss(caller) => Some(Arc::new(CallbackSecurity::of(caller)?)),
        Credential::None | Credential::Sys(_) => None,
    };
    let (address, host) = (args.callback_address.to_socket()?, cx.call.peer.address);
    if address.ip().to_canonical() != host.to_canonical() {
        cx.server.foreign_callbacks.note(host, address, cx.now.seconds());
        return None;
    }
    Some(Callback40 {
        program: args.callback_program,
        ident: args.callback_ident,
        address,
        credential: callback_credential(&cx.call.credential),
        security,
        up: Arc::default(),
        probed_seconds: Arc::new(cx.now.seconds().into()),
    })
}

/// Callbacks carry the flavour with which the client id was acquired (RFC 7530
/// §3.3.3); Linux refuses AUTH_NONE for all calls except CB_NULL. The credential of
/// RPCSEC_GSS is made for each call.
fn callback_credential(acquired_with: &Credential) -> OpaqueAuth {
    let of_the_server =
        || AuthSys { stamp: 0, machine: b"zgate".to_vec(), uid: 0, gid: 0, groups: Vec::new() };
    match acquired_with {
        Credential::None | Credential::Gss(_) => OpaqueAuth::none(),
        Credential::Sys(_) => Credential::Sys(of_the_server()).to_opaque(),
    }
}

/// CLID_INUSE with the address of the client that uses the name (RFC 7530
/// §16.33.2).
fn in_use(client: &Client) -> Failure {
    let user = NetAddress { netid: b"tcp"[..].into(), address: client.address.as_bytes().into() };
    Failure::with_body(Status::ClidInuse, &user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_carry_the_flavour_of_the_client_id() {
        let sys = AuthSys { stamp: 9, machine: b"c".to_vec(), uid: 7, gid: 7, groups: vec![1] };
        let sent = callback_credential(&Credential::Sys(sys));
        let Credential::Sys(sent) = Credential::parse(&sent).unwrap() else { panic!("{sent:?}") };
        assert_eq!((sent.uid, sent.gid, sent.groups.len()), (0, 0, 0));
        assert_eq!(callback_credential(&Credential::None), OpaqueAuth::none());
    }
}
