//! Callbacks of NFSv4.0 under Kerberos, as `gateway/src/nfs/gss/callbacks.rs` makes
//! them. The contexts and the wire form are the product's.

use crate::dice::Dice;
use crate::executor::lock;
use crate::kerberos::{Initiator, Taken};
use crate::network::Network;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use zgate_nfs::callback_security::CallbackSecurity;
use zgate_nfs::runtime::{CallbackFailure, CallbackPath};
use zgate_rpc::CallHeader;
use zgate_rpc::gss::{Establishing, OutgoingContext, OutgoingFault};
use zgate_xdr::{Decoder, Message};

/// A client that is called under Kerberos.
pub(super) struct ProtectedClient {
    pub(super) network: Arc<Network>,
    pub(super) seed: u64,
    pub(super) dice: Mutex<Dice>,
    pub(super) address: SocketAddr,
    pub(super) security: Arc<CallbackSecurity>,
    pub(super) now_seconds: u64,
}

enum Fault {
    Failed(CallbackFailure),
    Context(OutgoingFault),
}

impl From<OutgoingFault> for Fault {
    fn from(fault: OutgoingFault) -> Self {
        Self::Context(fault)
    }
}

impl ProtectedClient {
    /// Sends a call under a context, which is begun first if there is none.
    pub(super) async fn call(&self, call: &Message) -> Result<Bytes, CallbackFailure> {
        self.called(call).await.map_err(|fault| match fault {
            Fault::Failed(failure) => failure,
            Fault::Context(_) => CallbackFailure::Unreachable,
        })
    }

    async fn called(&self, call: &Message) -> Result<Bytes, Fault> {
        if let Some(context) = self.security.context(self.now_seconds) {
            match self.exchange(&context, call).await {
                Err(Fault::Context(OutgoingFault::ContextLost)) => self.security.forget(&context),
                result => return result,
            }
        }
        let context = Arc::new(self.begin(call).await?);
        self.security.keep(Arc::clone(&context));
        self.exchange(&context, call).await
    }

    async fn sent(&self, record: Bytes) -> Result<Bytes, Fault> {
        let path = CallbackPath::Address(self.address);
        self.network.callback(path, record).await.map_err(Fault::Failed)
    }

    async fn exchange(&self, context: &OutgoingContext, call: &Message) -> Result<Bytes, Fault> {
        let protected = context.protect(call)?;
        let raw = self.sent(protected.record.clone().into()).await?;
        Ok(context.open(&protected, &raw)?)
    }

    async fn begin(&self, call: &Message) -> Result<OutgoingContext, Fault> {
        let plain = call.flatten().unwrap_or_default();
        let header = CallHeader::decode(&mut Decoder::new(&plain));
        let header = header.map_err(|_| OutgoingFault::NotAReply)?;
        let client = self.network.client_at(self.address.ip());
        let client = client.ok_or(Fault::Failed(CallbackFailure::Unreachable))?;
        let initiator = Initiator::new(self.seed, client, &mut lock(&self.dice));
        let mut establishing = Establishing::new(header.program, header.version);
        let mut token = initiator.token();
        loop {
            let init = establishing.call(header.xid, token)?.flatten().unwrap_or_default();
            let step = establishing.reply(header.xid, &self.sent(init).await?)?;
            match (initiator.take(&step.token), step.proof) {
                (Some(Taken::Next(next)), None) => token = next,
                (Some(Taken::Established(key)), Some(proof)) => {
                    let ends_seconds = self.now_seconds + initiator.lifetime_seconds;
                    let service = self.security.service;
                    return Ok(establishing.finish(
                        Box::new(key),
                        &proof,
                        service,
                        ends_seconds,
                    )?);
                }
                _ => return Err(OutgoingFault::BadResults.into()),
            }
        }
    }
}
