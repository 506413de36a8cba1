//! Names inside a directory.

use std::ffi::{CStr, CString};
use zgate_store::{StoreError, StoreResult};

/// Longest name in bytes (NAME_MAX).
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// One component of a path: passed to the kernel, it cannot lead out of the
/// directory it is used with.
#[derive(Clone, Debug)]
pub(crate) struct Name(CString);

impl Name {
    /// Checks a name sent by a peer.
    pub(crate) fn parse(raw: &[u8]) -> StoreResult<Self> {
        match raw {
            [] => return Err(StoreError::Invalid),
            b"." | b".." => return Err(StoreError::BadName),
            _ if raw.len() > MAX_NAME_BYTES => return Err(StoreError::NameTooLong),
            _ if raw.contains(&b'/') => return Err(StoreError::BadName),
            _ => {}
        }
        CString::new(raw).map(Self).map_err(|_| StoreError::BadName)
    }

    /// Returns the name for system calls.
    pub(crate) fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// Returns the bytes, without the terminator.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_directory() {
        for bad in [&b"."[..], b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(Name::parse(bad).unwrap_err(), StoreError::BadName);
        }
        assert_eq!(Name::parse(b"").unwrap_err(), StoreError::Invalid);
        assert_eq!(Name::parse(&[b'x'; 256]).unwrap_err(), StoreError::NameTooLong);
        assert_eq!(Name::parse(b"...").unwrap().as_bytes(), b"...");
    }
}
