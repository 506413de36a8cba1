//! REPORT TARGET PORT GROUPS (SPC-4 §6.37) and SET TARGET PORT GROUPS (SPC-4
//! §6.45).

use super::{Cx, Outcome, Reply};
use crate::disk::config::AccessState;
use crate::sense::{Asc, Sense};
use crate::wire::{be16, byte};

/// States that REPORT TARGET PORT GROUPS can return: T_SUP=0, O_SUP=0, U_SUP,
/// S_SUP, AN_SUP, AO_SUP.
const SUPPORTED_STATES: u8 = 0x0F;

pub(crate) fn report_target_port_groups(cx: &Cx<'_>) -> Outcome {
    let extended = match cx.cdb().byte(1) >> 5 {
        0b000 => false,
        0b001 => true,
        _ => return Err(Sense::invalid_cdb(1, Some(7)).into()),
    };
    let state = cx.disk.state();
    let mut list = Vec::new();
    if extended {
        // Format 001b, IMPLICIT TRANSITION TIME.
        list.extend([0x10, 0, 0, 0]);
    }
    for group in &cx.disk.config.port_groups {
        let access = state
            .access
            .iter()
            .find(|(id, _)| *id == group.id)
            .map_or(group.state, |(_, access)| *access);
        list.push((u8::from(group.preferred) << 7) | access as u8);
        list.push(SUPPORTED_STATES);
        list.extend(group.id.to_be_bytes());
        list.extend([0, 0, 0, u8::try_from(group.ports.len()).unwrap_or(u8::MAX)]);
        for port in group.ports.iter().take(usize::from(u8::MAX)) {
            list.extend([0, 0]);
            list.extend(port.relative_id.to_be_bytes());
        }
    }
    let mut data = Vec::with_capacity(4 + list.len());
    data.extend(u32::try_from(list.len()).unwrap_or(u32::MAX).to_be_bytes());
    data.extend(list);
    Ok(Reply::data(data, cx.cdb().be32(6)))
}

/// Changes access states at once; I_T nexuses other than the sender's get a
/// unit attention.
pub(crate) fn set_target_port_groups(cx: &Cx<'_>) -> Outcome {
    let length = cx.cdb().be32(6);
    if length == 0 {
        return Ok(Reply::GOOD);
    }
    let list = cx.parameter_list(length)?;
    let Some(descriptors) = list.get(4..) else {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    };
    let mut state = cx.disk.state();
    let mut wanted = Vec::new();
    for (number, descriptor) in descriptors.chunks(4).enumerate() {
        let at = u16::try_from(4 + 4 * number).unwrap_or(u16::MAX);
        if descriptor.len() < 4 {
            return Err(Asc::PARAMETER_LIST_LENGTH.into());
        }
        let access = AccessState::requested(byte(descriptor, 0) & 0x0F)
            .ok_or(Sense::invalid_parameter(at))?;
        let group = be16(descriptor, 2);
        if !state.access.iter().any(|(id, _)| *id == group) {
            return Err(Sense::invalid_parameter(at + 2).into());
        }
        wanted.push((group, access));
    }
    let before = state.access.clone();
    for (group, access) in wanted {
        for (id, current) in &mut state.access {
            if *id == group {
                *current = access;
            }
        }
    }
    if state.access != before {
        state.raise_for_others(cx.command.nexus.id, Asc::ACCESS_STATE_CHANGED);
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    const REPORT: [u8; 12] = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    const SET: [u8; 12] = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];

    #[test]
    fn states_are_reported_and_set() {
        let bench = Bench::with(|config| config.explicit_alua = true);
        let other = bench.another_nexus(2);
        let data = bench.data(&bench.run(&REPORT, b""));
        assert_eq!(data[4] & 0x0F, 0);
        assert_eq!(&data[6..8], &[0, 1]);
        let list = [0, 0, 0, 0, 0x02, 0, 0, 1];
        assert_eq!(bench.run(&SET, &list).status, ScsiStatus::Good);
        assert_eq!(bench.data(&bench.run(&REPORT, b""))[4] & 0x0F, 2);
        let told = bench.run_as(&other, &[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::ACCESS_STATE_CHANGED);
        assert_eq!(bench.run(&[0; 6], b"").sense.unwrap().asc, Asc::PORT_STANDBY);
    }

    #[test]
    fn unknown_groups_and_states_are_refused() {
        let bench = Bench::with(|config| config.explicit_alua = true);
        let invalid = Asc::INVALID_FIELD_IN_PARAMETERS;
        bench.refused(&SET, &[0, 0, 0, 0, 0x00, 0, 0, 9], invalid);
        bench.refused(&SET, &[0, 0, 0, 0, 0x0E, 0, 0, 1], invalid);
        let implicit = Bench::new();
        implicit.refused(&SET, &[0; 8], Asc::INVALID_FIELD_IN_CDB);
    }
}
