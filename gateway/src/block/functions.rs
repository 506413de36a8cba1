//! Task management functions and what they do to logical units and to other
//! sessions (SAM-5 §7; RFC 7143 §11.5).

use super::cell::Cell;
use super::service::BlockService;
use super::unit::Unit;
use std::sync::Arc;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_iscsi::session::{CloseReason, FunctionTag};
use zgate_scsi::{Lun, NexusId, ResetReason};

/// Carries a function out and tells the session's engine. Tasks of other
/// sessions that it ended have come to their end then: nothing they wrote
/// comes after the answer.
pub(crate) async fn carry_out(
    block: &BlockService,
    cell: &Arc<Cell>,
    tag: FunctionTag,
    function: TaskFunction,
    lun: WireLun,
) {
    let result = effects(block, cell, function, lun).await;
    cell.with(|session| session.function_done(tag, result));
}

async fn effects(
    block: &BlockService,
    cell: &Arc<Cell>,
    function: TaskFunction,
    lun: WireLun,
) -> TaskResult {
    let view = cell.view();
    let named = Lun::parse(lun.0.to_be_bytes()).and_then(|lun| view.units.get(&lun)).cloned();
    match function {
        TaskFunction::TARGET_WARM_RESET => {
            let units: Vec<_> = view.units.values().cloned().collect();
            for unit in units {
                reset(block, cell, &unit, ResetReason::TargetWarmReset).await;
            }
            return TaskResult::COMPLETE;
        }
        TaskFunction::TARGET_COLD_RESET => {
            let units: Vec<_> = view.units.values().cloned().collect();
            for unit in units {
                reset(block, cell, &unit, ResetReason::TargetColdReset).await;
            }
            // RFC 7143 §11.5.1: equivalent to a power on: every session of
            // the target ends. This one's ends in the engine.
            let of_target = |other: &&Arc<Cell>| {
                other.key.target == cell.key.target && !Arc::ptr_eq(other, cell)
            };
            for other in block.sessions().iter().filter(of_target) {
                other.with(|session| session.terminate(CloseReason::Dropped));
                block.end_session(other);
            }
            return TaskResult::COMPLETE;
        }
        TaskFunction::I_T_NEXUS_RESET => {
            for unit in view.units.values() {
                unit.disk.nexus_lost(cell.nexus.id);
            }
            return TaskResult::COMPLETE;
        }
        _ => {}
    }
    let Some(unit) = named else { return TaskResult::LUN_DOES_NOT_EXIST };
    match function {
        TaskFunction::LUN_RESET => reset(block, cell, &unit, ResetReason::LunReset).await,
        TaskFunction::CLEAR_TASK_SET => {
            for other in others_on(block, cell, &unit) {
                abort_on(&other, &unit);
                unit.disk.tasks_cleared(other.nexus.id);
                other.settled(Some(&unit), None).await;
            }
        }
        _ => {}
    }
    TaskResult::COMPLETE
}

async fn reset(block: &BlockService, cell: &Arc<Cell>, unit: &Arc<Unit>, reason: ResetReason) {
    let others = others_on(block, cell, unit);
    for other in &others {
        abort_on(other, unit);
    }
    for other in &others {
        other.settled(Some(unit), None).await;
    }
    unit.disk.reset_lun(reason);
}

/// Other sessions that see a unit.
fn others_on(block: &BlockService, cell: &Arc<Cell>, unit: &Arc<Unit>) -> Vec<Arc<Cell>> {
    let sees = |other: &Arc<Cell>| {
        !Arc::ptr_eq(other, cell) && other.view().units.values().any(|one| Arc::ptr_eq(one, unit))
    };
    block.sessions().into_iter().filter(sees).collect()
}

/// Ends a session's tasks on a unit without an answer: the control mode page
/// says TAS=0, a unit attention tells instead.
fn abort_on(cell: &Arc<Cell>, unit: &Arc<Unit>) {
    let view = cell.view();
    let luns = view.units.iter().filter(|(_, one)| Arc::ptr_eq(one, unit));
    for (lun, _) in luns {
        // Hosts address a LUN below 256 in one of two ways.
        let number = lun.number();
        let flat = [0x40 | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0];
        for wire in [lun.encode(), flat] {
            let wire = WireLun(u64::from_be_bytes(wire));
            cell.with(|session| session.abort_tasks(Some(wire), None));
        }
    }
}

/// PREEMPT AND ABORT: ends the tasks of I_T nexuses on a unit and waits until
/// none of them can write any more (SPC-4 §5.13.11.2.6).
pub(crate) async fn preempt(
    block: &BlockService,
    unit: &Arc<Unit>,
    nexuses: &[NexusId],
    own: &Arc<Cell>,
) {
    for other in block.sessions() {
        if nexuses.contains(&other.nexus.id) && !Arc::ptr_eq(&other, own) {
            abort_on(&other, unit);
            other.settled(Some(unit), None).await;
        }
    }
}
