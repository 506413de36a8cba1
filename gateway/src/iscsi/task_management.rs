//! Task management functions and their effect on logical units and other
//! sessions (SAM-5 §7; RFC 7143 §11.5).
//!
//! A function is complete when no earlier command can still write, whatever
//! session it came from, even one that has ended. If that takes too long the
//! function is rejected: after a "complete" the initiator writes again, and a
//! delayed old write would overwrite its data.

use super::luns::unit::Unit;
use super::service::IscsiService;
use super::session::LiveSession;
use std::sync::Arc;
use tokio::time::Instant;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_iscsi::session::{CloseReason, FunctionTag};
use zgate_scsi::{Lun, Nexus, ResetReason};

/// Executes a function and informs the session's engine, which waits for the
/// session's own tasks.
pub(crate) async fn carry_out(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    tag: FunctionTag,
    function: TaskFunction,
    lun: WireLun,
) {
    let result = effects(block, live, function, lun).await;
    if result == TaskResult::REJECTED {
        tracing::warn!(
            initiator = %live.key.initiator,
            function = function.0,
            "task management rejected: aborted commands still run on the storage"
        );
    }
    live.with(|session| session.function_done(tag, result));
}

async fn effects(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    function: TaskFunction,
    lun: WireLun,
) -> TaskResult {
    let lun_map = live.lun_map();
    let all: Vec<_> = lun_map.units.values().cloned().collect();
    let named = Lun::parse(lun.0.to_be_bytes()).and_then(|lun| lun_map.units.get(&lun)).cloned();
    let own = live.nexus.id;
    let others = |nexus: &Nexus| nexus.id != own;
    // An earlier session of the same I_T nexus.
    let former = |nexus: &Nexus| nexus.id != own && nexus.is_same_port(&live.nexus);
    let one = named.as_ref().map(std::slice::from_ref);
    match (function, one) {
        (TaskFunction::TARGET_WARM_RESET, _) => {
            reset(block, live, &all, ResetReason::TargetWarmReset).await
        }
        (TaskFunction::TARGET_COLD_RESET, _) => {
            // RFC 7143 §11.5.1: equivalent to a power on: every session of the
            // target ends. The engine ends this one.
            let of_target = |other: &&Arc<LiveSession>| {
                other.key.target == live.key.target && !Arc::ptr_eq(other, live)
            };
            for other in block.sessions().iter().filter(of_target) {
                other.with(|session| session.terminate(CloseReason::Dropped));
                block.end_session(other);
            }
            reset(block, live, &all, ResetReason::TargetColdReset).await
        }
        (TaskFunction::I_T_NEXUS_RESET, _) => {
            let result = settled(block, &all, former).await;
            if result == TaskResult::COMPLETE {
                all.iter().for_each(|unit| unit.disk.nexus_lost(own));
            }
            result
        }
        (_, None) => TaskResult::LUN_DOES_NOT_EXIST,
        (TaskFunction::LUN_RESET, Some(unit)) => {
            reset(block, live, unit, ResetReason::LunReset).await
        }
        (TaskFunction::CLEAR_TASK_SET, Some(unit)) => {
            for other in others_on(block, live, &unit[0]) {
                abort_on(&other, &unit[0]);
                unit[0].disk.tasks_cleared(other.nexus.id);
            }
            settled(block, unit, others).await
        }
        (TaskFunction::ABORT_TASK_SET, Some(unit)) => settled(block, unit, former).await,
        _ => TaskResult::COMPLETE,
    }
}

async fn reset(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    units: &[Arc<Unit>],
    reason: ResetReason,
) -> TaskResult {
    for unit in units {
        others_on(block, live, unit).iter().for_each(|other| abort_on(other, unit));
    }
    let own = live.nexus.id;
    let result = settled(block, units, |nexus: &Nexus| nexus.id != own).await;
    if result == TaskResult::COMPLETE {
        units.iter().for_each(|unit| unit.disk.reset_lun(reason));
    }
    result
}

/// Waits for the commands of the selected I_T nexuses on these units, for all
/// of them together at most the time limit of a function.
async fn settled(
    block: &IscsiService,
    units: &[Arc<Unit>],
    which: impl Fn(&Nexus) -> bool,
) -> TaskResult {
    let deadline = Instant::now() + block.timeouts.function;
    for unit in units {
        if tokio::time::timeout_at(deadline, unit.disk.settled(&which)).await.is_err() {
            return TaskResult::REJECTED;
        }
    }
    TaskResult::COMPLETE
}

/// Returns the other sessions that can access a unit.
fn others_on(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    unit: &Arc<Unit>,
) -> Vec<Arc<LiveSession>> {
    let sees = |other: &Arc<LiveSession>| {
        !Arc::ptr_eq(other, live)
            && other.lun_map().units.values().any(|one| Arc::ptr_eq(one, unit))
    };
    block.sessions().into_iter().filter(sees).collect()
}

/// Aborts a session's tasks on a unit without a response: the control mode page
/// has TAS=0, and a unit attention reports it instead.
fn abort_on(live: &Arc<LiveSession>, unit: &Arc<Unit>) {
    let lun_map = live.lun_map();
    let luns = lun_map.units.iter().filter(|(_, one)| Arc::ptr_eq(one, unit));
    for (lun, _) in luns {
        // A LUN below 256 can be addressed in two ways.
        let number = lun.number();
        let flat = [0x40 | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0];
        for wire in [lun.encode(), flat] {
            let wire = WireLun(u64::from_be_bytes(wire));
            live.with(|session| session.abort_tasks(Some(wire), None));
        }
    }
}

/// Aborts the tasks of other sessions of the selected I_T nexuses on a unit.
pub(crate) fn abort_others(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    unit: &Arc<Unit>,
    which: &dyn Fn(&Nexus) -> bool,
) {
    for other in others_on(block, live, unit) {
        if which(&other.nexus) {
            abort_on(&other, unit);
        }
    }
}
