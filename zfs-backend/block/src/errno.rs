//! Meaning of the kernel's error numbers for a disk: one table.

use rustix::io::Errno;
use std::io;
use zgate_store::StoreError;

/// Error numbers with a meaning of their own; all others (EIO, ENXIO, ENODATA
/// of a bad sector, ETIMEDOUT, ...) are [`StoreError::Io`].
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
    (Errno::TXTBSY, StoreError::Busy),
    (Errno::BUSY, StoreError::Busy),
    (Errno::AGAIN, StoreError::Busy),
    (Errno::INTR, StoreError::Busy),
    (Errno::NOMEM, StoreError::OutOfResources),
    (Errno::NFILE, StoreError::OutOfResources),
    (Errno::MFILE, StoreError::OutOfResources),
    (Errno::NOBUFS, StoreError::OutOfResources),
];

/// Maps an operating system error to the store's error.
pub(crate) fn store_error(error: &io::Error) -> StoreError {
    let Some(errno) = Errno::from_io_error(error) else {
        return StoreError::Io;
    };
    MEANINGS
        .iter()
        .find(|(known, _)| *known == errno)
        .map_or(StoreError::Io, |(_, meaning)| *meaning)
}

/// Returns whether the kernel or file system lacks the call, so that another
/// method should be tried.
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
}

/// Repeats a call that was interrupted by a signal.
pub(crate) fn uninterrupted<T>(
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
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
    fn faults_keep_their_names() {
        let named = [
            (Errno::IO, StoreError::Io),
            (Errno::NXIO, StoreError::Io),
            (Errno::NOSPC, StoreError::NoSpace),
            (Errno::DQUOT, StoreError::QuotaExceeded),
            (Errno::ROFS, StoreError::ReadOnly),
        ];
        for (errno, meaning) in named {
            assert_eq!(store_error(&errno.into()), meaning);
        }
        assert_eq!(store_error(&io::Error::other("x")), StoreError::Io);
    }
}
