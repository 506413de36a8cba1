//! RESERVE (6) and RELEASE (6) (SPC-2 §7.21, §7.24), with the exceptions for
//! registered I_T nexuses of SPC-4 §5.13.3 (CRH=1).

use super::{Cx, Failure, Outcome, Reply};

pub(crate) fn reserve(cx: &Cx<'_>) -> Outcome {
    let nexus = &cx.command.nexus;
    let mut state = cx.disk.state();
    if state.registry.has_registrations() {
        // A registrant that has access gets GOOD without effect; mixing both
        // kinds of reservations is refused.
        let registered = state.registry.key_of(nexus).is_some();
        let free = state.registry.reserved_against(nexus).is_none();
        return if registered && free { Ok(Reply::GOOD) } else { Err(Failure::Conflict) };
    }
    state.legacy_holder = Some(nexus.id);
    state.legacy_holder_lost = false;
    Ok(Reply::GOOD)
}

pub(crate) fn release(cx: &Cx<'_>) -> Outcome {
    let nexus = &cx.command.nexus;
    let mut state = cx.disk.state();
    if state.registry.has_registrations() && state.registry.key_of(nexus).is_none() {
        return Err(Failure::Conflict);
    }
    // SPC-2 §7.21.2: releasing another nexus's reservation has no effect.
    if state.legacy_holder == Some(nexus.id) {
        state.legacy_holder = None;
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::disk::ResetReason;
    use crate::sense::ScsiStatus;
    use crate::testing::Bench;

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
