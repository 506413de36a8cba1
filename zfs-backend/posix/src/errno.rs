//! Meaning of the kernel's error numbers for files.

use rustix::io::Errno;
use std::io;
use zgate_store::{StoreError, StoreResult};

/// Error numbers that mean something for files only.
const MEANINGS: &[(Errno, StoreError)] = &[
    (Errno::NOENT, StoreError::NotFound),
    (Errno::EXIST, StoreError::Exists),
    (Errno::NOTDIR, StoreError::NotDirectory),
    (Errno::ISDIR, StoreError::IsDirectory),
    (Errno::LOOP, StoreError::IsSymlink),
    (Errno::NAMETOOLONG, StoreError::NameTooLong),
    (Errno::ILSEQ, StoreError::BadName),
    (Errno::NOTEMPTY, StoreError::NotEmpty),
    (Errno::XDEV, StoreError::CrossDevice),
    (Errno::MLINK, StoreError::TooManyLinks),
    (Errno::NODATA, StoreError::NoXattr),
    (Errno::TOOBIG, StoreError::XattrTooBig),
    (Errno::RANGE, StoreError::XattrTooBig),
    (Errno::DEADLK, StoreError::Busy),
];

/// Maps an error number to the store's error.
pub(crate) fn store_error(errno: Errno) -> StoreError {
    zgate_io::errno::store_error(errno, MEANINGS)
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
        for (errno, _) in MEANINGS {
            assert_eq!(zgate_io::errno::store_error(*errno, &[]), StoreError::Io, "{errno:?}");
        }
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
