//! Replaced content that is told by request, `zgate replaced`: where the gateway may not read ZFS's
//! events, a script of OpenZFS's event daemon tells it of those that matter (`deploy/zed`).
//!
//! Where the gateway reads them as well, it tells clients twice. They then write again once more
//! what they have not committed; a delegation that is being recalled is not recalled again.

use super::heard::Changes;
use super::replaced::Announcer;
use crate::observe::audit::{self, Asker};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use zgate_control::DatasetName;
use zgate_control::replaced::Replacement;
use zgate_control::watch::Change;

/// Answer to a request.
#[derive(Debug, Serialize)]
pub(crate) struct Replaced {
    /// Name of the dataset.
    pub(super) dataset: DatasetName,
    /// Number of exports whose clients were told.
    pub(super) exports: usize,
    /// Number of LUNs in which all blocks count as mapped again.
    pub(super) luns: usize,
}

/// Tells clients of replaced content on request.
pub(crate) struct ReplacementRequests {
    announcer: Arc<Announcer>,
    changes: Changes,
}

impl ReplacementRequests {
    pub(super) fn new(announcer: &Arc<Announcer>, changes: Changes) -> Self {
        Self { announcer: Arc::clone(announcer), changes }
    }

    /// Tells clients that the content of the dataset with this name was replaced, as an event of
    /// ZFS does; it may be one that is not served. Waits for no storage. Further exports that
    /// show it are told by the thread that follows datasets.
    ///
    /// An audit line says that clients were told. Streams that are received into datasets that
    /// are not served leave none: there may be thousands at once.
    ///
    /// # Errors
    /// `InvalidInput` if it is not the name of a dataset.
    pub(crate) fn tell(&self, by: &Asker, name: &str) -> io::Result<Replaced> {
        let what = format!("replaced {name}");
        let dataset: DatasetName = name.parse().map_err(|error| {
            let reason = format!("{error}");
            audit::change(by, &what, Err(&reason));
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        })?;
        let replacement = Replacement::Of(dataset.clone());
        let told = self.announcer.tell(&replacement);
        let (exports, luns) = (told.exports, told.luns);
        if told.is_queued {
            self.changes.send(Change::Replaced(replacement));
        }
        if exports + luns > 0 {
            audit::change(by, &what, Ok(&format!("done, exports: {exports}, LUNs: {luns}")));
        }
        Ok(Replaced { dataset, exports, luns })
    }
}
