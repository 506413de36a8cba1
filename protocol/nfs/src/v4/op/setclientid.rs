//! SETCLIENTID (RFC 7530 §16.33), minor version 0 only.

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::tables::{Callback40, Client, Principal};
use crate::v4::wire::{ClientId, OpNum, OwnerBytes, Status, Verifier};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::{AuthSys, Credential};
use zgate_xdr::{Opaque, xdr_struct};

xdr_struct! {
    /// clientaddr4: a universal address (RFC 5665).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct NetAddress {
        /// tcp, tcp6, rdma ...
        pub netid: Opaque<128>,
        /// Address and port.
        pub address: Opaque<128>,
    }
}

impl NetAddress {
    /// The socket address, when it is one callbacks can be sent to.
    #[must_use]
    pub fn to_socket(&self) -> Option<SocketAddr> {
        if self.netid.0 != b"tcp" && self.netid.0 != b"tcp6" {
            return None;
        }
        let text = std::str::from_utf8(&self.address.0).ok()?;
        let (rest, low) = text.rsplit_once('.')?;
        let (host, high) = rest.rsplit_once('.')?;
        let port = u16::from(high.parse::<u8>().ok()?) << 8 | u16::from(low.parse::<u8>().ok()?);
        let address: IpAddr = host.parse().ok()?;
        (port != 0 && !address.is_unspecified()).then_some(SocketAddr::new(address, port))
    }

    /// The universal address of a socket address.
    #[must_use]
    pub fn from_socket(socket: SocketAddr) -> Self {
        let netid: &[u8] = if socket.is_ipv4() { b"tcp" } else { b"tcp6" };
        let port = socket.port();
        let text = format!("{}.{}.{}", socket.ip(), port >> 8, port & 0xff);
        Self { netid: netid.into(), address: text.as_bytes().into() }
    }
}

xdr_struct! {
    /// SETCLIENTID4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// client.verifier.
        pub verifier: Verifier,
        /// client.id.
        pub name: OwnerBytes,
        /// cb_program.
        pub callback_program: u32,
        /// cb_location.
        pub callback_address: NetAddress,
        /// callback_ident.
        pub callback_ident: u32,
    }
}

xdr_struct! {
    /// SETCLIENTID4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// clientid.
        pub clientid: ClientId,
        /// setclientid_confirm.
        pub confirm: Verifier,
    }
}

/// The operation.
pub struct Setclientid;

impl Operation for Setclientid {
    const NUM: OpNum = OpNum::Setclientid;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.require_named_host()?;
        let state = &cx.server.state;
        let now = cx.now.seconds();
        let mut tables = state.lock();
        let slot = tables.by_name.get(&args.name.0).copied().unwrap_or_default();
        // A record that lost its state counts no more: whoever comes begins anew.
        let confirmed = slot
            .confirmed
            .and_then(|id| tables.clients.get(&id))
            .filter(|client| !client.lease.revoked());
        let mut keep_id = None;
        if let Some(client) = confirmed {
            let other = client.principal != Principal::of(&cx.call.credential);
            if (other || !client.minor_zero)
                && client.has_state()
                && !client.lease.expired(now, state.lease_seconds)
            {
                return Err(in_use(client));
            }
            // The same client with the same verifier changes its callback:
            // the id stays (RFC 7530 §16.33.5).
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
                client.confirm_verifier = confirm;
                client.hosts.add(cx.call.peer.address);
                client.callback = callback;
            }
            return Ok(Res { clientid: id, confirm });
        }
        let id = state.add_client(&mut tables, cx, &args.name.0, args.verifier, true)?;
        let client = tables.clients.get_mut(&id).ok_or(Status::Serverfault)?;
        client.callback = callback;
        Ok(Res { clientid: id, confirm: client.confirm_verifier })
    }
}

/// The callback path a client asks for. One that leads to another host is none:
/// the server connects to nobody in a client's name. See
/// docs/spec-exceptions/callback-address.md.
fn callback_path(cx: &Cx<'_>, args: &Args) -> Option<Callback40> {
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
        up: Arc::default(),
    })
}

/// Callbacks carry the flavour the client id was acquired with
/// (RFC 7530 §3.3.3); Linux refuses AUTH_NONE for anything but CB_NULL.
fn callback_credential(acquired_with: &Credential) -> OpaqueAuth {
    let of_the_server =
        || AuthSys { stamp: 0, machine: b"zgate".to_vec(), uid: 0, gid: 0, groups: Vec::new() };
    match acquired_with {
        Credential::None => OpaqueAuth::none(),
        Credential::Sys(_) => Credential::Sys(of_the_server()).to_opaque(),
    }
}

/// CLID_INUSE names the address of who uses it (RFC 7530 §16.33.2).
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

    #[test]
    fn universal_addresses() {
        let socket: SocketAddr = "10.0.0.1:2049".parse().unwrap();
        let address = NetAddress::from_socket(socket);
        assert_eq!(address.address.0, b"10.0.0.1.8.1");
        assert_eq!(address.to_socket(), Some(socket));
        let six: SocketAddr = "[fe80::1]:1025".parse().unwrap();
        assert_eq!(NetAddress::from_socket(six).to_socket(), Some(six));
        for bad in ["", "1.2.3.4", "0.0.0.0.8.1", "1.2.3.4.0.0", "1.2.3.4.300.1", "a.b.c.d.8.1"] {
            let address = NetAddress { netid: b"tcp"[..].into(), address: bad.as_bytes().into() };
            assert_eq!(address.to_socket(), None, "{bad}");
        }
    }
}
