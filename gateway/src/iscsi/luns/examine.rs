//! The device or file of a logical unit, examined without opening it.

use super::unit::{direct_io, fault};
use crate::exports::absent::Fault;
use zgate_block::{Examined, Identity, Wanted};
use zgate_config::LunConfig;

/// Next step for a device or file that never can be served as configured.
const CORRECT: &str = "correct path, size or direct, or what is there";

/// Fault of the device or file of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunProblem {
    /// Reason for which it cannot be served.
    pub reason: String,
    /// Set if it is only absent now: the gateway starts without it.
    pub is_absent: bool,
}

/// Returns what keeps a logical unit from being served. Blocks for as long as the storage
/// does.
#[must_use]
pub fn lun_problem(lun: &LunConfig) -> Option<LunProblem> {
    let Fault { reason, absent, .. } = examine(lun).err()?;
    Some(LunProblem { reason, is_absent: absent })
}

/// Returns the device or file that a logical unit is served from; none if it would be
/// created. Blocks for as long as the storage does.
///
/// # Errors
/// The item that is absent, or can never be served as configured.
pub(crate) fn examine(lun: &LunConfig) -> Result<Option<Identity>, Fault> {
    let wanted = Wanted {
        read_only: lun.read_only,
        direct: direct_io(lun.direct),
        create_bytes: lun.size.map(|size| size.0),
    };
    let found = zgate_block::examine(&lun.path, &wanted).map_err(|error| {
        let fault = fault(&error);
        if fault.absent { fault } else { Fault { next_step: CORRECT.to_owned(), ..fault } }
    })?;
    let Some(Examined { identity, size_bytes }) = found else { return Ok(None) };
    match size_bytes {
        // What the disk would say (`zgate_scsi::Disk`).
        Some(bytes) if bytes < u64::from(lun.block_bytes) => {
            let (path, block) = (lun.path.display(), lun.block_bytes);
            let reason = format!("{path} has {bytes} bytes, less than one block of {block}");
            Err(Fault { next_step: CORRECT.to_owned(), ..Fault::wrong(reason) })
        }
        _ => Ok(Some(identity)),
    }
}
