//! Task management of the simulated target: the product's effects, on the
//! simulator's sessions, its one unit and virtual time.

use super::LUN;
use super::target::{FUNCTION_SECONDS, Live, Target};
use crate::executor::SECOND;
use crate::mutant::Mutant;
use std::sync::Arc;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_iscsi::session::CloseReason;
use zgate_scsi::{Disk, Nexus};
use zgate_target::TaskManagement;

/// A function that a session has requested, or a command that aborts others.
struct Requested<'a> {
    target: &'a Arc<Target>,
    live: &'a Arc<Live>,
}

impl TaskManagement for Requested<'_> {
    type Session = Arc<Live>;
    type Unit = Arc<Disk>;

    fn own(&self) -> &Nexus {
        &self.live.nexus
    }

    fn units(&self) -> Vec<Arc<Disk>> {
        vec![Arc::clone(&self.target.disk)]
    }

    fn unit(&self, lun: WireLun) -> Option<Arc<Disk>> {
        (lun == LUN).then(|| Arc::clone(&self.target.disk))
    }

    fn disk<'a>(&self, unit: &'a Arc<Disk>) -> &'a Disk {
        unit
    }

    fn others_on(&self, _: &Arc<Disk>) -> Vec<Arc<Live>> {
        let all = self.target.sessions();
        all.into_iter().filter(|other| !Arc::ptr_eq(other, self.live)).collect()
    }

    fn nexus<'a>(&self, session: &'a Arc<Live>) -> &'a Nexus {
        &session.nexus
    }

    fn abort_on(&self, session: &Arc<Live>, _: &Arc<Disk>) {
        self.target.drive(session, |session| session.abort_tasks(Some(LUN), None));
    }

    fn end_others(&self) {
        for other in self.others_on(&self.target.disk) {
            self.target.drive(&other, |session| session.terminate(CloseReason::Dropped));
            self.target.end_session(&other);
        }
    }

    async fn in_time(&self, work: impl Future<Output = ()>) -> bool {
        if self.target.mutant == Some(Mutant::ResetNotAwaited) {
            return true;
        }
        self.target.executor.within(FUNCTION_SECONDS * SECOND, work).await.is_some()
    }
}

/// Carries a function out.
pub(super) async fn effects(
    target: &Arc<Target>,
    live: &Arc<Live>,
    function: TaskFunction,
    lun: WireLun,
) -> TaskResult {
    zgate_target::effects(&Requested { target, live }, function, lun).await
}

/// Aborts the tasks of other sessions of the selected I_T nexuses.
pub(super) fn abort_others(target: &Arc<Target>, live: &Arc<Live>, which: &dyn Fn(&Nexus) -> bool) {
    zgate_target::abort_others(&Requested { target, live }, &target.disk, which);
}
