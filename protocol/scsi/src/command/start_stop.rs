//! START STOP UNIT (SBC-4 §5.31) and PREVENT ALLOW MEDIUM REMOVAL (SBC-4
//! §5.15).

use super::{Cx, Outcome, Reply};
use crate::sense::{Asc, Sense};

/// Starting and stopping have no effect here; loading and ejecting do if the
/// medium is removable.
pub(crate) async fn start_stop(cx: &Cx<'_>) -> Outcome {
    let byte = cx.cdb().byte(4);
    let start = byte & 0x01 != 0;
    let load_eject = byte & 0x02 != 0;
    let no_flush = byte & 0x04 != 0;
    // SBC-4 §5.31: with a POWER CONDITION, START and LOEJ are ignored. All
    // power conditions are equivalent for a disk without a motor.
    if byte & 0xF0 != 0 {
        return Ok(Reply::GOOD);
    }
    if load_eject && !cx.disk.config.removable {
        return Err(Sense::invalid_cdb(4, Some(1)).into());
    }
    if load_eject && cx.disk.state().removal_prevented() {
        return Err(Asc::REMOVAL_PREVENTED.into());
    }
    if !start && !no_flush && !cx.geometry.read_only {
        cx.sync().await?;
    }
    if load_eject {
        let mut state = cx.disk.state();
        if state.ejected && start {
            // The nexus that loaded the medium knows.
            state.raise_for_others(cx.command.nexus.id, Asc::MEDIUM_MAY_HAVE_CHANGED);
        }
        state.ejected = !start;
    }
    Ok(Reply::GOOD)
}

