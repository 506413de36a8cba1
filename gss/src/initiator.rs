//! Contexts that this side begins, as a principal of its own keytab.

use crate::abi::{
    BufferDesc, CONTINUE_NEEDED, CredentialId, ERROR_BITS, INDEFINITE, INITIATE, KeyValueDesc,
    KeyValueSetDesc, MUTUAL, OidDesc, OidSetDesc,
};
use crate::acceptor::c_string;
use crate::buffer::Filled;
use crate::cache::MemoryCache;
use crate::context::Context;
use crate::error::GssError;
use crate::library::Functions;
use crate::name::OwnedName;
use std::fmt;
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
pub struct Initiator {
    functions: &'static Functions,
    credential: CredentialId,
    lifetime_seconds: u64,
    /// Removed after the credential, which refers to it.
    _tickets: MemoryCache,
}

// SAFETY: the library locks a credential while it uses it.
unsafe impl Send for Initiator {}
// SAFETY: as above; nothing here changes the credential until it is dropped.
unsafe impl Sync for Initiator {}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator")
    }
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
        let store = KeyValueSetDesc { count: elements.len() as u32, elements: elements.as_ptr() };
        let mechanism = OidDesc::kerberos();
        let mechanisms = OidSetDesc { count: 1, elements: &mechanism };
        let (mut minor, mut credential, mut lifetime) = (0, ptr::null_mut(), 0_u32);
        // SAFETY: name, mechanisms and store are only read, and outlive the call;
        // the set of mechanisms is not asked for. The lifetime is: the library
        // gets the ticket to tell it.
        let major = unsafe {
            (functions.acquire_cred_from)(
                &mut minor,
                name.raw,
                INDEFINITE,
                &mechanisms,
                INITIATE,
                &store,
                &mut credential,
                ptr::null_mut(),
                &mut lifetime,
            )
        };
        if major & ERROR_BITS != 0 {
            return Err(GssError::of(functions, major, minor));
        }
        let lifetime_seconds = seconds(lifetime);
        Ok(Self { functions, credential, lifetime_seconds, _tickets: tickets })
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
        self.step(Context::empty(self.functions), target, &[])
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
        let functions = self.functions;
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
                        self.credential,
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

fn seconds(lifetime: u32) -> u64 {
    if lifetime == INDEFINITE { u64::MAX } else { lifetime.into() }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is the library's, and nobody uses it any more.
        unsafe { (self.functions.release_cred)(&mut minor, &mut self.credential) };
    }
}
