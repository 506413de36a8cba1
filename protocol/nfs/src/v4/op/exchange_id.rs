//! EXCHANGE_ID (RFC 8881 §18.35): registers a client.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::state::grace::Registrant;
use crate::v4::tables::Tables;
use crate::v4::tables::client::{Client, Principal, is_signed};
use zgate_nfs_wire::v4::op::ExchangeId;
use zgate_nfs_wire::v4::op::exchange_id::{
    Args, CONFIRMED, ImplId, Protect, ProtectedOps, Res, UPDATE, USE_NON_PNFS,
};
use zgate_nfs_wire::v4::{Bitmap, ClientId, NfsTime, OpNum, Status};
use zgate_xdr::{Opaque, Utf8};

/// Flags a client may send: SUPP_MOVED_REFER, SUPP_MOVED_MIGR,
/// BIND_PRINC_STATEID, the pNFS roles and UPD. SUPP_FENCE_OPS is refused: see
/// docs/spec-exceptions/exchange-id-fence-ops.md.
const CLIENT_FLAGS: u32 = 0x0001 | 0x0002 | 0x0100 | 0x0007_0000 | UPDATE;

impl Rule for ExchangeId {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        if args.flags & !CLIENT_FLAGS != 0 {
            return Err(Status::Inval.into());
        }
        let protects = match &args.protect {
            Protect::None => false,
            Protect::MachineCredential(ops) => {
                may_protect(cx, ops)?;
                true
            }
            Protect::Ssv => return Err(Status::EncrAlgUnsupp.into()),
        };
        cx.require_named_host()?;
        let (clientid, confirmed, sequenceid) = choose_record(cx, &args, protects)?;
        // Owner, verifier and principal match: this address also belongs to the
        // client (client ID trunking, RFC 8881 §2.10.5).
        let mut is_protected = false;
        if let Some(client) = cx.server.state.lock().clients.get_mut(&clientid) {
            client.hosts.add(cx.call.peer.address);
            is_protected = client.machine_credential;
        }
        let identity = &cx.server.options.identity;
        Ok(Res {
            clientid,
            sequenceid,
            flags: USE_NON_PNFS | if confirmed { CONFIRMED } else { 0 },
            protect: is_protected
                .then(|| ProtectedOps { enforced: enforced(), allowed: Bitmap::default() }),
            owner_minor: identity.owner_minor,
            owner_major: Opaque(identity.owner_major.clone()),
            scope: Opaque(identity.scope.clone()),
            implementation: Some(ImplId {
                domain: Utf8("zgate".to_owned()),
                name: Utf8(concat!("zgate ", env!("CARGO_PKG_VERSION")).to_owned()),
                date: NfsTime::default(),
            }),
        })
    }
}

/// The operations that only the machine of a client may send, if it asks for that
/// (RFC 8881 §2.10.8.3): those that would end or take over its sessions.
fn enforced() -> Bitmap {
    let ops = [
        OpNum::BindConnToSession,
        OpNum::ExchangeId,
        OpNum::CreateSession,
        OpNum::DestroySession,
        OpNum::DestroyClientid,
    ];
    Bitmap::of(&ops.map(|op| op as u32))
}

/// Checks a request for protection by the credential of the machine.
///
/// # Errors
/// [`Status::Inval`] if the call itself is neither signed nor encrypted, or asks
/// for more than this server enforces.
fn may_protect(cx: &Cx<'_>, ops: &ProtectedOps) -> Result<(), Status> {
    let ours = enforced();
    let is_enforced = ops.enforced.iter().all(|op| ours.contains(op));
    if is_enforced && is_signed(&cx.call.credential) { Ok(()) } else { Err(Status::Inval) }
}

/// The cases of RFC 8881 §18.35.4, in its order. `protects`: the client reserves
/// the operations of [`enforced`] for its machine.
fn choose_record(
    cx: &Cx<'_>,
    args: &Args,
    protects: bool,
) -> Result<(ClientId, bool, u32), Status> {
    let state = &cx.server.state;
    let mut tables = state.lock();
    let now = cx.now.seconds();
    let principal = Principal::of(&cx.call.credential);
    let update = args.flags & UPDATE != 0;
    if !update {
        free_name(cx, &mut tables, args)?;
    }
    let slot = tables.by_name.get(&args.owner.0).copied().unwrap_or_default();
    let confirmed = slot.confirmed.and_then(|id| tables.clients.get(&id)).filter(|c| !c.minor_zero);
    match confirmed {
        None if update => return Err(Status::Noent),
        Some(client) if update => {
            if client.verifier != args.verifier {
                return Err(Status::NotSame);
            }
            if client.principal != principal {
                return Err(Status::Perm);
            }
            client.check_machine(cx.call)?;
            return Ok((client.id, true, next_create_sequence(client)));
        }
        Some(client) if client.verifier == args.verifier => {
            client.check_machine(cx.call)?;
            // A mount of the same host that shows less: Linux then takes the name with
            // another verifier, which is free when the lease of what was before is over.
            if client.is_proven_by(cx.call) {
                client.lease.renew(now);
            }
            return Ok((client.id, true, next_create_sequence(client)));
        }
        // It has restarted: its sessions end when the new record is confirmed.
        Some(client) if !client.lease.expired(now, state.lease_seconds) => {
            client.check_machine(cx.call)?;
        }
        _ => {}
    }
    let id = state.add_client(&mut tables, cx.call, &args.owner.0, args.verifier, false, now)?;
    if let Some(client) = tables.clients.get_mut(&id) {
        client.implementation =
            args.implementation.as_ref().map(|i| i.name.0.clone()).unwrap_or_default();
        client.machine_credential = protects;
    }
    Ok((id, false, 1))
}

/// Takes the name from a confirmed client of another caller, in any minor version, if
/// it may lose it.
///
/// # Errors
/// [`Status::ClidInuse`]; [`Status::Delay`] while grace keeps the name for another
/// caller: its client may hold nothing yet.
fn free_name(cx: &Cx<'_>, tables: &mut Tables, args: &Args) -> Result<(), Status> {
    let state = &cx.server.state;
    let now = cx.now.seconds();
    let name = args.owner.0.as_slice();
    state.grace.check_owner(name, &Registrant::of(cx.call, args.verifier), now)?;
    let holder = tables.by_name.get(name).and_then(|slot| slot.confirmed);
    let holder = holder.and_then(|id| tables.clients.get(&id));
    // A record that lost its state is ignored, as by SETCLIENTID.
    let holder =
        holder.filter(|c| c.is_another_caller(cx.call, args.verifier) && !c.lease.revoked());
    let Some(holder) = holder else { return Ok(()) };
    if holder.keeps_name(cx.call, now, state.lease_seconds) {
        return Err(Status::ClidInuse);
    }
    // Another client may get its state, and this one cannot reclaim it after a
    // restart.
    let id = holder.id;
    state.expire_client(tables, id, now);
    Ok(())
}

fn next_create_sequence(client: &Client) -> u32 {
    client.first_create_sequence
}