/// The flush that SBC-4 §5.15 wants where possible when a prevention ends is that of START STOP
/// UNIT, before it ejects.
pub(crate) fn prevent_allow(cx: &Cx<'_>) -> Outcome {
    let prevent = cx.cdb().byte(4) & 0x01 != 0;
    let mut state = cx.disk.state();
    state.nexus(&cx.command.nexus).prevents_removal = prevent;
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::nexus::Nexus;
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;
    use std::sync::Arc;

    const PREVENT: [u8; 6] = [0x1E, 0, 0, 0, 1, 0];
    const EJECT: [u8; 6] = [0x1B, 0, 0, 0, 0x02, 0];
    const LOAD: [u8; 6] = [0x1B, 0, 0, 0, 0x03, 0];
    const READY: [u8; 6] = [0; 6];

    #[test]
    fn a_removable_medium_comes_and_goes() {
        let bench = Bench::with(|config| config.removable = true);
        assert_eq!(bench.run(&EJECT, b"").status, ScsiStatus::Good);
        assert_eq!(bench.run(&READY, b"").sense.unwrap().asc, Asc::MEDIUM_NOT_PRESENT);
        let read = bench.run(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], b"");
        assert_eq!(read.sense.unwrap().asc, Asc::MEDIUM_NOT_PRESENT);
        assert_eq!(bench.run(&[0x12, 0, 0, 0, 36, 0], b"").status, ScsiStatus::Good);
        assert_eq!(bench.run(&LOAD, b"").status, ScsiStatus::Good);
        assert_eq!(bench.run(&READY, b"").status, ScsiStatus::Good);
    }

    #[test]
    fn prevention_lasts_until_allowed_or_lost() {
        let bench = Bench::with(|config| config.removable = true);
        let other = bench.another_nexus(2);
        bench.run(&PREVENT, b"");
        assert_eq!(bench.run_as(&other, &EJECT, b"").sense.unwrap().asc, Asc::REMOVAL_PREVENTED);
        bench.refused(&LOAD, b"", Asc::REMOVAL_PREVENTED);
        bench.disk.nexus_lost(bench.nexus.id);
        assert_eq!(bench.run_as(&other, &EJECT, b"").status, ScsiStatus::Good);
    }

    /// PERSISTENT RESERVE OUT service actions (SPC-4 §6.16.2).
    const CLEAR: u8 = 3;
    const PREEMPT: u8 = 4;
    const PREEMPT_AND_ABORT: u8 = 5;
    const REGISTER_AND_IGNORE: u8 = 6;

    /// Runs PERSISTENT RESERVE OUT with the nexus's key and that of the service action.
    #[track_caller]
    fn reserve_out(bench: &Bench, nexus: &Arc<Nexus>, action: u8, keys: (u64, u64)) {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&keys.0.to_be_bytes());
        list[8..16].copy_from_slice(&keys.1.to_be_bytes());
        let done = bench.run_as(nexus, &[0x5F, action, 3, 0, 0, 0, 0, 0, 24, 0], &list);
        assert_eq!(done.status, ScsiStatus::Good, "service action {action}");
    }

    /// Returns a removable unit and two more nexuses. All three are registered with their
    /// numbers, 1 to 3, and these prevent the removal of the medium.
    fn prevented_by(numbers: &[usize]) -> (Bench, [Arc<Nexus>; 3]) {
        let bench = Bench::with(|config| config.removable = true);
        let all = [Arc::clone(&bench.nexus), bench.another_nexus(2), bench.another_nexus(3)];
        for (key, nexus) in (1..).zip(&all) {
            reserve_out(&bench, nexus, REGISTER_AND_IGNORE, (0, key));
        }
        for number in numbers {
            let done = bench.run_as(&all[number - 1], &PREVENT, b"");
            assert_eq!(done.status, ScsiStatus::Good, "nexus {number}");
        }
        (bench, all)
    }

    fn eject(bench: &Bench, nexus: &Arc<Nexus>) -> Option<Asc> {
        bench.run_as(nexus, &EJECT, b"").sense.map(|sense| sense.asc)
    }

    #[test]
    fn a_preempt_with_abort_ends_the_prevention_of_those_that_it_removes() {
        let (bench, [_, second, third]) = prevented_by(&[1, 3]);
        reserve_out(&bench, &second, PREEMPT_AND_ABORT, (2, 1));
        assert_eq!(eject(&bench, &second), Some(Asc::REMOVAL_PREVENTED), "the third one stays");
        reserve_out(&bench, &second, PREEMPT_AND_ABORT, (2, 3));
        assert_eq!(eject(&bench, &second), None);
        assert_eq!(bench.run_as(&second, &LOAD, b"").status, ScsiStatus::Good);
        // Who was preempted may prevent it again.
        bench.settle(&third);
        assert_eq!(bench.run_as(&third, &PREVENT, b"").status, ScsiStatus::Good);
        assert_eq!(eject(&bench, &second), Some(Asc::REMOVAL_PREVENTED));
    }

    #[test]
    fn clearing_ends_the_prevention_of_all_that_were_registered() {
        let (bench, [_, second, _]) = prevented_by(&[1, 2, 3]);
        reserve_out(&bench, &second, CLEAR, (2, 0));
        assert_eq!(eject(&bench, &second), None);
    }

    #[test]
    fn clearing_leaves_the_prevention_of_one_that_was_not_registered() {
        let (bench, [first, second, _]) = prevented_by(&[]);
        let stranger = bench.another_nexus(4);
        bench.run_as(&stranger, &PREVENT, b"");
        reserve_out(&bench, &second, CLEAR, (2, 0));
        bench.settle(&first);
        assert_eq!(eject(&bench, &first), Some(Asc::REMOVAL_PREVENTED));
    }

    #[test]
    fn a_preempt_without_abort_leaves_the_prevention() {
        let (bench, [_, second, _]) = prevented_by(&[1]);
        reserve_out(&bench, &second, PREEMPT, (2, 1));
        assert_eq!(eject(&bench, &second), Some(Asc::REMOVAL_PREVENTED));
    }

    #[test]
    fn power_conditions_do_not_eject() {
        let bench = Bench::with(|config| config.removable = true);
        for condition in 1..16 {
            let cdb = [0x1B, 0x01, 0, 0, (condition << 4) | 0x02, 0];
            assert_eq!(bench.run(&cdb, b"").status, ScsiStatus::Good);
            assert_eq!(bench.run(&READY, b"").status, ScsiStatus::Good);
        }
    }
}
