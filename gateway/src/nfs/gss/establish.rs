//! Establishment of contexts (RFC 2203 §5.2).

use super::identity::ContextIdentity;
use super::kerberos::{ClientContext, Kerberos, Offer, count};
use super::mechanism::{BoxedContext, TokenRefused, TokenResult};
use crate::nfs::service::Nfs;
use crate::observe::throttle::warn_seldom;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_nfs::Peer;
use zgate_nfs::runtime::Runtime;
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::gss::{FAILURE, GssCredential, Handle, InitResult, InitToken, Step, Told};
use zgate_store::HostKey;
use zgate_xdr::{Decode, Decoder};

/// Takes the token of a client. `None`: the arguments are no token.
pub(super) async fn establish(
    nfs: &Nfs,
    (peer, offer): (&Peer, Arc<Offer>),
    credential: &GssCredential,
    mut arguments: Decoder<'_>,
) -> Option<Told> {
    let token = InitToken::decode(&mut arguments).ok()?;
    arguments.finish().ok()?;
    let (kerberos, host) = (&nfs.kerberos, HostKey::from(peer.address));
    let Some(_slot) = kerberos.token_slots.take(host) else {
        count(&kerberos.counts.overloaded);
        return Some((InitResult::failed(FAILURE, 0), OpaqueAuth::none()));
    };
    let now_seconds = nfs.runtime.now().seconds();
    let pending = match kerberos.contexts.continued(credential, host, now_seconds) {
        Ok(pending) => pending,
        Err(told) => {
            count(&kerberos.counts.unknown_context);
            return Some((told, OpaqueAuth::none()));
        }
    };
    let engine = offer.engine.clone();
    let security = pending.map(|pending| pending.security);
    let used = Arc::clone(&offer);
    let work = move || accept(&used, security, &token, now_seconds);
    let step = match engine.run(work).await {
        Ok(accepted) => accepted.unwrap_or_else(|refused| refuse(kerberos, peer.address, refused)),
        Err(error) => {
            warn_seldom!(%error, "Kerberos does not answer: clients are told to try again");
            count(&kerberos.counts.overloaded);
            Step::Failed { major: FAILURE, minor: 0 }
        }
    };
    let handle = Handle(nfs.runtime.random());
    let told = kerberos.contexts.keep_and_tell(step, handle, host, now_seconds);
    if !kerberos.is_in_effect(&offer) {
        // A reload that came meanwhile ended the contexts before this one was kept: it
        // would go on with the old keys and users. One that comes now ends it.
        kerberos.contexts.remove(handle);
        drop(kerberos.contexts.take_pending(handle, host, now_seconds));
        return Some((InitResult::failed(FAILURE, 0), OpaqueAuth::none()));
    }
    if told.0.is_complete() {
        count(&kerberos.counts.established);
    }
    Some(told)
}

/// Runs the mechanism, and looks up who the client is. Blocks.
fn accept(
    offer: &Offer,
    context: Option<BoxedContext>,
    InitToken(token): &InitToken,
    now_seconds: u64,
) -> Result<Step<ClientContext>, TokenRefused> {
    let TokenResult { context, token, client } = offer.mechanism.accept(context, token)?;
    let Some(client) = client else {
        let identity = ContextIdentity::new(&offer.users, ("", ""), None, now_seconds);
        return Ok(Step::Continue {
            context: ClientContext { security: context, identity },
            token,
        });
    };
    let (names, by_rules) = ((&*client.principal, &*client.acceptor), client.local_user.as_deref());
    let identity = ContextIdentity::new(&offer.users, names, by_rules, now_seconds);
    let context = ClientContext { security: context, identity };
    Ok(Step::Complete { context, token, lifetime_seconds: client.lifetime_seconds })
}

fn refuse(kerberos: &Kerberos, peer: IpAddr, refused: TokenRefused) -> Step<ClientContext> {
    let TokenRefused { major, minor, reason } = refused;
    count(&kerberos.counts.token_refused);
    warn_seldom!(%peer, reason, "a Kerberos ticket was refused");
    Step::Failed { major, minor }
}
