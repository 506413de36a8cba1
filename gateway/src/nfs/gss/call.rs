//! Calls under RPCSEC_GSS, from their header to their reply (RFC 2203 §5.3).

use super::establish::establish;
use super::kerberos::{ClientContext, Kerberos, Offer, count};
use super::limits::WORKER_BODY_BYTES;
use crate::nfs::dispatch::{Answer, Arrived, Served, serve, transport};
use crate::nfs::service::CallSource;
use crate::observe::data_path::DataDirection;
use bytes::Bytes;
use std::sync::Arc;
use zgate_nfs::dispatch::{Incoming, Target};
use zgate_nfs::runtime::Runtime;
use zgate_rpc::auth::GssCaller;
use zgate_rpc::gss::{
    Established, GssCredential, Procedure, Refusal, Service, check_token_call, open_arguments,
    results_reply, seal_results, token_reply,
};
use zgate_rpc::message::rejection;
use zgate_rpc::{AcceptError, AuthError, CallHeader, Credential, Rejection};
use zgate_xdr::{Decoder, Message};

/// A call whose credential is one of RPCSEC_GSS.
pub(crate) struct GssCall<'a> {
    pub source: &'a CallSource,
    pub target: Target,
    pub header: CallHeader,
    /// The whole call, without a body that was received separately.
    pub record: &'a Bytes,
    /// At the arguments.
    pub arguments: Decoder<'a>,
    pub arrived: Arrived,
}

/// Serves a call.
pub(crate) async fn answer(call: GssCall<'_>) -> Answer {
    let (nfs, xid) = (&call.source.nfs, call.header.xid);
    let refuse = |error| Answer::Reply(rejection(xid, Rejection::Auth(error)));
    let Some(offer) = nfs.kerberos.offer() else { return refuse(AuthError::RejectedCredential) };
    let credential = match GssCredential::parse(&call.header.credential) {
        Ok(credential) => credential,
        Err(error) => return refuse(error),
    };
    let answered = if credential.carries_token() {
        begin(call, &credential, offer).await
    } else {
        run(call, credential, offer).await
    };
    answered.unwrap_or_else(refuse)
}

/// INIT and CONTINUE_INIT.
async fn begin(
    call: GssCall<'_>,
    credential: &GssCredential,
    offer: Arc<Offer>,
) -> Result<Answer, AuthError> {
    let GssCall { source, header, arguments, .. } = call;
    check_token_call(&header, credential)?;
    let told = establish(&source.nfs, (&source.peer, offer), credential, arguments).await;
    Ok(Answer::Reply(token_reply(header.xid, told.as_ref())))
}

type Context = Arc<Established<ClientContext>>;

/// DATA and DESTROY.
async fn run(
    call: GssCall<'_>,
    credential: GssCredential,
    offer: Arc<Offer>,
) -> Result<Answer, AuthError> {
    let (kerberos, xid) = (&call.source.nfs.kerberos, call.header.xid);
    let now_seconds = call.source.nfs.runtime.now().seconds();
    let Some(context) = admit(kerberos, &call, &credential, now_seconds)? else {
        return Ok(Answer::Nothing);
    };
    let served = if credential.procedure == Procedure::Destroy {
        kerberos.contexts.destroy(&call.header, &credential)?;
        Served::Results(Message::default())
    } else {
        run_data(call, &credential, (&context, &offer, now_seconds)).await
    };
    let result = match served {
        Served::Nothing => return Ok(Answer::Nothing),
        Served::Fault(error) => Err(error),
        Served::Results(results) => seal(&context, &credential, &offer, results).await,
    };
    results_reply(&context.security, credential.sequence, xid, result).map(Answer::Reply)
}

/// Finds the context of a call. `None`: the call is dropped (RFC 2203 §5.3.3.1).
fn admit(
    kerberos: &Kerberos,
    call: &GssCall<'_>,
    credential: &GssCredential,
    now_seconds: u64,
) -> Result<Option<Context>, AuthError> {
    let refusal =
        match kerberos.contexts.admit(credential, (&call.header, call.record), now_seconds) {
            Ok(context) => return Ok(Some(context)),
            Err(refusal) => refusal,
        };
    let counts = &kerberos.counts;
    count(match refusal {
        Refusal::UnknownContext => &counts.unknown_context,
        Refusal::BadVerifier => &counts.bad_verifier,
        Refusal::Sequence(_) => &counts.bad_sequence,
    });
    refusal.error().map_or(Ok(None), Err)
}

/// Runs a call of the program.
async fn run_data(
    call: GssCall<'_>,
    credential: &GssCredential,
    (context, offer, now_seconds): (&Context, &Offer, u64),
) -> Served {
    let GssCall { source, target, header, record, mut arguments, arrived } = call;
    let is_hidden = credential.service != Service::None;
    let opened = if is_hidden {
        match open(context, credential, offer, record.slice(arguments.position()..)).await {
            Ok(opened) => Some(opened),
            Err(error) => {
                count(&source.nfs.kerberos.counts.bad_arguments);
                return Served::Fault(error);
            }
        }
    } else {
        None
    };
    if header.procedure == 0 {
        return Served::Results(Message::default());
    }
    let identity = context.security.identity.current(&offer.engine, now_seconds);
    let caller = Credential::Gss(GssCaller { service: credential.service, identity });
    let incoming = Incoming::of((target, header), caller, &source.peer, is_hidden);
    let Some(opened) = opened else {
        return serve(source, &incoming, &mut arguments, arrived).await;
    };
    let mut d = Decoder::shared(&opened);
    let arrived = Arrived { is_protected: true, ..arrived };
    let served = serve(source, &incoming, &mut d, arrived).await;
    if let Served::Results(results) = &served {
        // The reply itself consists of bytes that nobody knows as data.
        let bytes = results.payload_bytes();
        let data = &source.nfs.metrics.data;
        data.carried(transport(&source.peer), DataDirection::Read, bytes, bytes);
    }
    served
}

/// Verifies or decrypts arguments; long ones on a worker.
async fn open(
    context: &Context,
    credential: &GssCredential,
    offer: &Offer,
    protected: Bytes,
) -> Result<Bytes, AcceptError> {
    if protected.len() < WORKER_BODY_BYTES {
        return open_arguments(&context.security, credential, &protected, 0);
    }
    let (context, credential) = (Arc::clone(context), credential.clone());
    let work = move || open_arguments(&context.security, &credential, &protected, 0);
    offer.engine.run_long(work).await.unwrap_or(Err(AcceptError::SystemError))
}

/// Protects results; long ones on a worker.
async fn seal(
    context: &Context,
    credential: &GssCredential,
    offer: &Offer,
    results: Message,
) -> Result<Message, AcceptError> {
    if credential.service == Service::None || results.len() < WORKER_BODY_BYTES {
        return seal_results(&context.security, credential, results);
    }
    let (context, credential) = (Arc::clone(context), credential.clone());
    let work = move || seal_results(&context.security, &credential, results);
    offer.engine.run_long(work).await.unwrap_or(Err(AcceptError::SystemError))
}
