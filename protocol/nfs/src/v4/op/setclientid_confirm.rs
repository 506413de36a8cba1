//! SETCLIENTID_CONFIRM (RFC 7530 §16.34), minor version 0 only.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::Tables;
use crate::v4::tables::client::{Client, Principal};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::SetclientidConfirm;
use zgate_nfs_wire::v4::op::setclientid_confirm::Args;

impl Rule for SetclientidConfirm {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let now = cx.now.seconds();
        take_name(cx, &mut state.lock(), &args)?;
        let kept = cx.server.state.keep_record(args.clientid).await?;
        let mut tables = state.lock();
        // The same request may have run in the meantime, or the client may have
        // been removed.
        let client = judge(cx, &tables, &args)?;
        if !client.confirmed {
            kept.still_counts(client)?;
            state.confirm_client(&mut tables, args.clientid, now);
        }
        if let Some(client) = tables.clients.get_mut(&args.clientid) {
            client.lease.renew(now);
            client.confirm_callback(args.confirm);
            if let Some(callback) = client.callback.clone() {
                state.back.probe(&client.probe, callback);
            }
        }
        Ok(())
    }
}

/// The client of the request, if it may confirm it (RFC 7530 §16.34.5).
fn judge<'t>(cx: &Cx<'_>, tables: &'t Tables, args: &Args) -> Result<&'t Client, Status> {
    let client = tables
        .clients
        .get(&args.clientid)
        .filter(|c| c.minor_zero && c.is_confirmed_by(args.confirm))
        .filter(|c| c.hosts.contains(cx.call.peer.address))
        .ok_or(Status::StaleClientid)?;
    if client.principal != Principal::of(&cx.call.credential) {
        return Err(Status::ClidInuse);
    }
    let lease_seconds = cx.server.state.lease_seconds;
    if other_holder(tables, client)
        .is_some_and(|old| old.keeps_name(cx.call, cx.now.seconds(), lease_seconds))
    {
        return Err(Status::ClidInuse);
    }
    Ok(client)
}

/// Checks the request, and takes the name from a confirmed client of another
/// caller or minor version. That client ends here, before the new record is
/// written over its own: it could get state meanwhile, and keep it if the request
/// fails, but not reclaim it after a restart.
///
/// # Errors
/// Those of [`judge`].
fn take_name(cx: &Cx<'_>, tables: &mut Tables, args: &Args) -> Result<(), Status> {
    let client = judge(cx, tables, args)?;
    let old = other_holder(tables, client).map(|old| old.id);
    if let Some(old) = old {
        cx.server.state.expire_client(tables, old, cx.now.seconds());
    }
    Ok(())
}

/// The confirmed client of another caller or minor version from which an
/// unconfirmed one takes its name. One that lost its state is ignored, as by
/// SETCLIENTID.
fn other_holder<'t>(tables: &'t Tables, client: &Client) -> Option<&'t Client> {
    let slot = tables.by_name.get(&client.name).filter(|_| !client.confirmed)?;
    let old = tables.clients.get(&slot.confirmed?)?;
    let is_other = old.is_another_than(client) || !old.minor_zero;
    (is_other && !old.lease.revoked()).then_some(old)
}
