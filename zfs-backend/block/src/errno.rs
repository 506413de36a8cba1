//! Meaning of the kernel's error numbers for a disk.

use rustix::io::Errno;
use std::io;
use zgate_store::StoreError;

/// Maps an operating system error to the store's error: EIO, ENXIO, ENODATA of a bad sector,
/// ETIMEDOUT and others are [`StoreError::Io`].
pub(crate) fn store_error(error: &io::Error) -> StoreError {
    Errno::from_io_error(error)
        .map_or(StoreError::Io, |errno| zgate_io::errno::store_error(errno, &[]))
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

    #[test]
    fn faults_keep_their_names() {
        let named = [
            (Errno::IO, StoreError::Io),
            (Errno::NXIO, StoreError::Io),
            (Errno::NODATA, StoreError::Io),
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
