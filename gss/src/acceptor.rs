//! The server's credential, and contexts of clients.

use crate::abi::{
    ACCEPT, BufferDesc, CONTINUE_NEEDED, CredentialId, ERROR_BITS, INDEFINITE, KeyValueDesc,
    KeyValueSetDesc, OidDesc, OidSetDesc,
};
use crate::buffer::Filled;
use crate::context::Context;
use crate::error::GssError;
use crate::library::Functions;
use crate::name::OwnedName;
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Settings of the server's credential.
#[derive(Clone, Copy, Debug)]
pub struct AcceptorOptions<'a> {
    /// File with the server's keys.
    pub keytab: &'a Path,
    /// Principal (`nfs/host@REALM`) whose keys are used; `None`: those of
    /// service `nfs`, of any host name.
    pub principal: Option<&'a str>,
    /// File of the replay cache; `None`: the library's default.
    pub replay_cache: Option<&'a Path>,
}

/// The server's credential.
pub struct Acceptor {
    functions: &'static Functions,
    credential: CredentialId,
}

// SAFETY: the library locks a credential while it uses it.
unsafe impl Send for Acceptor {}
// SAFETY: as above; nothing here changes the credential until it is dropped.
unsafe impl Sync for Acceptor {}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

/// The other end of an established context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its principal with its realm.
    pub principal: String,
    /// The local user that `krb5.conf` maps it to (`auth_to_local`): users of
    /// the default realm to their own name, unless configured otherwise.
    pub local_user: Option<String>,
    /// Time until its ticket ends, in seconds.
    pub lifetime_seconds: u64,
    /// The principal of this side that the ticket is for, with its realm.
    pub acceptor: String,
}

/// Result of a token.
#[derive(Debug)]
pub struct Accepted {
    /// The context.
    pub context: Context,
    /// Token for the client; may be empty.
    pub token: Vec<u8>,
    /// The client; `None`: it must send another token.
    pub client: Option<Client>,
}

pub(crate) fn c_string(setting: &'static str, bytes: &[u8]) -> Result<CString, GssError> {
    CString::new(bytes).map_err(|_| GssError::Nul(setting))
}

impl Acceptor {
    /// Loads the library and acquires the server's credential. Blocks.
    ///
    /// # Errors
    /// [`GssError`]: no library, no keytab, or no key of that principal in it.
    pub fn acquire(options: AcceptorOptions<'_>) -> Result<Self, GssError> {
        let functions = Functions::get()?;
        let form = match options.principal {
            Some(_) => OidDesc::principal(),
            None => OidDesc::host_service(),
        };
        let name = OwnedName::import(functions, options.principal.unwrap_or("nfs"), &form)?;
        let keytab = c_string("keytab", options.keytab.as_os_str().as_bytes())?;
        let cache = options
            .replay_cache
            .map(|path| c_string("state_dir", &[b"file2:", path.as_os_str().as_bytes()].concat()));
        let cache = cache.transpose()?;
        let mut elements = vec![KeyValueDesc { key: c"keytab".as_ptr(), value: keytab.as_ptr() }];
        if let Some(cache) = &cache {
            elements.push(KeyValueDesc { key: c"rcache".as_ptr(), value: cache.as_ptr() });
        }
        let store = KeyValueSetDesc { count: elements.len() as u32, elements: elements.as_ptr() };
        let mechanism = OidDesc::kerberos();
        let mechanisms = OidSetDesc { count: 1, elements: &mechanism };
        let (mut minor, mut credential) = (0, ptr::null_mut());
        // SAFETY: name, mechanisms and store are only read, and outlive the call;
        // optional results are not asked for.
        let major = unsafe {
            (functions.acquire_cred_from)(
                &mut minor,
                name.raw,
                INDEFINITE,
                &mechanisms,
                ACCEPT,
                &store,
                &mut credential,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if major & ERROR_BITS != 0 {
            return Err(GssError::of(functions, major, minor));
        }
        Ok(Self { functions, credential })
    }

    /// Takes a token of a client, the first one or a further one of `context`.
    /// Blocks.
    ///
    /// # Errors
    /// [`GssError`]; the context is gone.
    pub fn accept(&self, context: Option<Context>, token: &[u8]) -> Result<Accepted, GssError> {
        let functions = self.functions;
        let context = context.unwrap_or_else(|| Context::empty(functions));
        let mut source = OwnedName::empty(functions);
        let (token, mut lifetime) = (BufferDesc::of(token), 0_u32);
        let (major, minor, reply) = {
            let mut raw = context.lock();
            Filled::by(functions, |minor, reply| {
                // SAFETY: the context is empty or the library's, and locked;
                // credential and token outlive the call; channel bindings and
                // delegated credentials are not used.
                unsafe {
                    (functions.accept_sec_context)(
                        minor,
                        &mut raw.0,
                        self.credential,
                        &token,
                        ptr::null_mut(),
                        &mut source.raw,
                        ptr::null_mut(),
                        reply,
                        ptr::null_mut(),
                        &mut lifetime,
                        ptr::null_mut(),
                    )
                }
            })
        };
        if major & ERROR_BITS != 0 {
            return Err(GssError::of(functions, major, minor));
        }
        let token = reply.bytes().to_vec();
        if major & CONTINUE_NEEDED != 0 {
            return Ok(Accepted { context, token, client: None });
        }
        let principal = source.text().unwrap_or_default();
        let lifetime_seconds = if lifetime == INDEFINITE { u64::MAX } else { lifetime.into() };
        let (local_user, acceptor) = (source.local_user(), context.acceptor().unwrap_or_default());
        let client = Client { principal, local_user, lifetime_seconds, acceptor };
        Ok(Accepted { context, token, client: Some(client) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is the library's, and nobody uses it any more.
        unsafe { (self.functions.release_cred)(&mut minor, &mut self.credential) };
    }
}
