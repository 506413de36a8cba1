//! RESERVE (6) and RELEASE (6) (SPC-2 §7.21, §7.24), with the exceptions for
//! registered I_T nexuses of SPC-4 §5.13.3 (CRH=1).

use super::{Cx, Failure, Outcome, Reply};
use crate::sense::ScsiStatus;

pub(crate) fn reserve(cx: &Cx<'_>) -> Outcome {
    let nexus = &cx.command.nexus;
    // PERSISTENT RESERVE OUT has this lock until its change is in effect.
    let alone = cx.disk.shared.reserving.try_lock();
    let mut state = cx.disk.state();
    if state.registry.has_registrations() {
        // GOOD without effect for whom the persistent reservation gives what this
        // command asks for. Without one, nothing would keep the others out.
        return if state.registry.admits(nexus) { Ok(Reply::GOOD) } else { Err(Failure::Conflict) };
    }
    if alone.is_none() {
        // It may be about to register a key. Waiting for it could be without end: a
        // PREEMPT waits for the commands of this nexus.
        return Ok(Reply { status: ScsiStatus::Busy, ..Reply::GOOD });
    }
    // Another one may have reserved since this command was admitted.
    if state.legacy_holder.is_some_and(|holder| holder != nexus.id) {
        return Err(Failure::Conflict);
    }
    state.legacy_holder = Some(nexus.id);
    state.legacy_holder_lost = false;
    Ok(Reply::GOOD)
}

