//! An intruder who sees the calls of clients with Kerberos on their way: it sends
//! them again, later or from elsewhere, changes copies of them, and forges calls
//! with the key of another client. Nothing of that may have an effect.

use super::{Network, peer_of};
use crate::executor::{Domain, SECOND, lock};
use crate::gateway::Gateway;
use crate::invariant::Invariant;
use crate::tls;
use bytes::Bytes;
use std::sync::Arc;
use zgate_nfs::Peer;
use zgate_nfs_wire::PROGRAM;
use zgate_rpc::CallHeader;
use zgate_rpc::auth::RPCSEC_GSS;
use zgate_rpc::gss::fake::{FakeCall, FakeContext};
use zgate_rpc::gss::{GssCredential, InitResult, Procedure, SEQUENCE_WINDOW, Service};
use zgate_rpc::message::{ReplyError, decode_verified_reply};
use zgate_xdr::{Decode, Decoder};

/// Longest time after which a call is sent again.
const LATER_NANOS: u64 = 20 * SECOND;
/// Number of the intruder in the network, and of its connection.
const STRANGER: (usize, u64) = (tls::STRANGER, u64::MAX);

/// Call of the intruder.
pub(super) struct Intrusion {
    kind: &'static str,
    record: Bytes,
    peer: Peer,
    /// The server has seen its number before: it must not answer, unless it does not
    /// know the context.
    is_repeated: bool,
}

/// A call of the intruder, and the time until then in nanoseconds.
pub(super) type Planned = (u64, Intrusion);

/// A call of a client with Kerberos, taken apart.
struct Seen<'a> {
    record: &'a Bytes,
    header: CallHeader,
    credential: GssCredential,
    /// End of the header.
    end: usize,
}

impl<'a> Seen<'a> {
    fn new(record: &'a Bytes) -> Option<Self> {
        let mut d = Decoder::new(record);
        let header = CallHeader::decode(&mut d).ok()?;
        let is_its = header.credential.flavor == RPCSEC_GSS;
        let credential = GssCredential::parse(&header.credential).ok().filter(|_| is_its)?;
        Some(Self { record, header, credential, end: d.position() })
    }

    /// The record with a bit changed, in its header or behind.
    fn changed(&self, in_header: bool, random: u64) -> Option<Bytes> {
        let (from, to) = match in_header {
            true => (0, self.end),
            false => (self.end, self.record.len()),
        };
        let bits = (to - from) as u64 * 8;
        let bit = from * 8 + random.checked_rem(bits)? as usize;
        let mut changed = self.record.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let changed = Bytes::from(changed);
        // A NULL call of another flavor is served: it needs no proof, and does nothing.
        let is_null = self.header.procedure == 0 && Seen::new(&changed).is_none();
        (!is_null).then_some(changed)
    }

    /// A call in the same context, signed with the key of another one.
    fn forged(&self, key: FakeContext, ahead: u64, ends: bool) -> Bytes {
        let procedure = if ends { Procedure::Destroy } else { Procedure::Data };
        let call = FakeCall {
            context: key,
            handle: self.credential.handle,
            procedure,
            sequence: self.credential.sequence + ahead as u32,
            service: Service::None,
            words: [self.header.xid, PROGRAM, self.header.version, 0],
            arguments: b"",
        };
        call.record().into()
    }
}

impl Network {
    /// A client has a context with this key: the intruder knows those of others.
    pub fn context_begins(&self, client: usize, key: FakeContext) {
        lock(&self.inside).context_keys.insert(client, key);
    }

    /// A call reaches the server: the intruder is a little faster, or comes later.
    /// Returns a replay of a token, for the time after the server has taken it: nobody
    /// can tell a replay of one that was lost from the token itself.
    pub(super) async fn intrude(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        (server, client): (u32, usize),
        peer: &Peer,
        record: &Bytes,
    ) -> Option<Planned> {
        let seen = Seen::new(record)?;
        let (before, later) = self.intrusions(&seen, client, peer);
        if let Some(intrusion) = before {
            self.judge(gateway, server, intrusion).await;
        }
        if seen.credential.carries_token() {
            return later;
        }
        self.intrude_later(later);
        None
    }

