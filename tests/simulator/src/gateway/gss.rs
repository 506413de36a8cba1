//! Calls under Kerberos, as `gateway/src/nfs/gss` serves them. The rules, the table
//! of contexts, the window and the wire form are the product's.

use super::{Gateway, Instance};
use crate::dice::Dice;
use crate::executor::{MILLISECOND, SECOND, lock};
use crate::kerberos::ServerContext;
use crate::mutant::Mutant;
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use zgate_nfs::Peer;
use zgate_nfs::dispatch::{Incoming, Target};
use zgate_nfs::runtime::Runtime;
use zgate_rpc::auth::{GssCaller, OpaqueAuth};
use zgate_rpc::gss::{
    Contexts, Established, GssCredential, Handle, InitToken, Procedure, Refusal, SecurityContext,
    SequenceFault, Service, Told, check_token_call, open_arguments, results_reply, seal_results,
    signed_header, token_reply,
};
use zgate_rpc::message::rejection;
use zgate_rpc::{AcceptError, AuthError, CallHeader, Credential, Rejection};
use zgate_store::HostKey;
use zgate_xdr::{Decode, Decoder, Message};

/// Longest time that a token takes: a keytab, a replay cache, a directory.
const TOKEN_NANOS: u64 = SECOND / 5;

/// Contexts of one start of the server.
pub(super) struct Kerberos {
    pub(super) contexts: Contexts<ServerContext>,
    dice: Mutex<Dice>,
    /// A planted fault serves calls in contexts of others.
    begun: Mutex<Vec<Handle>>,
}

impl Kerberos {
    pub(super) fn new(dice: Dice) -> Self {
        Self { contexts: Contexts::default(), dice: Mutex::new(dice), begun: Mutex::default() }
    }
}

type Context = Arc<Established<ServerContext>>;

/// A call whose credential is one of RPCSEC_GSS.
pub(super) struct GssCall<'a> {
    pub(super) peer: &'a Peer,
    pub(super) target: Target,
    pub(super) header: CallHeader,
    pub(super) record: &'a Bytes,
    /// At the arguments.
    pub(super) arguments: Decoder<'a>,
}

impl Gateway {
    /// Answers a call; `None`: it is dropped.
    pub(super) async fn answer_in_context(
        &self,
        instance: &Instance,
        call: GssCall<'_>,
    ) -> Option<Message> {
        let xid = call.header.xid;
        let answered = match GssCredential::parse(&call.header.credential) {
            Err(error) => Err(error),
            Ok(credential) if credential.carries_token() => {
                self.take_token(instance, call, &credential).await
            }
            Ok(credential) => self.run_in_context(instance, call, &credential).await,
        };
        answered.unwrap_or_else(|error| Some(rejection(xid, Rejection::Auth(error))))
    }

    /// INIT and CONTINUE_INIT.
    async fn take_token(
        &self,
        instance: &Instance,
        call: GssCall<'_>,
        credential: &GssCredential,
    ) -> Result<Option<Message>, AuthError> {
        let GssCall { peer, header, mut arguments, .. } = call;
        check_token_call(&header, credential)?;
        let token = InitToken::decode(&mut arguments).ok();
        let token = token.filter(|_| arguments.finish().is_ok());
        let told = match token {
            Some(InitToken(token)) => {
                Some(self.established(instance, peer, credential, &token).await)
            }
            None => None,
        };
        Ok(Some(token_reply(header.xid, told.as_ref())))
    }

    async fn established(
        &self,
        instance: &Instance,
        peer: &Peer,
        credential: &GssCredential,
        token: &[u8],
    ) -> Told {
        let kerberos = &instance.kerberos;
        let host = HostKey::from(peer.address);
        let now_seconds = instance.runtime.now().seconds();
        let waiting = match kerberos.contexts.continued(credential, host, now_seconds) {
            Ok(waiting) => waiting,
            Err(told) => return (told, OpaqueAuth::none()),
        };
        let (random, nanos) = {
            let mut dice = lock(&kerberos.dice);
            (dice.u64(), dice.spread(MILLISECOND / 10, TOKEN_NANOS))
        };
        let step = self.acceptor.accept(waiting, token, random);
        self.executor.sleep(nanos).await;
        let handle = Handle(lock(&kerberos.dice).u64());
        let told = kerberos.contexts.keep_and_tell(step, handle, host, now_seconds);
        if told.0.is_complete() {
            lock(&kerberos.begun).push(handle);
        }
        told
    }

