//! Datasets whose content was replaced as a whole below the gateway: by a rollback, or by a
//! stream that was received into them.

use std::collections::BTreeSet;
use zgate_control::DatasetName;

/// Datasets whose content may have been replaced.
pub(crate) enum ReplacedDatasets<'a> {
    /// Those with these names.
    Named(BTreeSet<&'a [u8]>),
    /// Nobody knows which.
    Any,
}

impl<'a> ReplacedDatasets<'a> {
    /// Those with these names.
    pub(crate) fn named(datasets: &'a [DatasetName]) -> Self {
        Self::Named(datasets.iter().map(|name| name.as_str().as_bytes()).collect())
    }

    /// Returns whether the dataset with this name may be one of them.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Named(names) => names.contains(name),
            Self::Any => true,
        }
    }
}
