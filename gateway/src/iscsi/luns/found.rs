//! Logical units that a pattern or the API found: opened all at the same time, and
//! absent where that fails, so that they come later.

use super::catalog::{SEE_LOG, Target};
use super::unit::{Unit, UnitHome};
use super::volumes::Opened;
use crate::exports::absent::Fault;
use std::sync::Arc;
use zgate_config::LunConfig;
use zgate_iscsi::names::IscsiName;

/// Returns whether a LUN has to be opened: its target neither has a unit on its volume
/// nor waits for it.
pub(in crate::iscsi) fn is_closed(target: Option<&Arc<Target>>, lun: &LunConfig) -> bool {
    let Some(target) = target else { return true };
    let is_open = target.units.get(&lun.number).is_some_and(|unit| unit.is_of(lun));
    let awaits = target.absent.get(&lun.number).is_some_and(|absent| absent.config == *lun);
    !is_open && !awaits
}

/// Returns the unit of a LUN: the one it had, or one over that one's volume, or over a
/// volume that was opened for it.
///
/// # Errors
/// The reason for which the LUN is absent.
pub(in crate::iscsi) fn unit_of(
    home: &UnitHome,
    target: &IscsiName,
    lun: &LunConfig,
    before: Option<&Arc<Unit>>,
    opened: &mut Opened,
) -> Result<Arc<Unit>, Fault> {
    if let Some(unit) = before.filter(|unit| unit.config == *lun) {
        return Ok(Arc::clone(unit));
    }
    let volume = opened.remove(&(target.clone(), lun.number)).transpose()?;
    let before = before.map(Arc::as_ref).filter(|unit| unit.is_of(lun));
    if volume.is_none() && before.is_none() {
        // Its earlier unit went in the meantime.
        return Err(Fault::unknown());
    }
    let unit = home.open_over(target, lun, before, volume);
    unit.map_err(|error| Fault::absent(error.to_string(), SEE_LOG))
}
