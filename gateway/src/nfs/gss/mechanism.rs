//! The mechanism behind RPCSEC_GSS: MIT Kerberos; in tests another one.

use std::path::Path;
use zgate_gss::{Accepted, Acceptor, AcceptorOptions, Context, GssError};
use zgate_rpc::gss::{FAILURE, SecurityContext};

/// Security context of a mechanism.
pub(crate) type BoxedContext = Box<dyn SecurityContext + Send + Sync>;

/// The client of an established context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Its principal with its realm.
    pub principal: String,
    /// The local user of the principal, by the mechanism's own rules.
    pub local_user: Option<String>,
    /// Time for which the context is valid, in seconds.
    pub lifetime_seconds: u64,
    /// The server's principal that it has called, with its realm.
    pub acceptor: String,
}

/// Result of a token that was not refused.
pub(crate) struct TokenResult {
    pub context: BoxedContext,
    /// Token for the client.
    pub token: Vec<u8>,
    /// `None`: the client must send another token.
    pub client: Option<Client>,
}

/// Reason for which a token was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRefused {
    pub major: u32,
    pub minor: u32,
    /// The mechanism's words.
    pub reason: String,
}

/// Establishes contexts.
pub(crate) trait Mechanism: Send + Sync {
    /// Takes a token of a client. May block.
    ///
    /// # Errors
    /// [`TokenRefused`]; the context is gone.
    fn accept(
        &self,
        context: Option<BoxedContext>,
        token: &[u8],
    ) -> Result<TokenResult, TokenRefused>;
}

/// MIT Kerberos with the server's keys.
#[derive(Debug)]
pub(crate) struct MitKerberos(Acceptor);

impl MitKerberos {
    /// Loads the library and finds the server's keys. Reads files.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn new(
        keytab: &Path,
        principal: Option<&str>,
        replay_cache: Option<&Path>,
    ) -> Result<Self, GssError> {
        Acceptor::acquire(AcceptorOptions { keytab, principal, replay_cache }).map(Self)
    }
}

impl Mechanism for MitKerberos {
    fn accept(
        &self,
        context: Option<BoxedContext>,
        token: &[u8],
    ) -> Result<TokenResult, TokenRefused> {
        if context.is_some() {
            // Kerberos establishes a context with one token, or refuses it.
            let reason = "a second token".to_owned();
            return Err(TokenRefused { major: FAILURE, minor: 0, reason });
        }
        let accepted = self.0.accept(None, token).map_err(refused)?;
        let Accepted { context, token, client } = accepted;
        let client = client.map(|client| Client {
            principal: client.principal,
            local_user: client.local_user,
            lifetime_seconds: client.lifetime_seconds,
            acceptor: client.acceptor,
        });
        Ok(TokenResult { context: Box::new(MitContext(context)), token, client })
    }
}

fn refused(error: GssError) -> TokenRefused {
    let reason = error.to_string();
    let (major, minor) = match error {
        GssError::Failed { major, minor, .. } => (major, minor),
        GssError::Load(_) | GssError::Nul(_) | GssError::OneSided => (FAILURE, 0),
    };
    TokenRefused { major, minor, reason }
}

/// Context of MIT Kerberos.
pub(super) struct MitContext(pub(super) Context);

impl SecurityContext for MitContext {
    fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.0.verifies(message, mic)
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.0.mic(message)
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.0.wrap(message)
    }

    fn unwrap(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.0.unwrap(token)
    }
}
