//! Task management functions and their effect on logical units and other
//! sessions (SAM-5 §7; RFC 7143 §11.5).
//!
//! A function is complete when no earlier command can still write, whatever
//! session it came from, even one that has ended. If that takes too long the
//! function is rejected: after a "complete" the initiator writes again, and a
//! delayed old write would overwrite its data.

use std::slice::from_ref;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_scsi::{Disk, Lun, Nexus, ResetReason};

/// A target, as a function of one of its sessions sees it.
pub trait TaskManagement {
    /// A session.
    type Session;
    /// A logical unit.
    type Unit;

    /// The I_T nexus of the session that requests the function.
    fn own(&self) -> &Nexus;

    /// The logical units that the session can access.
    fn units(&self) -> Vec<Self::Unit>;

    /// The unit of a LUN in the session's view.
    fn unit(&self, lun: WireLun) -> Option<Self::Unit>;

    /// The disk of a unit.
    fn disk<'a>(&self, unit: &'a Self::Unit) -> &'a Disk;

    /// The other sessions that can access a unit.
    fn others_on(&self, unit: &Self::Unit) -> Vec<Self::Session>;

    /// The I_T nexus of a session.
    fn nexus<'a>(&self, session: &'a Self::Session) -> &'a Nexus;

    /// Aborts a session's tasks on a unit without a response: the control mode
    /// page has TAS=0, and a unit attention reports it instead.
    fn abort_on(&self, session: &Self::Session, unit: &Self::Unit);

    /// Ends the other sessions of the target.
    fn end_others(&self);

    /// Waits for `work`, at most for the time limit of a function; returns
    /// whether it has ended.
    fn in_time(&self, work: impl Future<Output = ()>) -> impl Future<Output = bool>;
}

/// Carries a function out; the session's engine waits for the session's own
/// tasks.
pub async fn effects<T: TaskManagement>(
    target: &T,
    function: TaskFunction,
    lun: WireLun,
) -> TaskResult {
    let all = target.units();
    let (named, own) = (target.unit(lun), target.own());
    let others = |nexus: &Nexus| nexus.id != own.id;
    // An earlier session of the same I_T nexus.
    let former = |nexus: &Nexus| nexus.id != own.id && nexus.is_same_port(own);
    match (function, &named) {
        (TaskFunction::TARGET_WARM_RESET, _) => {
            reset(target, &all, ResetReason::TargetWarmReset).await
        }
        (TaskFunction::TARGET_COLD_RESET, _) => {
            // RFC 7143 §11.5.1: equivalent to a power on: every session of the
            // target ends. The engine ends this one.
            target.end_others();
            reset(target, &all, ResetReason::TargetColdReset).await
        }
        (TaskFunction::I_T_NEXUS_RESET, _) => {
            let result = settled(target, &all, former).await;
            if result == TaskResult::COMPLETE {
                all.iter().for_each(|unit| target.disk(unit).nexus_lost(own.id));
            }
            result
        }
        (_, None) => TaskResult::LUN_DOES_NOT_EXIST,
        (TaskFunction::LUN_RESET, Some(unit)) => {
            reset(target, from_ref(unit), ResetReason::LunReset).await
        }
        (TaskFunction::CLEAR_TASK_SET, Some(unit)) => {
            for other in target.others_on(unit) {
                target.abort_on(&other, unit);
                target.disk(unit).tasks_cleared(target.nexus(&other).id);
            }
            settled(target, from_ref(unit), others).await
        }
        (TaskFunction::ABORT_TASK_SET, Some(unit)) => settled(target, from_ref(unit), former).await,
        (TaskFunction::QUERY_ASYNC_EVENT, Some(unit)) => {
            // RFC 7144 §6.2: "succeeded" if there is one.
            let has_attention = target.disk(unit).has_attention(own.id);
            if has_attention { TaskResult::SUCCEEDED } else { TaskResult::COMPLETE }
        }
        _ => TaskResult::COMPLETE,
    }
}

async fn reset<T: TaskManagement>(
    target: &T,
    units: &[T::Unit],
    reason: ResetReason,
) -> TaskResult {
    for unit in units {
        target.disk(unit).begin_reset();
        target.others_on(unit).iter().for_each(|other| target.abort_on(other, unit));
    }
    let own = target.own().id;
    let result = settled(target, units, |nexus: &Nexus| nexus.id != own).await;
    if result == TaskResult::COMPLETE {
        units.iter().for_each(|unit| target.disk(unit).reset_lun(reason));
    }
    result
}

/// Waits for the commands of the selected I_T nexuses on these units, for all
/// of them together at most the time limit of a function.
async fn settled<T: TaskManagement>(
    target: &T,
    units: &[T::Unit],
    which: impl Fn(&Nexus) -> bool,
) -> TaskResult {
    let all = async {
        for unit in units {
            target.disk(unit).settled(&which).await;
        }
    };
    if target.in_time(all).await { TaskResult::COMPLETE } else { TaskResult::REJECTED }
}

/// Aborts the tasks of other sessions of the selected I_T nexuses on a unit.
pub fn abort_others<T: TaskManagement>(target: &T, unit: &T::Unit, which: &dyn Fn(&Nexus) -> bool) {
    for other in target.others_on(unit) {
        if which(target.nexus(&other)) {
            target.abort_on(&other, unit);
        }
    }
}

/// The forms in which an initiator may send a LUN: one below 256 has two.
#[must_use]
pub fn wire_luns(lun: Lun) -> [WireLun; 2] {
    let number = lun.number();
    let flat = [0x40 | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0];
    [lun.encode(), flat].map(|wire| WireLun(u64::from_be_bytes(wire)))
}
