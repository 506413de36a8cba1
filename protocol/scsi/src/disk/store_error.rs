//! Mapping of storage errors to SCSI, in one place.

use crate::sense::{Asc, Sense, SenseKey};
use zgate_store::StoreError;

/// Kind of access that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading, or querying the allocation of blocks.
    Read,
    /// Writing, discarding or bringing to stable storage.
    Write,
}

/// Returns the sense data for a failure of the store.
pub(crate) fn sense(error: StoreError, access: Access) -> Sense {
    let medium = match access {
        Access::Read => Sense::new(SenseKey::MediumError, Asc::READ_ERROR),
        Access::Write => Sense::new(SenseKey::MediumError, Asc::WRITE_ERROR),
    };
    match error {
        // SBC-4 §4.7.3.6: allocation failed, the data were not written.
        StoreError::NoSpace | StoreError::QuotaExceeded | StoreError::TooLarge => {
            Sense::new(SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED)
        }
        // TextBusy: the file has become a swap file of the server.
        StoreError::ReadOnly
        | StoreError::NotPermitted
        | StoreError::AccessDenied
        | StoreError::TextBusy => Sense::new(SenseKey::DataProtect, Asc::WRITE_PROTECTED),
        StoreError::BeyondEnd => Sense::illegal(Asc::LBA_OUT_OF_RANGE),
        StoreError::Busy | StoreError::OutOfResources => {
            Sense::new(SenseKey::AbortedCommand, Asc::RESOURCE_FAILURE)
        }
        StoreError::Io => medium,
        // The store vanished, or returned an error that no block store should
        // return.
        StoreError::NotFound
        | StoreError::Exists
        | StoreError::NotDirectory
        | StoreError::IsDirectory
        | StoreError::IsSymlink
        | StoreError::WrongType
        | StoreError::Invalid
        | StoreError::NameTooLong
        | StoreError::BadName
        | StoreError::NotEmpty
        | StoreError::CrossDevice
        | StoreError::TooManyLinks
        | StoreError::Stale
        | StoreError::BadHandle
        | StoreError::NoXattr
        | StoreError::XattrTooBig
        | StoreError::NotSupported => Sense::new(SenseKey::HardwareError, Asc::INTERNAL_FAILURE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_protects_data() {
        let sense = sense(StoreError::NoSpace, Access::Write);
        assert_eq!((sense.key, sense.asc.0), (SenseKey::DataProtect, 0x2707));
    }

    #[test]
    fn writes_that_are_refused_are_not_to_be_repeated() {
        for error in [StoreError::ReadOnly, StoreError::AccessDenied, StoreError::TextBusy] {
            let sense = sense(error, Access::Write);
            assert_eq!((sense.key, sense.asc), (SenseKey::DataProtect, Asc::WRITE_PROTECTED));
        }
    }

    #[test]
    fn media_errors_tell_reads_from_writes() {
        assert_eq!(sense(StoreError::Io, Access::Read).asc, Asc::READ_ERROR);
        assert_eq!(sense(StoreError::Io, Access::Write).asc, Asc::WRITE_ERROR);
    }
}
