//! Volumes that their maker has to confirm. One that crashes between the request
//! and its own record of the volume leaves nothing: the volume is destroyed later.

use super::delete::{Promotion, delete};
use super::fault::{Fault, VolumeError};
use super::record::{UNCONFIRMED, VolumeRecord, list};
use crate::name::DatasetName;
use crate::tool::Tool;

/// Lets a volume stay.
///
/// # Errors
/// The error of `zfs`.
pub fn confirm(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    if volume.unconfirmed_until.is_some() {
        tool.run("zfs", &["inherit", UNCONFIRMED, volume.dataset.as_str()])?;
    }
    Ok(())
}

/// Destroys the volumes below a parent that were not confirmed in time and that
/// nobody uses. Returns when the next one may be due, in seconds since 1970.
///
/// # Errors
/// The error of `zfs`.
pub fn destroy_unconfirmed(
    tool: &dyn Tool,
    parent: &DatasetName,
    now_unix_seconds: i64,
) -> Result<Option<i64>, VolumeError> {
    let mut next = None;
    for volume in list(tool, parent)? {
        let Some(until) = volume.unconfirmed_until else { continue };
        if volume.is_abandoned(now_unix_seconds) {
            match delete(tool, &volume, Promotion::Allowed) {
                Ok(_) => continue,
                // Somebody has taken a snapshot, or opened the device for a moment.
                Err(error) if error.fault == Fault::InUse => {}
                Err(error) => return Err(error),
            }
        }
        next = Some(next.map_or(until, |earlier: i64| earlier.min(until)));
    }
    Ok(next)
}
