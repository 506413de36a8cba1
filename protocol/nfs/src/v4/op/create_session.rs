//! CREATE_SESSION (RFC 8881 §18.36): confirms a client, creates a session.

use super::Rule;
use crate::limits::{
    MAX_CACHED_REPLY_BYTES, MAX_OPS, MAX_SESSIONS_PER_CLIENT, MAX_SLOTS, MIN_CHANNEL_BYTES,
    RESTART_PATIENCE_SECONDS,
};
use crate::v4::callback::longest_recall_bytes;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::state::client::RecordKept;
use crate::v4::tables::client::Principal;
use crate::v4::tables::owner_seq::{LastReply, Verdict, answer_bytes};
use crate::v4::tables::session::{CallbackHeader, Channel, Session};
use crate::v4::tables::{Tables, reply_memory};
use std::sync::Arc;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::CreateSession;
use zgate_nfs_wire::v4::op::create_session::{
    Args, BACK_CHANNEL, CallbackSecurity, ChannelAttrs, PERSIST, RDMA, Res,
};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::limits::MAX_RECORD_BYTES;

/// Bytes of a request or response beside the largest transfer: headers and the
/// other operations of the COMPOUND.
const OVERHEAD_BYTES: u32 = 8 << 10;
/// Least usable sizes of a back channel: the answer to a recall has 84 bytes.
const MIN_BACK_BYTES: u32 = 128;

impl Rule for CreateSession {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let state = &cx.server.state;
        {
            let mut tables = state.lock();
            judge(cx, &mut tables, &args)?;
            check_old_self(cx, &tables, &args)?;
        }
        let prepared = match check(cx.minor, &args) {
            Ok(channels) => {
                cx.server.state.keep_record(args.clientid).await.map(|kept| (channels, kept))
            }
            Err(status) => Err(status),
        };
        let mut tables = state.lock();
        // The same request may have run in the meantime, or the client may have
        // been removed.
        judge(cx, &mut tables, &args)?;
        check_old_self(cx, &tables, &args)?;
        let result = prepared
            .and_then(|(channels, kept)| create(cx, &mut tables, &args, channels, kept))
            .map_err(Failure::from);
        if let Some(client) = tables.clients.get_mut(&args.clientid) {
            // Errors unrelated to the sequence do not change it: the client may
            // retry with the same number (RFC 8881 §18.36.4).
            let keep = match &result {
                Ok(_) => true,
                Err(failure) => {
                    !matches!(failure.status, Status::Inval | Status::Toosmall | Status::Delay)
                }
            };
            if keep {
                let reply = answer_bytes(&result);
                client
                    .create_sequence
                    .record(args.sequence, LastReply { op: cx.op, reply, current: None });
                client.first_create_sequence = args.sequence.wrapping_add(1);
            }
        }
        result
    }
}

/// Checks that the request is a new one of a client that may send it (RFC 8881
/// §18.36.4). For a retry, returns the failure that repeats the answer.
fn judge(cx: &Cx<'_>, tables: &mut Tables, args: &Args) -> Result<(), Failure> {
    // Before the sequence number: a cached answer contains a session's id.
    let client = tables.client_of_caller(args.clientid, cx.call, Status::ClidInuse)?;
    client.check_machine(cx.call)?;
    match client.create_sequence.judge(args.sequence) {
        Verdict::Replay(last) => return Err(last.reply),
        Verdict::Bad => return Err(Status::SeqMisordered.into()),
        Verdict::Run => {}
    }
    let first = client.create_sequence.judge(client.first_create_sequence) == Verdict::Run;
    if first && args.sequence != client.first_create_sequence {
        return Err(Status::SeqMisordered.into());
    }
    if client.principal != Principal::of(&cx.call.credential) && !client.confirmed {
        return Err(Status::ClidInuse.into());
    }
    Ok(())
}

/// Checks that nothing runs any more that the client sent before it restarted. What it
/// does in its new session may depend on names that such a request, slow in storage,
/// would change afterwards: a RENAME would move away what the new self has made.
///
/// The wait ends [`RESTART_PATIENCE_SECONDS`] after the client has registered.
///
/// # Errors
/// [`Status::Delay`] while such a request runs. It is no answer to the sequence number:
/// the client repeats the request with it.
fn check_old_self(cx: &Cx<'_>, tables: &Tables, args: &Args) -> Result<(), Status> {
    let Some(client) = tables.clients.get(&args.clientid).filter(|new| !new.confirmed) else {
        return Ok(());
    };
    let now = cx.now.seconds();
    let slot = tables.by_name.get(&client.name);
    let Some(old) = slot.and_then(|slot| tables.clients.get(&slot.confirmed?)) else {
        return Ok(());
    };
    // This request may have come in a session of the old record.
    let own = u32::from(cx.session_client() == Some(old.id));
    if old.lease.running() <= own || now >= client.registered_seconds + RESTART_PATIENCE_SECONDS {
        return Ok(());
    }
    // The record must outlive the wait, which may be longer than its lease.
    client.lease.renew(now);
    Err(Status::Delay)
}