    /// DATA and DESTROY.
    async fn run_in_context(
        &self,
        instance: &Instance,
        call: GssCall<'_>,
        credential: &GssCredential,
    ) -> Result<Option<Message>, AuthError> {
        let xid = call.header.xid;
        let admitted = match self.admitted(instance, &call, credential) {
            Ok(context) => context,
            Err(refusal) => return refusal.error().map_or(Ok(None), Err),
        };
        let result = if credential.procedure == Procedure::Destroy {
            instance.kerberos.contexts.destroy(&call.header, credential)?;
            Ok(Message::default())
        } else {
            match self.results(instance, call, credential, &admitted).await {
                Some(result) => result,
                None => return Ok(None),
            }
        };
        let sealed =
            result.and_then(|results| seal_results(&admitted.security, credential, results));
        let sequence = match self.mutant {
            Some(Mutant::ReplyOfAnother) => credential.sequence + 1,
            _ => credential.sequence,
        };
        results_reply(&admitted.security, sequence, xid, sealed).map(Some)
    }

    /// Runs a call of the program; `None`: newer copies of it wait for the reply.
    async fn results(
        &self,
        instance: &Instance,
        call: GssCall<'_>,
        credential: &GssCredential,
        context: &Context,
    ) -> Option<Result<Message, AcceptError>> {
        let GssCall { peer, target, header, record, mut arguments } = call;
        let is_hidden = credential.service != Service::None;
        let at = arguments.position();
        let opened = match is_hidden {
            true => match open_arguments(&context.security, credential, record, at) {
                Ok(opened) => Some(opened),
                Err(error) => return Some(Err(error)),
            },
            false => None,
        };
        if header.procedure == 0 {
            return Some(Ok(Message::default()));
        }
        let identity = Arc::clone(&context.security.identity);
        let caller = Credential::Gss(GssCaller { service: credential.service, identity });
        let incoming = Incoming::of((target, header), caller, peer, is_hidden);
        match &opened {
            Some(opened) => self.run(instance, &incoming, &mut Decoder::shared(opened)).await,
            None => self.run(instance, &incoming, &mut arguments).await,
        }
    }

    /// The context of a call, as the product finds it, unless a fault is planted.
    fn admitted(
        &self,
        instance: &Instance,
        call: &GssCall<'_>,
        credential: &GssCredential,
    ) -> Result<Context, Refusal> {
        let contexts = &instance.kerberos.contexts;
        let now_seconds = instance.runtime.now().seconds();
        let admitted = contexts.admit(credential, (&call.header, call.record), now_seconds);
        let find = |handle| contexts.find(handle, now_seconds);
        let stated = || credential.handle.and_then(find);
        match (self.mutant, admitted) {
            (Some(Mutant::WindowBeforeMic), Err(Refusal::BadVerifier)) => {
                // Whether the number is new changes nothing here.
                let _ = stated().map(|context| context.take(credential.sequence));
                Err(Refusal::BadVerifier)
            }
            (Some(Mutant::ReplayServed), Err(refusal @ Refusal::Sequence(SequenceFault::Seen))) => {
                stated().ok_or(refusal)
            }
            (Some(Mutant::ContextOfAnother), Err(Refusal::BadVerifier)) => {
                let verifies = |context: &Context| {
                    signed_header(call.record, &call.header).is_some_and(|signed| {
                        context.security.verifies(signed, &call.header.verifier.body)
                    })
                };
                let begun = lock(&instance.kerberos.begun).clone();
                let other = begun.into_iter().filter_map(find).any(|context| verifies(&context));
                stated().filter(|_| other).ok_or(Refusal::BadVerifier)
            }
            (_, admitted) => admitted,
        }
    }
}
