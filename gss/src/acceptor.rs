//! The server's credential, and contexts of clients.

use crate::abi::{ACCEPT, BufferDesc, CONTINUE_NEEDED, ERROR_BITS, KeyValueDesc, OidDesc};
use crate::buffer::Filled;
use crate::context::Context;
use crate::credential::{Credential, c_string, seconds};
use crate::error::GssError;
use crate::library::Functions;
use crate::name::OwnedName;
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
#[derive(Debug)]
pub struct Acceptor {
    credential: Credential,
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
        let cache = options.replay_cache.map(|path| {
            c_string("replay cache", &[b"file2:", path.as_os_str().as_bytes()].concat())
        });
        let cache = cache.transpose()?;
        let mut elements = vec![KeyValueDesc { key: c"keytab".as_ptr(), value: keytab.as_ptr() }];
        if let Some(cache) = &cache {
            elements.push(KeyValueDesc { key: c"rcache".as_ptr(), value: cache.as_ptr() });
        }
        let credential = Credential::acquire(functions, &name, ACCEPT, &elements, None)?;
        Ok(Self { credential })
    }

    /// Takes a token of a client, the first one or a further one of `context`.
    /// Blocks.
    ///
    /// # Errors
    /// [`GssError`]; the context is gone.
    pub fn accept(&self, context: Option<Context>, token: &[u8]) -> Result<Accepted, GssError> {
        let functions = self.credential.functions;
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
                        self.credential.raw,
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
        let lifetime_seconds = seconds(lifetime);
        let (local_user, acceptor) = (source.local_user(), context.acceptor().unwrap_or_default());
        let client = Client { principal, local_user, lifetime_seconds, acceptor };
        Ok(Accepted { context, token, client: Some(client) })
    }
}