/// The channels of a valid request.
fn check(minor: u8, args: &Args) -> Result<(Channel, Channel), Status> {
    if args.flags & !(PERSIST | BACK_CHANNEL | RDMA) != 0 {
        return Err(Status::Inval);
    }
    let fore = negotiate_fore(&args.fore)?;
    let back = &args.back;
    let needed_bytes = callback_header(minor, args).map_or(0, |to| longest_recall_bytes(&to));
    let is_too_small =
        (back.max_request_bytes as usize) < needed_bytes.max(MIN_BACK_BYTES as usize);
    if is_too_small || back.max_response_bytes < MIN_BACK_BYTES {
        return Err(Status::Toosmall);
    }
    Ok((fore, accept_back(&args.back)))
}

fn negotiate_fore(asked: &ChannelAttrs) -> Result<Channel, Status> {
    if asked.max_request_bytes < MIN_CHANNEL_BYTES || asked.max_response_bytes < MIN_CHANNEL_BYTES {
        return Err(Status::Toosmall);
    }
    if asked.max_ops == 0 || asked.slots == 0 {
        return Err(Status::Inval);
    }
    let most = MAX_RECORD_BYTES as u32 - OVERHEAD_BYTES;
    Ok(Channel {
        header_pad_bytes: 0,
        max_request_bytes: asked.max_request_bytes.min(most),
        max_response_bytes: asked.max_response_bytes.min(most),
        max_cached_bytes: asked.max_cached_bytes.min(MAX_CACHED_REPLY_BYTES),
        max_ops: asked.max_ops.min(MAX_OPS as u32),
        slots: asked.slots.min(MAX_SLOTS),
    })
}

/// Accepts the client's values: the server's requests are small. It may use fewer slots, but
/// must not tell another number of them, or of operations (RFC 8881 §18.36.3).
fn accept_back(asked: &ChannelAttrs) -> Channel {
    Channel {
        header_pad_bytes: 0,
        max_request_bytes: asked.max_request_bytes,
        max_response_bytes: asked.max_response_bytes,
        max_cached_bytes: asked.max_cached_bytes,
        max_ops: asked.max_ops,
        slots: asked.slots,
    }
}

/// The header of callbacks, with security that the client offers (RFC 8881 §18.36.3). Where it
/// offers none at all, AUTH_NONE; `None`: it offers GSS handles only, which this server does not
/// have.
fn callback_header(minor: u8, args: &Args) -> Option<CallbackHeader> {
    let credential = match CallbackSecurity::choose(&args.security) {
        Some(credential) => credential,
        None if args.security.is_empty() => OpaqueAuth::none(),
        None => return None,
    };
    Some(CallbackHeader { minor, program: args.callback_program, credential })
}

fn attrs_of(channel: &Channel) -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: channel.header_pad_bytes,
        max_request_bytes: channel.max_request_bytes,
        max_response_bytes: channel.max_response_bytes,
        max_cached_bytes: channel.max_cached_bytes,
        max_ops: channel.max_ops,
        slots: channel.slots,
    }
}

fn create(
    cx: &Cx<'_>,
    tables: &mut Tables,
    args: &Args,
    (mut fore, back): (Channel, Channel),
    kept: RecordKept,
) -> Result<Res, Status> {
    let state = &cx.server.state;
    let client = tables.clients.get(&args.clientid).ok_or(Status::StaleClientid)?;
    if client.sessions.len() >= MAX_SESSIONS_PER_CLIENT {
        return Err(Status::Delay);
    }
    if !client.confirmed {
        kept.still_counts(client)?;
        state.confirm_client(tables, args.clientid, cx.now.seconds());
    }
    state.need_session(tables, args.clientid, &fore, cx.now.seconds())?;
    let client = tables.clients.get_mut(&args.clientid).ok_or(Status::StaleClientid)?;
    client.lease.renew(cx.now.seconds());
    let id = state.ids.session();
    // NFS4ERR_NOSPC if there is no memory for a session (RFC 8881 §18.36.4).
    let share = reply_memory::promise(&client.host, &mut fore).ok_or(Status::Nospc)?;
    let session = Session::new(
        id,
        args.clientid,
        Arc::clone(&client.lease),
        fore,
        back,
        callback_header(cx.minor, args),
    );
    session.keep(share);
    let session = Arc::new(session);
    session.bind_fore(cx.call.peer.connection);
    // The client learns from the flag whether there is one (RFC 8881 §18.36.3).
    let with_back = args.flags & BACK_CHANNEL != 0 && session.may_have_back();
    if with_back {
        session.bind_back(cx.call.peer.connection);
    }
    client.sessions.push(Arc::clone(&session));
    state.sessions.insert(Arc::clone(&session));
    if with_back {
        state.resend_recalls(tables, args.clientid, cx.now.seconds());
        state.back.greet(session);
    }
    Ok(Res {
        session: id,
        sequence: args.sequence,
        flags: if with_back { BACK_CHANNEL } else { 0 },
        fore: attrs_of(&fore),
        back: attrs_of(&back),
    })
}
