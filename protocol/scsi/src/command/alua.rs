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
    use crate::disk::config::{AccessState, DiskConfig};
    use crate::sense::{Asc, ScsiStatus, SenseKey};
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

    /// Two machines of a pair: the commands of this port come to the second one.
    fn pair(config: &mut DiskConfig) {
        let mut other = config.port_groups[0].clone();
        other.id = 2;
        other.ports[0].relative_id = 2;
        other.ports[0].portal_group_tag = 2;
        config.port_groups[0].state = AccessState::Standby;
        config.port_groups.push(other);
    }

    #[test]
    fn a_port_in_standby_says_what_the_disk_is_and_refuses_its_medium() {
        let bench = Bench::with(pair);
        let data = bench.data(&bench.run(&REPORT, b""));
        assert_eq!((data[3], data[4] & 0x0F, data[16] & 0x0F), (24, 2, 0), "{data:?}");
        let inquiry = bench.data(&bench.run(&[0x12, 0, 0, 0, 96, 0], b""));
        assert_eq!(inquiry[5] & 0x30, 0x10, "implicit asymmetric access only");
        let capacity = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
        let self_test = [0x1D, 0x04, 0, 0, 0, 0];
        for command in [&capacity[..], &self_test] {
            assert_eq!(bench.run(command, b"").status, ScsiStatus::Good, "{command:02x?}");
        }
        let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        for command in [&[0_u8; 6][..], &read] {
            let sense = bench.run(command, b"").sense.unwrap();
            assert_eq!((sense.key, sense.asc), (SenseKey::NotReady, Asc::PORT_STANDBY));
        }
        // The other machine is gone, and its address is here.
        bench.disk.set_access_state(1, AccessState::ActiveOptimized);
        bench.disk.set_access_state(2, AccessState::Standby);
        let told = bench.run(&[0; 6], b"").sense.unwrap();
        assert_eq!((told.key, told.asc), (SenseKey::UnitAttention, Asc::ACCESS_STATE_CHANGED));
        assert_eq!(bench.run(&[0; 6], b"").status, ScsiStatus::Good);
    }

    #[test]
    fn reservations_of_another_server_are_neither_shown_nor_made() {
        let bench = Bench::with(|config| {
            pair(config);
            config.state_elsewhere = true;
        });
        let keys = [0x5E, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        let register = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        for (command, list) in [(keys, vec![]), (register, vec![0; 24])] {
            let sense = bench.run(&command, &list).sense.unwrap();
            assert_eq!((sense.key, sense.asc), (SenseKey::NotReady, Asc::PORT_STANDBY));
        }
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