    /// Plans a call of the intruder, for whichever server runs then.
    pub(super) fn intrude_later(self: &Arc<Self>, planned: Option<Planned>) {
        let Some((delay, intrusion)) = planned else { return };
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(delay).await;
            let Some(gateway) = me.gateway() else { return };
            let Some(server) = gateway.running() else { return };
            let sender = Arc::clone(&me);
            me.executor.spawn(Domain::Server(server), async move {
                sender.judge(&gateway, server, intrusion).await;
            });
        });
    }

    /// Calls of the intruder before this one and after it.
    fn intrusions(
        &self,
        seen: &Seen<'_>,
        client: usize,
        peer: &Peer,
    ) -> (Option<Intrusion>, Option<Planned>) {
        let mut inside = lock(&self.inside);
        let other = inside.context_keys.iter().find(|(number, _)| **number != client);
        let other = other.map(|(_, key)| *key);
        let dice = &mut inside.intruder;
        let carries_token = seen.credential.carries_token();
        let before = match dice.below(16) {
            0 if !carries_token => seen
                .changed(true, dice.u64())
                .map(|record| ("a call with a changed header", record)),
            1 if !carries_token => {
                let key = other.unwrap_or(FakeContext { key: dice.u64() | 1 });
                let ahead = dice.spread(1, 3 * u64::from(SEQUENCE_WINDOW));
                Some(("a forged call", seen.forged(key, ahead, dice.once_in(2))))
            }
            _ => None,
        };
        let peer = match dice.once_in(2) {
            true => peer.clone(),
            false => peer_of(STRANGER.0, STRANGER.1, false),
        };
        let before = before.map(|(kind, record)| Intrusion {
            kind,
            record,
            peer: peer.clone(),
            is_repeated: false,
        });
        let delay = dice.spread(10_000, LATER_NANOS);
        let later = match dice.below(8) {
            0 => Some(("a replay", seen.record.clone())),
            1 => seen
                .changed(false, dice.u64())
                .filter(|_| !carries_token)
                .map(|record| ("a call with a changed body", record)),
            _ => None,
        };
        let later = later
            .map(|(kind, record)| (delay, Intrusion { kind, record, peer, is_repeated: true }));
        (before, later)
    }

    /// Sends a call of the intruder, and checks that nothing came of it.
    async fn judge(self: &Arc<Self>, gateway: &Arc<Gateway>, server: u32, intrusion: Intrusion) {
        let Intrusion { kind, record, peer, is_repeated } = intrusion;
        let carries_token = Seen::new(&record).is_some_and(|seen| seen.credential.carries_token());
        let reply = gateway.answer(server, peer, record).await;
        let told = reply.as_ref().map_or("nothing", |reply| told(reply, carries_token));
        self.trace.note("intruder", format_args!("{kind}: {told}"));
        let is_fine = match told {
            "success" => false,
            "an error" => !is_repeated || carries_token,
            _ => true,
        };
        if !is_fine {
            self.history.fail(Invariant::OnlyAuthentic, format!("{kind} was answered: {told}"));
        }
    }
}

/// Meaning of a reply.
fn told(reply: &[u8], carries_token: bool) -> &'static str {
    let mut d = Decoder::new(reply);
    match decode_verified_reply(&mut d) {
        Ok(_) if carries_token => match InitResult::decode(&mut d) {
            Ok(result) if result.is_complete() || result.needs_more() => "success",
            _ => "an error",
        },
        Ok(_) => "success",
        Err((_, ReplyError::AuthRefused(_) | ReplyError::RpcMismatch)) => "a refusal",
        Err(_) => "an error",
    }
}
