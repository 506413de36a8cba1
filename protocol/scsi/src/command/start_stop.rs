//! START STOP UNIT (SBC-4 §5.31) and PREVENT ALLOW MEDIUM REMOVAL (SBC-4
//! §5.17).

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

pub(crate) fn prevent_allow(cx: &Cx<'_>) -> Outcome {
    let prevent = cx.cdb().byte(4) & 0x01 != 0;
    let mut state = cx.disk.state();
    state.nexus(&cx.command.nexus).prevents_removal = prevent;
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

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
        bench.run(&[0x1E, 0, 0, 0, 1, 0], b"");
        assert_eq!(bench.run_as(&other, &EJECT, b"").sense.unwrap().asc, Asc::REMOVAL_PREVENTED);
        bench.refused(&LOAD, b"", Asc::REMOVAL_PREVENTED);
        bench.disk.nexus_lost(bench.nexus.id);
        assert_eq!(bench.run_as(&other, &EJECT, b"").status, ScsiStatus::Good);
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
