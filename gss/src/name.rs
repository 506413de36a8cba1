//! Names of the library.

use crate::abi::{BufferDesc, Name, OidDesc};
use crate::buffer::Filled;
use crate::error::GssError;
use crate::library::Functions;
use std::ptr;

/// A name of the library; released when dropped.
pub(crate) struct OwnedName {
    functions: &'static Functions,
    pub(crate) raw: Name,
}

impl Drop for OwnedName {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let mut minor = 0;
            // SAFETY: the name is the library's, and is used no more.
            unsafe { (self.functions.release_name)(&mut minor, &mut self.raw) };
        }
    }
}

impl OwnedName {
    /// A name that the library fills in.
    pub(crate) fn empty(functions: &'static Functions) -> Self {
        Self { functions, raw: ptr::null_mut() }
    }

    pub(crate) fn import(
        functions: &'static Functions,
        text: &str,
        form: &OidDesc,
    ) -> Result<Self, GssError> {
        let mut name = Self::empty(functions);
        let (mut minor, text) = (0, BufferDesc::of(text.as_bytes()));
        // SAFETY: text and form are only read, and outlive the call.
        let major = unsafe { (functions.import_name)(&mut minor, &text, form, &mut name.raw) };
        if major == 0 { Ok(name) } else { Err(GssError::of(functions, major, minor)) }
    }

    pub(crate) fn text(&self) -> Option<String> {
        let (major, _, text) = Filled::by(self.functions, |minor, text| {
            // SAFETY: the name is the library's; the form of the name is not
            // asked for.
            unsafe { (self.functions.display_name)(minor, self.raw, text, ptr::null_mut()) }
        });
        (major == 0).then(|| text.text())
    }

    pub(crate) fn local_user(&self) -> Option<String> {
        let mechanism = OidDesc::kerberos();
        let (major, _, user) = Filled::by(self.functions, |minor, user| {
            // SAFETY: the name is the library's; the mechanism outlives the call.
            unsafe { (self.functions.localname)(minor, self.raw, &mechanism, user) }
        });
        (major == 0).then(|| user.text())
    }
}
