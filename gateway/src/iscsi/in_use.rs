//! Losses of initiators that are logged in, by a reload.

use super::change::Prepared;
use super::luns::catalog::LunMap;
use super::service::IscsiService;
use super::session::LiveSession;

impl IscsiService {
    /// Returns a line for each target and LUN that an initiator uses and would
    /// lose by these changes.
    pub(crate) fn losses(&self, prepared: &Prepared) -> Vec<String> {
        let sessions = self.sessions();
        let mut losses: Vec<_> =
            sessions.iter().flat_map(|live| losses_of(live, prepared)).collect();
        // One host may have several sessions.
        losses.sort();
        losses.dedup();
        losses
    }
}

fn losses_of(live: &LiveSession, prepared: &Prepared) -> Vec<String> {
    let Some(name) = &live.key.target else { return Vec::new() };
    let (initiator, address) = (&live.key.initiator, live.address);
    let user = format!("initiator {initiator} at {address}");
    let Some(target) = prepared.rules.catalog.targets.get(name) else {
        return vec![format!("target {name}: {user}")];
    };
    if target.rule(initiator, Some(address)).is_none() {
        return vec![format!("target {name}, where no rule admits it any longer: {user}")];
    }
    let lost = lost_luns(&live.lun_map(), &target.lun_map(initiator, Some(address)));
    lost.into_iter().map(|lun| format!("{lun} of target {name}: {user}")).collect()
}

/// Names the LUNs that are missing in a new map, or lead to other storage.
fn lost_luns(old: &LunMap, new: &LunMap) -> Vec<String> {
    let lost = old.units.iter().filter_map(|(lun, unit)| match new.units.get(lun) {
        None if new.absent.contains_key(lun) => {
            Some(format!("LUN {}, which would be absent,", lun.number()))
        }
        None => Some(format!("LUN {}", lun.number())),
        Some(now) if now.config.path != unit.config.path => {
            let (before, now) = (unit.config.path.display(), now.config.path.display());
            Some(format!("LUN {} (path {before} -> {now})", lun.number()))
        }
        Some(_) => None,
    });
    lost.collect()
}
