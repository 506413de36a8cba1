//! Dispatch of a call to the program that it names: header, credential,
//! duplicate request cache, server.

use crate::assurance::Assurance;
use crate::runtime::{Call, EnteredExport, Now, Peer, RefusedAccess};
use crate::{mount, v3, v4};
use std::pin::pin;
use zgate_nfs_wire::mount::PROGRAM as MOUNT_PROGRAM;
use zgate_nfs_wire::{PROGRAM as NFS_PROGRAM, v4::COMPOUND};
use zgate_rpc::auth::{AUTH_TLS, RPCSEC_GSS};
use zgate_rpc::drc::{CallerDigest, Claim, Key, ReplyCache, Running};
use zgate_rpc::message::{CallError, encode_success, rejection};
use zgate_rpc::{AcceptError, AuthError, CallHeader, Credential, Rejection};
use zgate_xdr::{Decoder, Encoder, Message};

/// Server that a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// NFSv4.
    V4,
    /// NFSv3.
    V3,
    /// MOUNT 3.
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
#[must_use]
pub fn serves(program: u32, version: u32) -> bool {
    route(program, version).is_ok()
}

/// The servers of a gateway, and what they keep of calls that have run.
#[derive(Clone, Copy)]
pub struct Programs<'a> {
    /// NFSv4.
    pub v4: &'a v4::Server,
    /// NFSv3.
    pub v3: &'a v3::Server,
    /// MOUNT 3.
    pub mount: &'a mount::Server,
    /// The duplicate request cache.
    pub replies: &'a ReplyCache,
}

/// A call whose header is valid.
#[derive(Debug)]
pub struct Incoming {
    /// Its server.
    pub target: Target,
    /// Its header.
    pub header: CallHeader,
    /// The call, as the servers see it.
    pub call: Call,
}

/// Reason for which a record is not carried out.
#[derive(Debug)]
pub enum Unaccepted {
    /// The bytes are not a call.
    NotACall,
    /// It is answered without a server: an error, or procedure 0.
    Answered(Message),
    /// No export names the host; the answer.
    Stranger(Message),
    /// Its context must be found first (RPCSEC_GSS): continue with
    /// [`Incoming::of`].
    InContext(Box<(Target, CallHeader)>),
}

/// Handling of a call that may be a copy of an earlier one.
pub enum Once<'a> {
    /// Carry it out; its reply is kept if there is a value.
    Run(Option<Running<'a>>),
    /// It has been carried out: the result, without the RPC header.
    Replay(Message),
    /// Newer copies wait for the reply: none is sent here.
    Superseded,
}

impl Incoming {
    /// Reads the header of a record, at the beginning of `d`. `is_named`: an
    /// export names the host.
    ///
    /// # Errors
    /// [`Unaccepted`].
    pub fn read(
        d: &mut Decoder<'_>,
        peer: &Peer,
        is_named: impl FnOnce() -> bool,
    ) -> Result<Self, Unaccepted> {
        let rejected = |xid, why| Unaccepted::Answered(rejection(xid, why));
        let header = CallHeader::decode(d).map_err(|error| match error {
            CallError::NotACall => Unaccepted::NotACall,
            CallError::Reject { xid, why } => rejected(xid, why),
        })?;
        let xid = header.xid;
        let target = route(header.program, header.version)
            .map_err(|error| rejected(xid, Rejection::Accept(error)))?;
        if header.credential.flavor == AUTH_TLS {
            // A request that was granted does not come here (RFC 9289 §4.1).
            return Err(rejected(xid, Rejection::Auth(AuthError::BadCredential)));
        }
        let has_context = header.credential.flavor == RPCSEC_GSS;
        if header.procedure == 0 && !has_context {
            return Err(Unaccepted::Answered(success(xid, Message::default())));
        }
        // Checked before the reply cache, and before anything is looked up or
        // changed.
        if !is_named() {
            let answer = rejection(xid, Rejection::Auth(AuthError::TooWeak));
            return Err(Unaccepted::Stranger(answer));
        }
        if has_context {
            return Err(Unaccepted::InContext(Box::new((target, header))));
        }
        let credential = Credential::parse(&header.credential)
            .map_err(|error| rejected(xid, Rejection::Auth(error)))?;
        Ok(Self::of((target, header), credential, peer, false))
    }

    /// A call of this caller. `is_protected`: its arguments and results are signed
    /// or encrypted.
    #[must_use]
    pub fn of(
        (target, header): (Target, CallHeader),
        credential: Credential,
        peer: &Peer,
        is_protected: bool,
    ) -> Self {
        // A device sends memory, not files; and whatever is encrypted is memory.
        let is_plain = !peer.is_sealed() && !is_protected;
        let span_allowed = !peer.rdma && is_plain;
        let (entered, refused) = (EnteredExport::default(), RefusedAccess::default());
        let (peer, xid) = (peer.clone(), header.xid);
        let call = Call { peer, credential, xid, span_allowed, entered, refused, groups: None };
        Self { target, header, call }
    }

    /// Returns the reply cache key of a call without a session, so that a
    /// retransmission is answered and not run again. `d`: its arguments.
    fn cache_key(&self, d: &Decoder<'_>) -> Option<Key> {
        let procedure = self.header.procedure;
        let keep = match self.target {
            Target::V4 => procedure == COMPOUND && v4::retry::must_run_once(d),
            Target::V3 => !v3::row(procedure).is_none_or(|row| row.idempotent),
            Target::Mount => false,
        };
        keep.then(|| {
            let Call { peer, credential, .. } = &self.call;
            let caller = CallerDigest::new(credential, &Assurance::of(peer));
            Key::new((peer.address, peer.port).into(), caller, &self.header, d.rest())
        })
    }

