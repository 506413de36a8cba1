//! Task management functions of a live session: their effects are those of
//! `protocol/target`, carried out on the gateway's sessions, units and clock.

use super::luns::catalog::LunMap;
use super::luns::unit::Unit;
use super::service::IscsiService;
use super::session::LiveSession;
use std::sync::Arc;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_iscsi::session::{CloseReason, FunctionTag};
use zgate_scsi::{Disk, Lun, Nexus};
use zgate_target::{TaskManagement, wire_luns};

/// Executes a function and informs the session's engine, which waits for the
/// session's own tasks.
pub(crate) async fn carry_out(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    tag: FunctionTag,
    function: TaskFunction,
    lun: WireLun,
) {
    let lun_map = live.lun_map();
    let result = zgate_target::effects(&Requested { block, live, lun_map }, function, lun).await;
    if result == TaskResult::REJECTED {
        tracing::warn!(
            initiator = %live.key.initiator,
            function = function.0,
            "task management rejected: aborted commands still run on the storage"
        );
    }
    live.with(|session| session.function_done(tag, result));
}

/// A function that a session has requested.
struct Requested<'a> {
    block: &'a IscsiService,
    live: &'a Arc<LiveSession>,
    lun_map: Arc<LunMap>,
}

impl TaskManagement for Requested<'_> {
    type Session = Arc<LiveSession>;
    type Unit = Arc<Unit>;

    fn own(&self) -> &Nexus {
        &self.live.nexus
    }

    fn units(&self) -> Vec<Arc<Unit>> {
        self.lun_map.units.values().cloned().collect()
    }

    fn unit(&self, lun: WireLun) -> Option<Arc<Unit>> {
        let lun = Lun::parse(lun.0.to_be_bytes())?;
        self.lun_map.units.get(&lun).cloned()
    }

    fn disk<'a>(&self, unit: &'a Arc<Unit>) -> &'a Disk {
        &unit.disk
    }

    fn others_on(&self, unit: &Arc<Unit>) -> Vec<Arc<LiveSession>> {
        let sees = |other: &Arc<LiveSession>| {
            !Arc::ptr_eq(other, self.live)
                && other.lun_map().units.values().any(|one| Arc::ptr_eq(one, unit))
        };
        self.block.sessions().into_iter().filter(sees).collect()
    }

    fn nexus<'a>(&self, session: &'a Arc<LiveSession>) -> &'a Nexus {
        &session.nexus
    }

    fn abort_on(&self, session: &Arc<LiveSession>, unit: &Arc<Unit>) {
        let lun_map = session.lun_map();
        let luns = lun_map.units.iter().filter(|(_, one)| Arc::ptr_eq(one, unit));
        for wire in luns.flat_map(|(lun, _)| wire_luns(*lun)) {
            session.with(|session| session.abort_tasks(Some(wire), None));
        }
    }

    fn end_others(&self) {
        let of_target = |other: &&Arc<LiveSession>| {
            other.key.target == self.live.key.target && !Arc::ptr_eq(other, self.live)
        };
        for other in self.block.sessions().iter().filter(of_target) {
            other.with(|session| session.terminate(CloseReason::Dropped));
            self.block.end_session(other);
        }
    }

    async fn in_time(&self, work: impl Future<Output = ()>) -> bool {
        tokio::time::timeout(self.block.timeouts.function, work).await.is_ok()
    }
}

/// Aborts the tasks of other sessions of the selected I_T nexuses on a unit.
pub(crate) fn abort_others(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    unit: &Arc<Unit>,
    which: &dyn Fn(&Nexus) -> bool,
) {
    let lun_map = live.lun_map();
    zgate_target::abort_others(&Requested { block, live, lun_map }, unit, which);
}
