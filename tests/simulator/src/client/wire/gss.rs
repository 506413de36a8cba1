//! Kerberos of a client: its contexts, and calls under them. A repeated call has a
//! new sequence number (RFC 2203 §5.3.3.1); a context that the server does not know
//! is replaced, and the call repeated (§5.3.3.3).

use super::acceptor::CallbackAcceptor;
use super::{Answer, Wire};
use crate::dice::Dice;
use crate::executor::{Executor, SECOND, lock};
use crate::history::History;
use crate::invariant::Invariant;
use crate::kerberos::{Initiator, Taken};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use zgate_nfs_wire::PROGRAM;
use zgate_rpc::AuthError;
use zgate_rpc::gss::{Establishing, OutgoingContext, OutgoingFault, Service};
use zgate_rpc::message::{ReplyError, decode_reply, decode_verified_reply};
use zgate_xdr::{Decoder, Message};

/// Time before the end of a ticket at which a client that looks at its clock gets
/// another one, in seconds.
const MARGIN_SECONDS: u64 = 1;

/// Kerberos of a client.
pub struct GssClient {
    seed: u64,
    service: Service,
    /// The client gets another context before its ticket ends, and ends the old one;
    /// otherwise the server tells it.
    watches_end: bool,
    dice: Mutex<Dice>,
    current: Mutex<Option<Arc<OutgoingContext>>>,
    establishing: tokio::sync::Mutex<()>,
    /// Takes the server's calls.
    pub(super) acceptor: Arc<CallbackAcceptor>,
    history: Arc<History>,
}

impl GssClient {
    /// A client without a context.
    #[must_use]
    pub fn new(
        (seed, client): (u64, usize),
        service: Service,
        executor: &Arc<Executor>,
        history: &Arc<History>,
    ) -> Self {
        let mut dice = Dice::new(seed, &format!("kerberos{client}"));
        Self {
            seed,
            service,
            watches_end: dice.once_in(2),
            dice: Mutex::new(dice),
            current: Mutex::default(),
            establishing: tokio::sync::Mutex::default(),
            acceptor: Arc::new(CallbackAcceptor::new(seed, executor, history)),
            history: Arc::clone(history),
        }
    }

    /// The client restarts, and has no contexts.
    pub(super) fn restart(&self) {
        *lock(&self.current) = None;
        self.acceptor.restart();
    }

    fn forget(&self, lost: &Arc<OutgoingContext>) {
        lock(&self.current).take_if(|current| Arc::ptr_eq(current, lost));
    }

    fn fail(&self, text: String) {
        self.history.fail(Invariant::OnlyAuthentic, text);
    }
}

/// The server has not begun the call: it does not know the context.
fn has_not_run(reply: &[u8]) -> bool {
    let problem = ReplyError::AuthRefused(AuthError::GssCredentialProblem as u32);
    matches!(decode_verified_reply(&mut Decoder::new(reply)), Err((_, error)) if error == problem)
}

impl Wire {
    /// Calls a procedure until there is an answer. `plain`: the call without
    /// protection.
    pub(super) async fn call_in_context(
        &self,
        gss: &GssClient,
        (xid, version): (u32, u32),
        plain: Bytes,
    ) -> Answer {
        let plain = Message::from(plain);
        let (mut sent, mut first) = (0, None);
        loop {
            let link = self.link().await;
            let Some(context) = self.context(gss, link, version).await else {
                self.give_up(link);
                continue;
            };
            let Ok(call) = context.protect(&plain) else {
                gss.forget(&context);
                continue;
            };
            sent += 1;
            let sent_at = *first.get_or_insert(self.executor.nanos());
            let answer = self.network.call(link, xid, call.record.clone().into()).await;
            let Ok(answer) = answer else {
                self.trace.note(&self.name, format_args!("call {xid:x} lost on #{link}"));
                self.give_up(link);
                continue;
            };
            match context.open(&call, &answer) {
                Ok(opened) => {
                    let mut d = Decoder::new(&opened);
                    let _ = decode_reply(&mut d);
                    return Answer { body: opened.slice(d.position()..), sent, sent_at };
                }
                Err(OutgoingFault::ContextLost) => {
                    self.trace.note(&self.name, format_args!("call {xid:x}: context lost"));
                    // The context may also have ended while the call ran.
                    sent -= u32::from(has_not_run(&answer));
                    gss.forget(&context);
                }
                Err(fault) => {
                    gss.fail(format!("reply to {xid:x} of client{}: {fault}", self.client));
                    self.pause().await;
                }
            }
        }
    }

