//! Caches of tickets in memory. Tickets of the gateway are on no disk.

use crate::abi::Krb5Context;
use crate::error::GssError;
use crate::library::Functions;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of caches of the process so far.
static CACHES: AtomicU64 = AtomicU64::new(0);

/// A cache of its own; removed with its tickets when dropped.
#[derive(Debug)]
pub(crate) struct MemoryCache {
    functions: &'static Functions,
    name: CString,
}

impl MemoryCache {
    /// A cache with no tickets yet; the library makes it at its first use.
    pub(crate) fn new(functions: &'static Functions) -> Result<Self, GssError> {
        let number = CACHES.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("MEMORY:zgate-callbacks-{number}"));
        Ok(Self { functions, name: name.map_err(|_| GssError::Nul("cache"))? })
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    fn destroy(&self, context: Krb5Context) {
        let (functions, mut cache) = (self.functions, ptr::null_mut());
        // SAFETY: the name is only read and outlives the call.
        let found = unsafe { (functions.krb5_cc_resolve)(context, self.name.as_ptr(), &mut cache) };
        if found == 0 {
            // SAFETY: the cache is the library's; the call closes this handle of
            // it. Others of the same cache see an empty one.
            unsafe { (functions.krb5_cc_destroy)(context, cache) };
        }
    }
}

impl Drop for MemoryCache {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: the context is filled by the library.
        if unsafe { (self.functions.krb5_init_context)(&mut context) } == 0 {
            self.destroy(context);
            // SAFETY: the context is the library's, and nobody uses it any more.
            unsafe { (self.functions.krb5_free_context)(context) };
        }
    }
}
