//! Credentials of this side, with keys and tickets of stores that it names.

use crate::abi::{
    CredentialId, ERROR_BITS, INDEFINITE, KeyValueDesc, KeyValueSetDesc, OidDesc, OidSetDesc,
};
use crate::error::GssError;
use crate::library::Functions;
use crate::name::OwnedName;
use std::ffi::{CString, c_int};
use std::fmt;
use std::ptr;

/// A credential of the library; released when dropped.
pub(crate) struct Credential {
    pub(crate) functions: &'static Functions,
    pub(crate) raw: CredentialId,
}

// SAFETY: the library locks a credential while it uses it.
unsafe impl Send for Credential {}
// SAFETY: as above; nothing here changes the credential until it is dropped.
unsafe impl Sync for Credential {}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    /// Acquires a credential of Kerberos for a name. Where its lifetime is asked
    /// for, the library gets the ticket to tell it. Blocks.
    pub(crate) fn acquire(
        functions: &'static Functions,
        name: &OwnedName,
        usage: c_int,
        stores: &[KeyValueDesc],
        lifetime: Option<&mut u32>,
    ) -> Result<Self, GssError> {
        let store = KeyValueSetDesc { count: stores.len() as u32, elements: stores.as_ptr() };
        let mechanism = OidDesc::kerberos();
        let mechanisms = OidSetDesc { count: 1, elements: &mechanism };
        let lifetime = lifetime.map_or(ptr::null_mut(), ptr::from_mut);
        let (mut minor, mut raw) = (0, ptr::null_mut());
        // SAFETY: name, mechanisms and stores are only read, and outlive the call;
        // the set of mechanisms is not asked for, the lifetime only where there is
        // a place for it.
        let major = unsafe {
            (functions.acquire_cred_from)(
                &mut minor,
                name.raw,
                INDEFINITE,
                &mechanisms,
                usage,
                &store,
                &mut raw,
                ptr::null_mut(),
                lifetime,
            )
        };
        if major & ERROR_BITS != 0 {
            return Err(GssError::of(functions, major, minor));
        }
        Ok(Self { functions, raw })
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is the library's, and nobody uses it any more.
        unsafe { (self.functions.release_cred)(&mut minor, &mut self.raw) };
    }
}

/// A setting as the library takes it.
pub(crate) fn c_string(setting: &'static str, bytes: &[u8]) -> Result<CString, GssError> {
    CString::new(bytes).map_err(|_| GssError::Nul(setting))
}

/// A lifetime of the library, in seconds.
pub(crate) fn seconds(lifetime: u32) -> u64 {
    if lifetime == INDEFINITE { u64::MAX } else { lifetime.into() }
}