    /// Returns the reply to a result.
    #[must_use]
    pub fn reply(&self, result: Result<Message, AcceptError>) -> Message {
        match result {
            Ok(message) => success(self.header.xid, message),
            Err(error) => rejection(self.header.xid, Rejection::Accept(error)),
        }
    }
}

/// Keeps a result for retransmissions.
pub fn keep(result: &Result<Message, AcceptError>, running: Option<Running<'_>>) {
    if let (Ok(message), Some(running)) = (result, running) {
        running.finish(message);
    }
}

impl<'a> Programs<'a> {
    /// Waits until no copy of the call runs. Cancel safe. `d`: its arguments.
    pub async fn claim(&self, incoming: &Incoming, d: &Decoder<'_>) -> Once<'a> {
        let Some(key) = incoming.cache_key(d) else { return Once::Run(None) };
        match self.replies.claim(key).await {
            Claim::Run(running) => Once::Run(Some(running)),
            Claim::Replay(message) => Once::Replay(message),
            Claim::Superseded => Once::Superseded,
        }
    }

    /// Carries out a call; returns its result without the RPC header.
    ///
    /// # Errors
    /// [`AcceptError`], the client's fault.
    pub async fn run(
        &self,
        incoming: &Incoming,
        now: Now,
        d: &mut Decoder<'_>,
    ) -> Result<Message, AcceptError> {
        let Incoming { target, header, call } = incoming;
        if *target == Target::V4 {
            if header.procedure != COMPOUND {
                return Err(AcceptError::ProcedureUnavailable);
            }
            // Pinned where it is made: awaited by value, its kilobyte is moved twice.
            let work = pin!(self.v4.compound(call, now, d));
            return work.await;
        }
        let mut e = Encoder::new();
        if *target == Target::V3 {
            self.v3.handle(call, header.procedure, d, &mut e).await?;
        } else {
            self.mount.handle(call, header.procedure, d, &mut e).await?;
        }
        Ok(e.finish())
    }
}

/// Bytes of the header of an accepted call: xid, REPLY, MSG_ACCEPTED, the
/// verifier AUTH_NONE, SUCCESS (RFC 5531 §9).
const SUCCESS_BYTES: usize = 24;

/// Prepends the RPC header to a result.
fn success(xid: u32, mut result: Message) -> Message {
    let mut e = Encoder::with_capacity(SUCCESS_BYTES);
    encode_success(&mut e, xid);
    if let Some(header) = e.finish_bytes() {
        result.prepend(header);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Protection;
    use crate::v3::proc::rig::a_call;
    use std::sync::Arc;
    use zgate_rpc::AuthSys;
    use zgate_rpc::auth::{GssCaller, GssIdentity, GssUser, OpaqueAuth};
    use zgate_rpc::drc::Begin;
    use zgate_rpc::gss::Service;

    /// REMOVE of NFSv3 by this caller.
    fn remove_by(credential: Credential, peer: &Peer) -> Incoming {
        let header = CallHeader {
            xid: 5,
            program: NFS_PROGRAM,
            version: 3,
            procedure: 12,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        Incoming::of((Target::V3, header), credential, peer, false)
    }

    fn by_kerberos(principal: &str, user: GssUser) -> Credential {
        let (principal, acceptor) = (principal.into(), "nfs/server@R".into());
        let identity = Arc::new(GssIdentity { principal, acceptor, user });
        Credential::Gss(GssCaller { service: Service::Integrity, identity })
    }

    #[test]
    fn a_kept_reply_is_for_the_caller_who_caused_it() {
        let replies = ReplyCache::new();
        let peer = a_call().peer;
        let begin = |credential: Credential, peer: &Peer| {
            let key = remove_by(credential, peer).cache_key(&Decoder::new(b"arguments"));
            replies.begin(key.unwrap())
        };
        let sys = || Credential::Sys(AuthSys::default());
        let protected = Peer { protection: Protection::Tls, ..peer.clone() };
        let alice = |user| by_kerberos("alice@R", user);
        for (credential, peer) in [
            (sys(), &peer),
            (sys(), &protected),
            (Credential::None, &peer),
            (alice(GssUser::Nobody), &peer),
            (by_kerberos("bob@R", GssUser::Nobody), &peer),
        ] {
            let text = format!("{credential:?} {:?}", peer.protection);
            let Begin::New(running) = begin(credential, peer) else { panic!("{text}") };
            running.finish(&Message::default());
        }
        // A retry over a new connection, and one in a renewed context.
        let reconnected = AuthSys { stamp: 1, ..AuthSys::default() };
        let again = [Credential::Sys(reconnected), alice(GssUser::NotYetKnown)];
        for credential in again {
            let text = format!("{credential:?}");
            assert!(matches!(begin(credential, &peer), Begin::Replay(_)), "{text}");
        }
    }

    #[test]
    fn programs_and_versions() {
        assert_eq!(route(100_003, 4), Ok(Target::V4));
        assert_eq!(route(100_003, 2), Err(AcceptError::ProgramMismatch(3, 4)));
        assert_eq!(route(100_005, 1), Err(AcceptError::ProgramMismatch(3, 3)));
        assert_eq!(route(100_000, 2), Err(AcceptError::ProgramUnavailable));
    }
}
