//! Task management and its effect on the logical unit and other sessions, as
//! `gateway/src/iscsi/task_management.rs` does it.

use super::LUN;
use super::target::{FUNCTION_SECONDS, Live, Target};
use crate::executor::SECOND;
use crate::mutant::Mutant;
use std::sync::Arc;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_scsi::{Nexus, ResetReason};

/// Carries a function out.
pub(super) async fn effects(
    target: &Arc<Target>,
    live: &Arc<Live>,
    function: TaskFunction,
    lun: WireLun,
) -> TaskResult {
    let own = live.nexus.id;
    let others = |nexus: &Nexus| nexus.id != own;
    let former = |nexus: &Nexus| nexus.id != own && nexus.is_same_port(&live.nexus);
    match function {
        TaskFunction::TARGET_WARM_RESET => reset(target, live, ResetReason::TargetWarmReset).await,
        _ if lun != LUN => TaskResult::LUN_DOES_NOT_EXIST,
        TaskFunction::LUN_RESET => reset(target, live, ResetReason::LunReset).await,
        TaskFunction::CLEAR_TASK_SET => {
            for other in others_of(target, live) {
                abort_on(target, &other);
                target.disk.tasks_cleared(other.nexus.id);
            }
            settled(target, others).await
        }
        TaskFunction::ABORT_TASK_SET => settled(target, former).await,
        _ => TaskResult::COMPLETE,
    }
}

async fn reset(target: &Arc<Target>, live: &Arc<Live>, reason: ResetReason) -> TaskResult {
    others_of(target, live).iter().for_each(|other| abort_on(target, other));
    let own = live.nexus.id;
    let result = settled(target, |nexus: &Nexus| nexus.id != own).await;
    if result == TaskResult::COMPLETE {
        target.disk.reset_lun(reason);
    }
    result
}

async fn settled(target: &Arc<Target>, which: impl Fn(&Nexus) -> bool) -> TaskResult {
    if target.mutant == Some(Mutant::ResetNotAwaited) {
        return TaskResult::COMPLETE;
    }
    let limit = FUNCTION_SECONDS * SECOND;
    match target.executor.within(limit, target.disk.settled(which)).await {
        Some(()) => TaskResult::COMPLETE,
        None => TaskResult::REJECTED,
    }
}

fn others_of(target: &Arc<Target>, live: &Arc<Live>) -> Vec<Arc<Live>> {
    target.sessions().into_iter().filter(|other| !Arc::ptr_eq(other, live)).collect()
}

fn abort_on(target: &Arc<Target>, live: &Arc<Live>) {
    target.drive(live, |session| session.abort_tasks(Some(LUN), None));
}

/// Aborts the tasks of other sessions of the selected I_T nexuses.
pub(super) fn abort_others(target: &Arc<Target>, live: &Arc<Live>, which: &dyn Fn(&Nexus) -> bool) {
    for other in others_of(target, live) {
        if which(&other.nexus) {
            abort_on(target, &other);
        }
    }
}
