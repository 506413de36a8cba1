//! Serves a record: the protocol's dispatch, and what the gateway counts and
//! reports of it.

use super::gss;
use super::gss::call::GssCall;
use super::record::Received;
use super::refusal;
use super::service::{CallSource, Nfs};
use crate::net::connection_end::{ConnectionEnd, Misbehaved};
use crate::observe::data_path::{DataDirection, Transport};
use crate::observe::load::FinishedRequest;
use std::pin::pin;
use zgate_nfs::Peer;
use zgate_nfs::dispatch::{Incoming, Once, Programs, Target, Unaccepted, keep};
use zgate_nfs::runtime::{Protection, Runtime};
use zgate_rpc::{AcceptError, Credential};
use zgate_xdr::{Decoder, Message};

/// Result of a record.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Reply to be sent.
    Reply(Message),
    /// Nothing: newer copies of the request wait for its reply.
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

impl Nfs {
    fn programs(&self) -> Programs<'_> {
        let Self { v4, v3, mount, replies, .. } = self;
        Programs { v4, v3, mount, replies }
    }
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
    let arrived = Arrived { head_copies, copied_bytes, apart_bytes, is_protected: false };
    let is_named = || is_named || nfs.v4.admits_host(peer.address);
    let mut incoming = match Incoming::read(&mut d, peer, is_named) {
        Ok(incoming) => incoming,
        Err(Unaccepted::NotACall) => return Answer::Close(Misbehaved::NotACall.into()),
        Err(Unaccepted::Answered(message)) => return Answer::Reply(message),
        Err(Unaccepted::Stranger(message)) => {
            refusal::report_stranger(peer);
            return Answer::Reply(message);
        }
        Err(Unaccepted::InContext(call)) => {
            let (target, header) = *call;
            let call = GssCall { source, target, header, record: &head, arguments: d, arrived };
            // Apart: other requests need not have room for it.
            return Box::pin(gss::call::answer(call)).await;
        }
    };
    if let Credential::Sys(sys) = &incoming.call.credential
        && let Some(users) = source.managed_users(sys)
    {
        let groups = nfs.runtime.name_service.groups_of(&users);
        // Apart: other requests need not have room for it.
        incoming.call.groups = Some(Box::pin(groups).await);
    }
    match serve(source, &incoming, &mut d, arrived).await {
        Served::Results(results) => Answer::Reply(incoming.reply(Ok(results))),
        Served::Fault(error) => Answer::Reply(incoming.reply(Err(error))),
        Served::Nothing => Answer::Nothing,
    }
}

/// Runs a call of a host that may call; `d` is at the arguments.
pub(crate) async fn serve(
    source: &CallSource,
    incoming: &Incoming,
    d: &mut Decoder<'_>,
    arrived: Arrived,
) -> Served {
    let CallSource { nfs, peer, .. } = source;
    let programs = nfs.programs();
    let running = match programs.claim(incoming, d).await {
        Once::Run(running) => running,
        Once::Replay(message) => return Served::Results(message),
        Once::Superseded => return Served::Nothing,
    };
    let call = &incoming.call;
    let mut tally = source.load().begin();
    let now = nfs.runtime.now();
    let result = {
        let work = pin!(programs.run(incoming, now, d));
        tally.during(&call.entered, work).await
    };
    if incoming.target == Target::V3 {
        nfs.metrics.procedure(incoming.header.procedure, now.monotonic_nanos);
    }
    refusal::report(&nfs.v4, call);
    let finished = FinishedRequest {
        nanos: nfs.runtime.nanos().saturating_sub(now.monotonic_nanos),
        read_bytes: result.as_ref().map_or(0, Message::payload_bytes) as u64,
        written_bytes: d.bulk_bytes() as u64,
    };
    tally.finish(call.entered.get(), finished);
    // Data within the head was copied as often as the head.
    let inside = d.bulk_bytes().saturating_sub(arrived.apart_bytes);
    let copied = arrived.copied_bytes + d.copied_bytes() + inside * arrived.head_copies;
    let is_encrypted = arrived.is_protected || peer.protection > Protection::Plain;
    let copied = if is_encrypted { copied.max(d.bulk_bytes()) } else { copied };
    nfs.metrics.data.carried(transport(peer), DataDirection::Write, d.bulk_bytes(), copied);
    keep(&result, running);
    match result {
        Ok(message) => Served::Results(message),
        Err(error) => Served::Fault(error),
    }
}

/// Returns the transport of a peer's calls.
pub(crate) fn transport(peer: &Peer) -> Transport {
    if peer.rdma { Transport::Rdma } else { Transport::Tcp }
}
