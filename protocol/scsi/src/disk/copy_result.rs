//! Results of third-party copies, kept for each I_T nexus.

use crate::limits::MAX_COPY_RESULTS;
use crate::sense::Sense;
use std::collections::VecDeque;

/// Result of a third-party copy that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyResult {
    /// LIST IDENTIFIER.
    pub(crate) list: u32,
    /// SERVICE ACTION of the EXTENDED COPY family.
    pub(crate) action: u8,
    /// Sense data of a failed copy.
    pub(crate) failure: Option<Sense>,
    pub(crate) segments: u16,
    /// Amount copied: bytes for LID1 copies, logical blocks for token copies.
    pub(crate) transferred: u64,
    /// Set if the token stood for less data than there was to be written.
    pub(crate) cut: bool,
    /// The token that POPULATE TOKEN made.
    pub(crate) token: Option<Vec<u8>>,
}

/// Keeps a result, replacing an older one with the same list identifier.
pub(crate) fn keep(results: &mut VecDeque<CopyResult>, result: CopyResult) {
    results.retain(|old| old.list != result.list || (old.action == 0) != (result.action == 0));
    if results.len() == MAX_COPY_RESULTS {
        results.pop_front();
    }
    results.push_back(result);
}