pub(crate) fn release(cx: &Cx<'_>) -> Outcome {
    let nexus = &cx.command.nexus;
    let mut state = cx.disk.state();
    if state.legacy_holder == Some(nexus.id) {
        state.legacy_holder = None;
        return Ok(Reply::GOOD);
    }
    // SPC-2 §5.5.1: with registrations, RELEASE conflicts like RESERVE. Otherwise
    // (SPC-2 §7.21.2) it has no effect on another nexus's reservation.
    if state.registry.has_registrations() && !state.registry.admits(nexus) {
        return Err(Failure::Conflict);
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use super::{Cx, Failure, reserve};
    use crate::command::table::{Lookup, lookup};
    use crate::disk::ResetReason;
    use crate::nexus::Nexus;
    use crate::sense::ScsiStatus;
    use crate::testing::Bench;
    use crate::transport::Alone;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
    const MODE_SENSE: [u8; 6] = [0x1A, 0, 0x3F, 0, 255, 0];

    #[test]
    fn one_holds_and_others_wait() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        assert_eq!(bench.run(&RESERVE, b"").status, ScsiStatus::Good);
        assert_eq!(bench.run(&RESERVE, b"").status, ScsiStatus::Good);
        let conflict = ScsiStatus::ReservationConflict;
        assert_eq!(bench.run_as(&other, &RESERVE, b"").status, conflict);
        assert_eq!(bench.run_as(&other, &RELEASE, b"").status, ScsiStatus::Good);
        assert_eq!(bench.run_as(&other, &MODE_SENSE, b"").status, conflict);
        assert_eq!(bench.run(&MODE_SENSE, b"").status, ScsiStatus::Good);
        assert_eq!(bench.run_as(&other, &[0x12, 0, 0, 0, 36, 0], b"").status, ScsiStatus::Good);
        assert_eq!(bench.run(&RELEASE, b"").status, ScsiStatus::Good);
        assert_eq!(bench.run_as(&other, &RESERVE, b"").status, ScsiStatus::Good);
    }

    /// Sends PERSISTENT RESERVE OUT with keys below 256.
    fn persist(
        bench: &Bench,
        nexus: &Arc<Nexus>,
        (action, kind): (u8, u8),
        (key, new_key): (u8, u8),
    ) -> ScsiStatus {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, new_key);
        bench.run_as(nexus, &[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list).status
    }

    #[test]
    fn with_registrations_only_a_persistent_reservation_stands_for_it() {
        let good = ScsiStatus::Good;
        let conflict = ScsiStatus::ReservationConflict;
        // Type, or none, and what holder and registrant get.
        for (kind, holds, registered) in [
            (None, conflict, conflict),
            (Some(1), good, conflict),
            (Some(3), good, conflict),
            (Some(5), good, good),
            (Some(8), good, good),
        ] {
            let bench = Bench::new();
            let (second, third) = (bench.another_nexus(2), bench.another_nexus(3));
            assert_eq!(persist(&bench, &bench.nexus, (6, 0), (0, 1)), good);
            assert_eq!(persist(&bench, &second, (6, 0), (0, 2)), good);
            if let Some(kind) = kind {
                assert_eq!(persist(&bench, &bench.nexus, (1, kind), (1, 0)), good);
            }
            for (nexus, expected) in
                [(&bench.nexus, holds), (&second, registered), (&third, conflict)]
            {
                for cdb in [RESERVE, RELEASE] {
                    let status = bench.run_as(nexus, &cdb, b"").status;
                    assert_eq!(status, expected, "type {kind:?}, {cdb:02x?}");
                }
            }
        }
    }

    #[test]
    fn while_it_is_held_nobody_reserves_persistently() {
        const READ_KEYS: [u8; 10] = [0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        let conflict = ScsiStatus::ReservationConflict;
        assert_eq!(bench.run(&RESERVE, b"").status, ScsiStatus::Good);
        for nexus in [&bench.nexus, &other] {
            assert_eq!(persist(&bench, nexus, (6, 0), (0, 1)), conflict);
            assert_eq!(bench.run_as(nexus, &READ_KEYS, b"").status, conflict);
        }
        assert_eq!(bench.run(&RELEASE, b"").status, ScsiStatus::Good);
        assert_eq!(persist(&bench, &bench.nexus, (6, 0), (0, 1)), ScsiStatus::Good);
        assert_eq!(bench.run(&READ_KEYS, b"").status, ScsiStatus::Good);
    }

    /// REGISTER AND IGNORE EXISTING KEY.
    const REGISTER: [u8; 10] = [0x5F, 6, 0, 0, 0, 0, 0, 0, 24, 0];

    /// Its parameters: key 1, with APTPL.
    fn registration() -> [u8; 24] {
        let mut list = [0; 24];
        (list[15], list[20]) = (1, 1);
        list
    }

    #[test]
    fn a_registration_that_is_being_saved_lets_nobody_reserve() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        bench.reservations.pause_saves(true);
        let register = bench.command(&bench.nexus, &REGISTER, &registration());
        let mut register = pin!(bench.disk.execute(register));
        let mut context = Context::from_waker(Waker::noop());
        assert!(register.as_mut().poll(&mut context).is_pending());
        assert_eq!(bench.run_as(&other, &RESERVE, b"").status, ScsiStatus::Busy);
        assert_eq!(bench.block_on(register).status, ScsiStatus::Good);
        let conflict = ScsiStatus::ReservationConflict;
        assert_eq!(bench.run_as(&other, &RESERVE, b"").status, conflict);
    }

    #[test]
    fn a_registration_that_waited_for_another_one_finds_who_has_reserved() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        let before = bench.disk.shared.reserving.try_lock().unwrap();
        let register = bench.command(&bench.nexus, &REGISTER, &registration());
        let mut register = pin!(bench.disk.execute(register));
        let mut context = Context::from_waker(Waker::noop());
        assert!(register.as_mut().poll(&mut context).is_pending());
        drop(before);
        assert_eq!(bench.run_as(&other, &RESERVE, b"").status, ScsiStatus::Good);
        assert_eq!(bench.block_on(register).status, ScsiStatus::ReservationConflict);
        assert_eq!(bench.run_as(&other, &RELEASE, b"").status, ScsiStatus::Good);
        let status = persist(&bench, &bench.nexus, (6, 0), (0, 1));
        assert_eq!(status, ScsiStatus::Good, "nothing was registered meanwhile");
    }

    #[test]
    fn of_two_that_are_admitted_at_once_one_reserves() {
        let bench = Bench::new();
        let command = bench.command(&bench.another_nexus(2), &RESERVE, b"");
        let Lookup::Row(row) = lookup(&command.cdb) else { panic!("RESERVE (6) is known") };
        let geometry = bench.disk.store().geometry();
        let cx =
            Cx { disk: &bench.disk, luns: None, command: &command, row, geometry, task: &Alone };
        // The other one comes first, after the checks of this one.
        assert_eq!(bench.run(&RESERVE, b"").status, ScsiStatus::Good);
        assert!(matches!(reserve(&cx), Err(Failure::Conflict)));
    }

    #[test]
    fn opening_the_unit_again_does_not_release() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        bench.run(&RESERVE, b"");
        let after = bench.reopened();
        after.settle(&other);
        assert_eq!(after.run_as(&other, &RESERVE, b"").status, ScsiStatus::ReservationConflict);
        assert!(after.disk.is_same_unit(&bench.disk));
        after.disk.nexus_lost(bench.nexus.id);
        assert_eq!(after.run_as(&other, &RESERVE, b"").status, ScsiStatus::Good);
    }

    #[test]
    fn a_lost_nexus_and_a_reset_release() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        bench.run(&RESERVE, b"");
        bench.disk.nexus_lost(bench.nexus.id);
        assert_eq!(bench.run_as(&other, &RESERVE, b"").status, ScsiStatus::Good);
        bench.disk.reset_lun(ResetReason::LunReset);
        let third = bench.another_nexus(3);
        assert_eq!(bench.run_as(&third, &RESERVE, b"").status, ScsiStatus::Good);
    }
}
