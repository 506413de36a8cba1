//! PERSISTENT RESERVE IN (SPC-4 §6.15).

use super::state::Registry;
use crate::command::{Cx, Outcome, Reply};

pub(crate) fn reserve_in(cx: &Cx<'_>) -> Outcome {
    let state = cx.disk.state();
    let registry = &state.registry;
    let data = match cx.cdb().service_action() {
        0x00 => framed(registry, read_keys(registry)),
        0x01 => framed(registry, read_reservation(registry)),
        0x02 => capabilities(registry),
        _ => framed(registry, read_full_status(registry)),
    };
    Ok(Reply::data(data, u32::from(cx.cdb().be16(7))))
}

/// Prepends PRGENERATION and ADDITIONAL LENGTH to the list; both describe the
/// whole list, even if it is truncated.
fn framed(registry: &Registry, list: Vec<u8>) -> Vec<u8> {
    let mut data = registry.generation.to_be_bytes().to_vec();
    data.extend(u32::try_from(list.len()).unwrap_or(u32::MAX).to_be_bytes());
    data.extend(list);
    data
}

fn read_keys(registry: &Registry) -> Vec<u8> {
    registry.registrations.iter().flat_map(|one| one.key.to_be_bytes()).collect()
}

fn read_reservation(registry: &Registry) -> Vec<u8> {
    let Some(reservation) = &registry.reservation else {
        return Vec::new();
    };
    // The key is zero if all registrants hold the reservation (SPC-4
    // §6.15.3.2).
    let key = reservation.holder.as_ref().and_then(|holder| {
        registry.registrations.iter().find(|one| one.who == *holder).map(|one| one.key)
    });
    let mut data = key.unwrap_or(0).to_be_bytes().to_vec();
    data.extend([0, 0, 0, 0, 0, reservation.kind as u8, 0, 0]);
    data
}

fn capabilities(registry: &Registry) -> Vec<u8> {
    // CRH, SIP_C, ATP_C, PTPL_C; TMV, ALLOW COMMANDS 000b, PTPL_A. The type
    // mask has all six types.
    vec![0, 8, 0x1D, 0x80 | u8::from(registry.aptpl), 0xEA, 0x01, 0, 0]
}

fn read_full_status(registry: &Registry) -> Vec<u8> {
    let mut data = Vec::new();
    for one in &registry.registrations {
        let held = registry.reservation.as_ref().filter(|_| registry.holds(one));
        data.extend(one.key.to_be_bytes());
        data.extend([0; 4]);
        data.push(u8::from(held.is_some()));
        data.push(held.map_or(0, |reservation| reservation.kind as u8));
        data.extend([0; 4]);
        data.extend(one.who.relative_port.to_be_bytes());
        let id = one.who.initiator.encode();
        data.extend(u32::try_from(id.len()).unwrap_or(u32::MAX).to_be_bytes());
        data.extend(id);
    }
    data
}
