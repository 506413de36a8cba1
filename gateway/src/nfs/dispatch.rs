//! Dispatch of a record to the program that it calls.

use super::gss;
use super::gss::call::GssCall;
use super::record::Received;
use super::refusal;
use super::service::{CallSource, Nfs};
use crate::net::connection_end::{ConnectionEnd, Misbehaved};
use crate::observe::data_path::{DataDirection, Transport};
use crate::observe::load::FinishedRequest;
use std::pin::pin;
use zgate_nfs::runtime::{EnteredExport, Now, Protection, RefusedAccess, Runtime};
use zgate_nfs::{Call, Peer};
use zgate_nfs_wire::mount::PROGRAM as MOUNT_PROGRAM;
use zgate_nfs_wire::{PROGRAM as NFS_PROGRAM, v4::COMPOUND};
use zgate_rpc::auth::{AUTH_TLS, RPCSEC_GSS};
use zgate_rpc::drc::{Begin, Key};
use zgate_rpc::message::{CallError, encode_rejection, encode_success};
use zgate_rpc::{AcceptError, AuthError, CallHeader, Credential, Rejection};
use zgate_xdr::{Decoder, Encoder, Message};

/// Result of a record.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Reply to be sent.
    Reply(Message),
    /// Nothing: a copy of a running request, whose reply will be sent anyway.
    Nothing,
    /// The bytes are not a call: close the connection, for this reason.
    Close(ConnectionEnd),
}

/// Result of a call, without an RPC header.
#[derive(Debug)]
pub(crate) enum Served {
    Results(Message),
    Fault(AcceptError),
    /// As [`Answer::Nothing`].
    Nothing,
}

/// Reception of a call's data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Number of times the head was copied since it was received.
    pub head_copies: usize,
    /// Bytes of a body apart that were copied.
    pub copied_bytes: usize,
    /// Bytes of a body that was received apart.
    pub apart_bytes: usize,
    /// Set if arguments and results are signed or encrypted: they are copied.
    pub is_protected: bool,
}

/// Server that a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    V4,
    V3,
    Mount,
}

fn route(program: u32, version: u32) -> Result<Target, AcceptError> {
    match (program, version) {
        (NFS_PROGRAM, 4) => Ok(Target::V4),
        (NFS_PROGRAM, 3) => Ok(Target::V3),
        (NFS_PROGRAM, _) => Err(AcceptError::ProgramMismatch(3, 4)),
        (MOUNT_PROGRAM, 3) => Ok(Target::Mount),
        (MOUNT_PROGRAM, _) => Err(AcceptError::ProgramMismatch(3, 3)),
        _ => Err(AcceptError::ProgramUnavailable),
    }
}

/// Returns whether a version of a program is served.
pub(super) fn serves(program: u32, version: u32) -> bool {
    route(program, version).is_ok()
}

/// Serves one record. `is_named`: an export names the host.
pub(crate) async fn answer(source: &CallSource, is_named: bool, received: Received) -> Answer {
    let CallSource { nfs, peer, .. } = source;
    let Received { head, bulk, head_copies, copied_bytes } = received;
    let apart_bytes = bulk.as_ref().map_or(0, |(_, data)| data.len());
    let mut d = match bulk {
        Some((at, data)) => Decoder::with_splice(&head, at, data),
        None => Decoder::shared(&head),
    };
    let header = match CallHeader::decode(&mut d) {
        Ok(header) => header,
        Err(CallError::NotACall) => return Answer::Close(Misbehaved::NotACall.into()),
        Err(CallError::Reject { xid, why }) => return reject(xid, why),
    };
    let target = match route(header.program, header.version) {
        Ok(target) => target,
        Err(error) => return reject(header.xid, Rejection::Accept(error)),
    };
    if header.credential.flavor == AUTH_TLS {
        // A request that was granted does not come here (RFC 9289 §4.1).
        return reject(header.xid, Rejection::Auth(AuthError::BadCredential));
    }
    let has_context = header.credential.flavor == RPCSEC_GSS;
    if header.procedure == 0 && !has_context {
        return success(header.xid, |_| {});
    }
    // Checked before the reply cache, and before anything is looked up or
    // changed.
    if !is_named && !nfs.v4.admits_host(peer.address) {
        refusal::report_stranger(peer);
        return reject(header.xid, Rejection::Auth(AuthError::TooWeak));
    }
    let arrived = Arrived { head_copies, copied_bytes, apart_bytes, is_protected: false };
    if has_context {
        let call = GssCall { source, target, header, record: &head, arguments: d, arrived };
        // Apart: other requests need not have room for it.
        return Box::pin(gss::call::answer(call)).await;
    }
    let credential = match Credential::parse(&header.credential) {
        Ok(credential) => credential,
        Err(error) => return reject(header.xid, Rejection::Auth(error)),
    };
    let xid = header.xid;
    match serve(source, target, (header, credential), &mut d, arrived).await {
        Served::Results(results) => Answer::Reply(with_header(xid, results)),
        Served::Fault(error) => reject(xid, Rejection::Accept(error)),
        Served::Nothing => Answer::Nothing,
    }
}

