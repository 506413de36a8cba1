//! Volumes that their maker has to confirm, and the end of those that nobody has
//! confirmed in time.

use super::{Answer, VolumeService, absent, error};
use crate::exports::granted::ParentPlan;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use zgate_api::volume::MAX_CONFIRM_SECONDS;
use zgate_api::{ApiError, CreateVolume, ErrorCode, Volume};
use zgate_control::{DatasetName, volume};

/// Times, in seconds since 1970, at which the first volume below each parent is
/// due. A parent that is absent was not looked at since the start of the gateway.
#[derive(Default)]
pub(super) struct Due(Mutex<HashMap<DatasetName, Option<i64>>>);

impl Due {
    fn is_due(&self, parent: &DatasetName, now: i64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(parent).is_none_or(|next| next.is_some_and(|next| next <= now))
    }

    pub(super) fn set(&self, parent: &DatasetName, next: Option<i64>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(parent.clone(), next);
    }

    fn add(&self, parent: &DatasetName, until: i64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = all.get_mut(parent) {
            *next = Some(next.map_or(until, |earlier| earlier.min(until)));
        }
    }
}

/// Time in seconds since 1970.
pub(super) fn now_unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl VolumeService {
    /// Makes a volume, or finds it. True: it is new. With a time, the volume is
    /// destroyed unless its maker confirms it within so many seconds.
    pub(crate) fn create_within(
        &self,
        asked: &CreateVolume,
        confirm_seconds: Option<u32>,
    ) -> Answer<(Volume, bool)> {
        let until = match confirm_seconds {
            None => None,
            Some(seconds @ 1..=MAX_CONFIRM_SECONDS) => {
                Some(now_unix_seconds().saturating_add(seconds.into()))
            }
            Some(seconds) => {
                let message = format!("confirm_seconds {seconds} is no time for a confirmation");
                let next = format!("give 1 to {MAX_CONFIRM_SECONDS} seconds, or none");
                return Err(ApiError::new(ErrorCode::Invalid, message, next));
            }
        };
        self.make(asked, until)
    }

    /// Destroys volumes below a parent that nobody has confirmed in time. A failure
    /// is left for the next change.
    pub(super) fn destroy_unconfirmed(&self, parent: &ParentPlan) {
        let now = now_unix_seconds();
        if !self.due.is_due(&parent.dataset, now) {
            return;
        }
        // Whoever confirms one meanwhile waits.
        let Ok(_alone) = self.locks.lock(&parent.dataset.pool()) else { return };
        match volume::destroy_unconfirmed(self.tool(), &parent.dataset, now) {
            Ok(next) => self.due.set(&parent.dataset, next),
            Err(error) => {
                tracing::warn!(parent = %parent.dataset, %error, "unconfirmed volumes stay for now");
            }
        }
    }

    pub(super) fn is_due_at(&self, parent: &ParentPlan, until: i64) {
        self.due.add(&parent.dataset, until);
    }

    /// Lets a new volume stay.
    pub(crate) fn confirm(&self, id: &str, owner: &str) -> Answer<Volume> {
        let (dataset, parent) = self.parent_of(id)?;
        let _one = self.locks.lock_volume(&dataset)?;
        let found = self.owned(&dataset, owner)?.ok_or_else(|| absent(&dataset))?;
        volume::confirm(self.tool(), &found).map_err(error)?;
        Ok(self.view(&parent, found))
    }
}
