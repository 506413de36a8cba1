//! Meaning of the kernel's error numbers for the store: one table.

use rustix::io::Errno;
use std::io;
use zgate_store::{StoreError, StoreResult};

/// Error numbers with a meaning of their own; all others are
/// [`StoreError::Io`].
const MEANINGS: &[(Errno, StoreError)] = &[
    (Errno::NOENT, StoreError::NotFound),
    (Errno::EXIST, StoreError::Exists),
    (Errno::PERM, StoreError::NotPermitted),
    (Errno::ACCESS, StoreError::AccessDenied),
    (Errno::NOTDIR, StoreError::NotDirectory),
    (Errno::ISDIR, StoreError::IsDirectory),
    (Errno::LOOP, StoreError::IsSymlink),
    (Errno::INVAL, StoreError::Invalid),
    (Errno::NAMETOOLONG, StoreError::NameTooLong),
    (Errno::ILSEQ, StoreError::BadName),
    (Errno::NOTEMPTY, StoreError::NotEmpty),
    (Errno::NOSPC, StoreError::NoSpace),
    (Errno::DQUOT, StoreError::QuotaExceeded),
    (Errno::FBIG, StoreError::TooLarge),
    (Errno::OVERFLOW, StoreError::TooLarge),
    (Errno::ROFS, StoreError::ReadOnly),
    (Errno::XDEV, StoreError::CrossDevice),
    (Errno::MLINK, StoreError::TooManyLinks),
    (Errno::STALE, StoreError::Stale),
    (Errno::NODATA, StoreError::NoXattr),
    (Errno::TOOBIG, StoreError::XattrTooBig),
    (Errno::RANGE, StoreError::XattrTooBig),
    (Errno::OPNOTSUPP, StoreError::NotSupported),
    (Errno::NOSYS, StoreError::NotSupported),
    (Errno::NOTTY, StoreError::NotSupported),
    (Errno::TXTBSY, StoreError::Busy),
    (Errno::BUSY, StoreError::Busy),
    (Errno::AGAIN, StoreError::Busy),
    (Errno::INTR, StoreError::Busy),
    (Errno::DEADLK, StoreError::Busy),
    (Errno::NOMEM, StoreError::OutOfResources),
    (Errno::NFILE, StoreError::OutOfResources),
    (Errno::MFILE, StoreError::OutOfResources),
    (Errno::NOBUFS, StoreError::OutOfResources),
];

/// Maps an error number to the store's error.
pub(crate) fn store_error(errno: Errno) -> StoreError {
    MEANINGS
        .iter()
        .find(|(known, _)| *known == errno)
        .map_or(StoreError::Io, |(_, meaning)| *meaning)
}

/// Converts a system call's result to a store's.
pub(crate) trait OrStoreError<T> {
    /// Returns the result with the store's error.
    fn or_store(self) -> StoreResult<T>;
}

impl<T> OrStoreError<T> for rustix::io::Result<T> {
    fn or_store(self) -> StoreResult<T> {
        self.map_err(store_error)
    }
}

impl<T> OrStoreError<T> for io::Result<T> {
    fn or_store(self) -> StoreResult<T> {
        self.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => store_error(errno),
            None => StoreError::Io,
        })
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
    fn unknown_numbers_are_io_errors() {
        assert_eq!(store_error(Errno::NXIO), StoreError::Io);
        assert_eq!(store_error(Errno::IO), StoreError::Io);
        assert_eq!(io::Result::<()>::Err(io::Error::other("x")).or_store(), Err(StoreError::Io));
        let denied = io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error());
        assert_eq!(io::Result::<()>::Err(denied).or_store(), Err(StoreError::AccessDenied));
    }
}
