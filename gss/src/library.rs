//! The library: loaded at the first use, and never unloaded.

use crate::abi::{
    BufferDesc, ContextId, CredentialId, KeyValueSetDesc, Krb5Cache, Krb5Context, Name, OidDesc,
    OidSetDesc, Status,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use thiserror::Error;

const NAME: &str = "libgssapi_krb5.so.2";

/// Reason for which the library cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    /// It is missing; with the dynamic loader's message.
    #[error("{0}; install MIT Kerberos (libgssapi-krb5-2 or krb5-libs)")]
    Missing(String),
    /// It lacks a function.
    #[error("{NAME} lacks {0}: MIT Kerberos is older than version 1.11, update it")]
    Function(&'static str),
}

/// Declares the table of functions and its loader.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($arg:ty),* $(,)?);)*) => {
        /// The functions in use; each returns the major status, or the status of
        /// Kerberos, 0 for success.
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> Status,)*
            /// krb5_free_context.
            pub(crate) krb5_free_context: unsafe extern "C" fn(Krb5Context),
        }

        impl Functions {
            fn load() -> Result<Self, LoadError> {
                // SAFETY: loading runs the library's initialisers, as linking
                // against it would; it is never unloaded.
                let opened = unsafe { Library::open(Some(NAME), RTLD_NOW | RTLD_LOCAL) };
                let library = opened.map(ManuallyDrop::new).map_err(|error| {
                    let reason = error.source().map(ToString::to_string);
                    LoadError::Missing(reason.unwrap_or_else(|| format!("{NAME}: {error}")))
                })?;
                Ok(Self {
                    // SAFETY: MIT's stable ABI gives the functions of these
                    // names these signatures.
                    $($name: *unsafe { library.get($symbol) }
                        .map_err(|_| LoadError::Function($symbol))?,)*
                    // SAFETY: as above.
                    krb5_free_context: *unsafe { library.get("krb5_free_context") }
                        .map_err(|_| LoadError::Function("krb5_free_context"))?,
                })
            }
        }
    };
}

/// Pointer to the minor status, which every function fills.
type Minor = *mut Status;

functions! {
    import_name = "gss_import_name" (Minor, *const BufferDesc, *const OidDesc, *mut Name);
    display_name = "gss_display_name" (Minor, Name, *mut BufferDesc, *mut *const OidDesc);
    localname = "gss_localname" (Minor, Name, *const OidDesc, *mut BufferDesc);
    release_name = "gss_release_name" (Minor, *mut Name);
    release_buffer = "gss_release_buffer" (Minor, *mut BufferDesc);
    acquire_cred_from = "gss_acquire_cred_from" (
        Minor, Name, u32, *const OidSetDesc, c_int, *const KeyValueSetDesc,
        *mut CredentialId, *mut *mut OidSetDesc, *mut u32,
    );
    release_cred = "gss_release_cred" (Minor, *mut CredentialId);
    accept_sec_context = "gss_accept_sec_context" (
        Minor, *mut ContextId, CredentialId, *const BufferDesc, *mut c_void, *mut Name,
        *mut *const OidDesc, *mut BufferDesc, *mut u32, *mut u32, *mut CredentialId,
    );
    init_sec_context = "gss_init_sec_context" (
        Minor, CredentialId, *mut ContextId, Name, *const OidDesc, u32, u32, *mut c_void,
        *const BufferDesc, *mut *const OidDesc, *mut BufferDesc, *mut u32, *mut u32,
    );
    inquire_context = "gss_inquire_context" (
        Minor, ContextId, *mut Name, *mut Name, *mut u32, *mut *const OidDesc, *mut u32,
        *mut c_int, *mut c_int,
    );
    krb5_init_context = "krb5_init_context" (*mut Krb5Context);
    krb5_cc_resolve = "krb5_cc_resolve" (Krb5Context, *const c_char, *mut Krb5Cache);
    krb5_cc_destroy = "krb5_cc_destroy" (Krb5Context, Krb5Cache);
    delete_sec_context = "gss_delete_sec_context" (Minor, *mut ContextId, *mut BufferDesc);
    get_mic = "gss_get_mic" (Minor, ContextId, u32, *const BufferDesc, *mut BufferDesc);
    verify_mic = "gss_verify_mic" (
        Minor, ContextId, *const BufferDesc, *const BufferDesc, *mut u32,
    );
    wrap = "gss_wrap" (
        Minor, ContextId, c_int, u32, *const BufferDesc, *mut c_int, *mut BufferDesc,
    );
    unwrap = "gss_unwrap" (
        Minor, ContextId, *const BufferDesc, *mut BufferDesc, *mut c_int, *mut u32,
    );
    display_status = "gss_display_status" (
        Minor, Status, c_int, *const OidDesc, *mut u32, *mut BufferDesc,
    );
}

impl Functions {
    /// Returns the functions; loads the library at the first call.
    ///
    /// # Errors
    /// [`LoadError`].
    pub(crate) fn get() -> Result<&'static Self, LoadError> {
        static FUNCTIONS: OnceLock<Result<Functions, LoadError>> = OnceLock::new();
        FUNCTIONS.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }
}