    /// The context; a new one where there is none. `None`: the connection is lost.
    async fn context(
        &self,
        gss: &GssClient,
        link: u64,
        version: u32,
    ) -> Option<Arc<OutgoingContext>> {
        let _one_at_a_time = gss.establishing.lock().await;
        let known = lock(&gss.current).clone();
        let now_seconds = self.executor.nanos() / SECOND;
        if let Some(known) = known.as_ref().filter(|known| known.is_usable(now_seconds)) {
            return Some(Arc::clone(known));
        }
        let context = loop {
            match self.establish(gss, link, version).await? {
                Ok(context) => break Arc::new(context),
                // The server has restarted between two tokens, or waited too long.
                Err(OutgoingFault::TokenRefused { .. }) => self.pause().await,
                Err(fault) => {
                    gss.fail(format!("a context of client{}: {fault}", self.client));
                    return None;
                }
            }
        };
        *lock(&gss.current) = Some(Arc::clone(&context));
        if let Some(old) = known {
            self.end(gss, link, &old).await;
        }
        Some(context)
    }

    /// Establishes a context. `None`: the connection is lost.
    async fn establish(
        &self,
        gss: &GssClient,
        link: u64,
        version: u32,
    ) -> Option<Result<OutgoingContext, OutgoingFault>> {
        let initiator = Initiator::new(gss.seed, self.client, &mut lock(&gss.dice));
        let began_seconds = self.executor.nanos() / SECOND;
        let ends_seconds = match gss.watches_end {
            true => began_seconds + initiator.lifetime_seconds.saturating_sub(MARGIN_SECONDS),
            false => u64::MAX,
        };
        let mut establishing = Establishing::new(PROGRAM, version);
        let mut token = initiator.token();
        loop {
            let xid = self.next_xid();
            let call = match establishing.call(xid, token) {
                Ok(call) => call.flatten().unwrap_or_default(),
                Err(fault) => return Some(Err(fault)),
            };
            let raw = self.network.call(link, xid, call).await.ok()?;
            let step = match establishing.reply(xid, &raw) {
                Ok(step) => step,
                Err(fault) => return Some(Err(fault)),
            };
            match (initiator.take(&step.token), step.proof) {
                (Some(Taken::Next(next)), None) => token = next,
                (Some(Taken::Established(key)), Some(proof)) => {
                    let established = Box::new(key);
                    self.network.context_begins(self.client, key);
                    self.trace.note(&self.name, format_args!("a context, {:?}", gss.service));
                    return Some(establishing.finish(
                        established,
                        &proof,
                        gss.service,
                        ends_seconds,
                    ));
                }
                _ => return Some(Err(OutgoingFault::BadResults)),
            }
        }
    }

    /// Ends a context at the server (RFC 2203 §5.4). If that is lost, the context
    /// ends with its ticket.
    async fn end(&self, gss: &GssClient, link: u64, old: &OutgoingContext) {
        let xid = self.next_xid();
        let Some(call) = old.destroy(xid) else { return };
        let Ok(raw) = self.network.call(link, xid, call.record.clone().into()).await else {
            return;
        };
        let end = old.open_destroyed(&call, &raw);
        self.trace.note(&self.name, format_args!("ends a context: {end:?}"));
        match end {
            Ok(()) | Err(OutgoingFault::ContextLost) => {}
            Err(fault) => gss.fail(format!("DESTROY of client{}: {fault}", self.client)),
        }
    }
}
