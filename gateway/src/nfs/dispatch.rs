//! Dispatch of a record to the program that it calls.

use super::record::Received;
use super::service::{Nfs, Service};
use crate::net::connection_end::{ConnectionEnd, Misbehaved};
use crate::observe::data_path::{DataDirection, Transport};
use std::cell::Cell;
use std::pin::pin;
use zgate_nfs::runtime::{Now, Runtime};
use zgate_nfs::v4::server::Observer;
use zgate_nfs::{Call, Peer};
use zgate_nfs_wire::mount::PROGRAM as MOUNT_PROGRAM;
use zgate_nfs_wire::{PROGRAM as NFS_PROGRAM, v4::COMPOUND};
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

/// Server that a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
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

/// Serves one record.
pub(crate) async fn answer(service: &Service, peer: &Peer, received: Received) -> Answer {
    let nfs = &*service.nfs;
    let Received { head, bulk, head_copies, copied_bytes } = received;
    let apart = bulk.as_ref().map_or(0, |(_, data)| data.len());
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
    if header.procedure == 0 {
        return success(header.xid, |_| {});
    }
    // Checked before the reply cache, and before anything is looked up or
    // changed.
    if !service.admitted.admits(&nfs.v4, peer) {
        return reject(header.xid, Rejection::Auth(AuthError::TooWeak));
    }
    let credential = match Credential::parse(&header.credential) {
        Ok(credential) => credential,
        Err(error) => return reject(header.xid, Rejection::Auth(error)),
    };
    // A device sends memory, not files.
    let span_allowed = !peer.rdma;
    let entered = Cell::default();
    let call = Call { peer: peer.clone(), credential, xid: header.xid, span_allowed, entered };
    let running = match cache_key(target, &call, &header, &d).map(|key| nfs.replies.begin(key)) {
        None => None,
        Some(Begin::New(running)) => Some(running),
        Some(Begin::InProgress) => return Answer::Nothing,
        Some(Begin::Replay(message)) => return Answer::Reply(with_header(header.xid, message)),
    };
    let tally = service.loads.begin(peer);
    let result = {
        let work = pin!(run(nfs, target, &call, &header, &mut d));
        tally.during(&call.entered, work).await
    };
    let read = result.as_ref().map_or(0, Message::payload_bytes);
    tally.finish(call.entered.get(), read, d.bulk_bytes());
    // Data within the head was copied as often as the head.
    let inside = d.bulk_bytes().saturating_sub(apart);
    let copied = copied_bytes + d.copied_bytes() + inside * head_copies;
    nfs.metrics.data.carried(transport(peer), DataDirection::Write, d.bulk_bytes(), copied);
    if let (Ok(message), Some(running)) = (&result, running) {
        running.finish(message);
    }
    match result {
        Ok(message) => Answer::Reply(with_header(header.xid, message)),
        Err(error) => reject(header.xid, Rejection::Accept(error)),
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
    target: Target,
    call: &Call,
    header: &CallHeader,
    d: &mut Decoder<'_>,
) -> Result<Message, AcceptError> {
    let now: Now = nfs.runtime.now();
    if target == Target::V4 {
        if header.procedure != COMPOUND {
            return Err(AcceptError::ProcedureUnavailable);
        }
        return nfs.v4.compound(call, now, d).await;
    }
    let mut e = Encoder::new();
    match target {
        Target::V3 => {
            let begun = nfs.metrics.begin();
            let handled = nfs.v3.handle(call, header.procedure, d, &mut e).await;
            nfs.metrics.procedure(header.procedure, begun);
            handled?;
        }
        _ => nfs.mount.handle(call, header.procedure, d, &mut e).await?,
    }
    Ok(e.finish())
}

/// Prepends the RPC header to a result.
fn with_header(xid: u32, result: Message) -> Message {
    let mut e = Encoder::with_capacity(32);
    encode_success(&mut e, xid);
    let mut message = e.finish();
    message.extend(result);
    message
}

fn success(xid: u32, body: impl FnOnce(&mut Encoder)) -> Answer {
    let mut e = Encoder::new();
    encode_success(&mut e, xid);
    body(&mut e);
    Answer::Reply(e.finish())
}

fn reject(xid: u32, why: Rejection) -> Answer {
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