/// Runs a call of a host that may call; `d` is at the arguments.
pub(crate) async fn serve(
    source: &CallSource,
    target: Target,
    (header, credential): (CallHeader, Credential),
    d: &mut Decoder<'_>,
    arrived: Arrived,
) -> Served {
    let CallSource { nfs, peer, .. } = source;
    // A device sends memory, not files; and whatever is encrypted is memory.
    let is_encrypted = arrived.is_protected || peer.protection > Protection::Plain;
    let span_allowed = !peer.rdma && !is_encrypted;
    let (entered, refused) = (EnteredExport::default(), RefusedAccess::default());
    let (peer_of_call, xid) = (peer.clone(), header.xid);
    let call = Call { peer: peer_of_call, credential, xid, span_allowed, entered, refused };
    let running = match cache_key(target, &call, &header, d).map(|key| nfs.replies.begin(key)) {
        None => None,
        Some(Begin::New(running)) => Some(running),
        Some(Begin::InProgress) => return Served::Nothing,
        Some(Begin::Replay(message)) => return Served::Results(message),
    };
    let mut tally = source.load().begin();
    let now = nfs.runtime.now();
    let result = {
        let work = pin!(run(nfs, (target, now), &call, &header, d));
        tally.during(&call.entered, work).await
    };
    refusal::report(&nfs.v4, &call);
    let finished = FinishedRequest {
        nanos: nfs.runtime.nanos().saturating_sub(now.monotonic_nanos),
        read_bytes: result.as_ref().map_or(0, Message::payload_bytes) as u64,
        written_bytes: d.bulk_bytes() as u64,
    };
    tally.finish(call.entered.get(), finished);
    // Data within the head was copied as often as the head.
    let inside = d.bulk_bytes().saturating_sub(arrived.apart_bytes);
    let copied = arrived.copied_bytes + d.copied_bytes() + inside * arrived.head_copies;
    let copied = if is_encrypted { copied.max(d.bulk_bytes()) } else { copied };
    nfs.metrics.data.carried(transport(peer), DataDirection::Write, d.bulk_bytes(), copied);
    if let (Ok(message), Some(running)) = (&result, running) {
        running.finish(message);
    }
    match result {
        Ok(message) => Served::Results(message),
        Err(error) => Served::Fault(error),
    }
}

/// Returns the transport of a peer's calls.
pub(crate) fn transport(peer: &Peer) -> Transport {
    if peer.rdma { Transport::Rdma } else { Transport::Tcp }
}

/// Returns the reply cache key of a call without a session, so that a
/// retransmission is answered and not run again.
fn cache_key(target: Target, call: &Call, header: &CallHeader, d: &Decoder<'_>) -> Option<Key> {
    let keep = match target {
        Target::V4 => header.procedure == COMPOUND && zgate_nfs::v4::retry::must_run_once(d),
        Target::V3 => !zgate_nfs::v3::row(header.procedure).is_none_or(|row| row.idempotent),
        Target::Mount => false,
    };
    keep.then(|| Key::new((call.peer.address, call.peer.port).into(), header, d.rest()))
}

async fn run(
    nfs: &Nfs,
    (target, now): (Target, Now),
    call: &Call,
    header: &CallHeader,
    d: &mut Decoder<'_>,
) -> Result<Message, AcceptError> {
    if target == Target::V4 {
        if header.procedure != COMPOUND {
            return Err(AcceptError::ProcedureUnavailable);
        }
        return nfs.v4.compound(call, now, d).await;
    }
    let mut e = Encoder::new();
    match target {
        Target::V3 => {
            let handled = nfs.v3.handle(call, header.procedure, d, &mut e).await;
            nfs.metrics.procedure(header.procedure, now.monotonic_nanos);
            handled?;
        }
        _ => nfs.mount.handle(call, header.procedure, d, &mut e).await?,
    }
    Ok(e.finish())
}

/// Bytes of the header of an accepted call: xid, REPLY, MSG_ACCEPTED, the
/// verifier AUTH_NONE, SUCCESS (RFC 5531 §9).
const SUCCESS_BYTES: usize = 24;

/// Prepends the RPC header to a result.
fn with_header(xid: u32, mut result: Message) -> Message {
    let mut e = Encoder::with_capacity(SUCCESS_BYTES);
    encode_success(&mut e, xid);
    if let Some(header) = e.finish_bytes() {
        result.prepend(header);
    }
    result
}

fn success(xid: u32, body: impl FnOnce(&mut Encoder)) -> Answer {
    let mut e = Encoder::new();
    encode_success(&mut e, xid);
    body(&mut e);
    Answer::Reply(e.finish())
}

pub(crate) fn reject(xid: u32, why: Rejection) -> Answer {
    let mut e = Encoder::new();
    encode_rejection(&mut e, xid, why);
    Answer::Reply(e.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_versions() {
        assert_eq!(route(100_003, 4), Ok(Target::V4));
        assert_eq!(route(100_003, 2), Err(AcceptError::ProgramMismatch(3, 4)));
        assert_eq!(route(100_005, 1), Err(AcceptError::ProgramMismatch(3, 3)));
        assert_eq!(route(100_000, 2), Err(AcceptError::ProgramUnavailable));
    }
}
