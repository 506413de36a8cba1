//! Meaning of the kernel's error numbers: those that files and disks have in common.

use rustix::io::Errno;
use zgate_store::StoreError;

/// Error numbers with a meaning of their own.
const MEANINGS: &[(Errno, StoreError)] = &[
    (Errno::PERM, StoreError::NotPermitted),
    (Errno::ACCESS, StoreError::AccessDenied),
    (Errno::INVAL, StoreError::Invalid),
    (Errno::NOSPC, StoreError::NoSpace),
    (Errno::DQUOT, StoreError::QuotaExceeded),
    (Errno::FBIG, StoreError::TooLarge),
    (Errno::OVERFLOW, StoreError::TooLarge),
    (Errno::ROFS, StoreError::ReadOnly),
    (Errno::STALE, StoreError::Stale),
    (Errno::OPNOTSUPP, StoreError::NotSupported),
    (Errno::NOSYS, StoreError::NotSupported),
    (Errno::NOTTY, StoreError::NotSupported),
    (Errno::TXTBSY, StoreError::TextBusy),
    (Errno::BUSY, StoreError::Busy),
    (Errno::AGAIN, StoreError::Busy),
    (Errno::INTR, StoreError::Busy),
    (Errno::NOMEM, StoreError::OutOfResources),
    (Errno::NFILE, StoreError::OutOfResources),
    (Errno::MFILE, StoreError::OutOfResources),
    (Errno::NOBUFS, StoreError::OutOfResources),
];

/// Maps an error number to the store's error; `more` are those that only this store has. All
/// others are [`StoreError::Io`].
#[must_use]
pub fn store_error(errno: Errno, more: &[(Errno, StoreError)]) -> StoreError {
    let found = MEANINGS.iter().chain(more).find(|(known, _)| *known == errno);
    found.map_or(StoreError::Io, |(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_error_number_has_two_meanings() {
        let numbers: HashSet<_> = MEANINGS.iter().map(|(errno, _)| errno.raw_os_error()).collect();
        assert_eq!(numbers.len(), MEANINGS.len());
    }

    #[test]
    fn a_running_program_is_not_merely_busy() {
        assert_eq!(store_error(Errno::TXTBSY, &[]), StoreError::TextBusy);
        for errno in [Errno::BUSY, Errno::AGAIN, Errno::INTR] {
            assert_eq!(store_error(errno, &[]), StoreError::Busy, "{errno:?}");
        }
    }
}
