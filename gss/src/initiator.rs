//! Contexts that this side begins, as a principal of its own keytab.

use crate::abi::{
    BufferDesc, CONTINUE_NEEDED, ERROR_BITS, INITIATE, KeyValueDesc, MUTUAL, OidDesc,
};
use crate::buffer::Filled;
use crate::cache::MemoryCache;
use crate::context::Context;
use crate::credential::{Credential, c_string, seconds};
use crate::error::GssError;
use crate::library::Functions;
use crate::name::OwnedName;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Settings of a credential.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorOptions<'a> {
    /// File with the keys of the principal.
    pub keytab: &'a Path,
    /// The principal that begins contexts, with its realm.
    pub principal: &'a str,
}

/// A credential with which contexts are begun: a ticket for the KDC in memory.
#[derive(Debug)]
pub struct Initiator {
    credential: Credential,
    lifetime_seconds: u64,
    /// Removed after the credential, which refers to it.
    _tickets: MemoryCache,
}

/// Result of a step of a context that this side has begun.
#[derive(Debug)]
pub struct Initiated {
    /// The context.
    pub context: Context,
    /// Token for the other side; may be empty.
    pub token: Vec<u8>,
    /// Time for which the context is valid, in seconds, once it is established;
    /// `None`: the other side must send a token.
    pub lifetime_seconds: Option<u64>,
}

impl Initiator {
    /// Loads the library, and gets a ticket for the KDC with the keys of the
    /// principal. Blocks until the KDC answers, or the library gives up.
    ///
    /// # Errors
    /// [`GssError`]: no library, no key of the principal, no answer of the KDC, or
    /// a refusal.
    pub fn acquire(options: InitiatorOptions<'_>) -> Result<Self, GssError> {
        let functions = Functions::get()?;
        let name = OwnedName::import(functions, options.principal, &OidDesc::principal())?;
        let keytab = c_string("keytab", options.keytab.as_os_str().as_bytes())?;
        let tickets = MemoryCache::new(functions)?;
        let elements = [
            KeyValueDesc { key: c"client_keytab".as_ptr(), value: keytab.as_ptr() },
            KeyValueDesc { key: c"ccache".as_ptr(), value: tickets.name().as_ptr() },
        ];
        let mut lifetime = 0;
        let credential =
            Credential::acquire(functions, &name, INITIATE, &elements, Some(&mut lifetime))?;
        Ok(Self { credential, lifetime_seconds: seconds(lifetime), _tickets: tickets })
    }

    /// Returns the time for which the ticket was valid when it was issued, in
    /// seconds.
    #[must_use]
    pub fn lifetime_seconds(&self) -> u64 {
        self.lifetime_seconds
    }

    /// Begins a context with a principal. Asks the KDC for a ticket: blocks.
    ///
    /// # Errors
    /// [`GssError`]: no answer of the KDC, or a refusal.
    pub fn begin(&self, target: &str) -> Result<Initiated, GssError> {
        self.step(Context::empty(self.credential.functions), target, &[])
    }

    /// Takes the token of the other side for a context that was begun with the
    /// same principal. Asks nobody.
    ///
    /// # Errors
    /// [`GssError`]: the token is not the other side's; the context is gone.
    pub fn proceed(
        &self,
        context: Context,
        target: &str,
        token: &[u8],
    ) -> Result<Initiated, GssError> {
        self.step(context, target, token)
    }

    fn step(&self, context: Context, target: &str, token: &[u8]) -> Result<Initiated, GssError> {
        let functions = self.credential.functions;
        let target = OwnedName::import(functions, target, &OidDesc::principal())?;
        let (mechanism, received) = (OidDesc::kerberos(), BufferDesc::of(token));
        let (mut flags, mut lifetime) = (0_u32, 0_u32);
        let (major, minor, sent) = {
            let mut raw = context.lock();
            Filled::by(functions, |minor, sent| {
                // SAFETY: the context is empty or the library's, and locked;
                // credential, target, mechanism and token outlive the call; channel
                // bindings are not used.
                unsafe {
                    (functions.init_sec_context)(
                        minor,
                        self.credential.raw,
                        &mut raw.0,
                        target.raw,
                        &mechanism,
                        MUTUAL,
                        0,
                        ptr::null_mut(),
                        &received,
                        ptr::null_mut(),
                        sent,
                        &mut flags,
                        &mut lifetime,
                    )
                }
            })
        };
        if major & ERROR_BITS != 0 {
            return Err(GssError::of(functions, major, minor));
        }
        let token = sent.bytes().to_vec();
        if major & CONTINUE_NEEDED != 0 {
            return Ok(Initiated { context, token, lifetime_seconds: None });
        }
        if flags & MUTUAL == 0 {
            return Err(GssError::OneSided);
        }
        Ok(Initiated { context, token, lifetime_seconds: Some(seconds(lifetime)) })
    }
}
