//! The parameter lists of PERSISTENT RESERVE OUT (SPC-4 §6.16.3, §6.16.4).

use super::ReservationType;
use super::state::{Kind, Move, Register};
use crate::command::{Cx, Failure};
use crate::limits::{MAX_PARAMETER_LIST_BYTES, MAX_REGISTRATIONS};
use crate::nexus::TransportId;
use crate::sense::{Asc, Sense};
use crate::wire::{be16, be32, be64, byte};

/// Action requested by PERSISTENT RESERVE OUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Register(Register),
    Reserve { key: u64, kind: Kind },
    Release { key: u64, kind: Kind },
    Clear { key: u64 },
    Preempt { key: u64, victim: u64, kind: Kind, abort: bool },
    Move(Move),
}

const BASIC_BYTES: usize = 24;

pub(crate) fn parse(cx: &Cx<'_>) -> Result<Action, Failure> {
    let length = cx.cdb().be32(5);
    if length > MAX_PARAMETER_LIST_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let list = cx.parameter_list(length)?;
    if list.len() < BASIC_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let key = be64(list, 0);
    let new_key = be64(list, 8);
    let action = cx.cdb().service_action();
    if action == 0x07 {
        return parse_move(list).map(Action::Move);
    }
    let names_others = byte(list, 20) & 0x08 != 0;
    // SPC-4 §6.16.3: SPEC_I_PT is for REGISTER, and only with it the list is longer.
    if names_others && action != 0x00 {
        return Err(Sense::invalid_parameter(20).into());
    }
    if list.len() > BASIC_BYTES && !names_others {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    match action {
        0x00 | 0x06 => Ok(Action::Register(Register {
            key: (action == 0x00).then_some(key),
            new_key,
            aptpl: byte(list, 20) & 0x01 != 0,
            all_ports: byte(list, 20) & 0x04 != 0,
            others: if names_others { transport_ids(list)? } else { Vec::new() },
            names_others,
        })),
        0x01 => Ok(Action::Reserve { key, kind: kind(cx) }),
        0x02 => Ok(Action::Release { key, kind: kind(cx) }),
        0x03 => Ok(Action::Clear { key }),
        _ => Ok(Action::Preempt { key, victim: new_key, kind: kind(cx), abort: action == 0x05 }),
    }
}

/// Returns TYPE, if SCOPE is the logical unit and the type is known.
fn kind(cx: &Cx<'_>) -> Kind {
    let byte = cx.cdb().byte(2);
    if byte >> 4 != 0 {
        return Err(Sense::invalid_cdb(2, Some(7)));
    }
    ReservationType::from_bits(byte & 0x0F).ok_or_else(|| Sense::invalid_cdb(2, Some(3)))
}

fn transport_ids(list: &[u8]) -> Result<Vec<TransportId>, Failure> {
    let length = usize::try_from(be32(list, BASIC_BYTES)).unwrap_or(usize::MAX);
    let start = BASIC_BYTES + 4;
    if list.len() < start || list.len() - start != length {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let mut ids = Vec::new();
    let mut at = start;
    while let Some(rest) = list.get(at..).filter(|rest| !rest.is_empty()) {
        let wrong = Sense::invalid_parameter(u16::try_from(at).unwrap_or(u16::MAX));
        let (id, used) = TransportId::parse(rest).ok_or(wrong)?;
        if ids.len() == MAX_REGISTRATIONS {
            return Err(Asc::REGISTRATION_RESOURCES.into());
        }
        ids.push(id);
        at += used;
    }
    Ok(ids)
}

fn parse_move(list: &[u8]) -> Result<Move, Failure> {
    let length = usize::try_from(be32(list, 20)).unwrap_or(usize::MAX);
    if list.len() - BASIC_BYTES != length {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let wrong = Sense::invalid_parameter(24);
    let (initiator, used) = TransportId::parse(&list[BASIC_BYTES..]).ok_or(wrong)?;
    if used != length {
        return Err(wrong.into());
    }
    Ok(Move {
        key: be64(list, 0),
        new_key: be64(list, 8),
        unregister: byte(list, 17) & 0x02 != 0,
        aptpl: byte(list, 17) & 0x01 != 0,
        relative_port: be16(list, 18),
        initiator,
    })
}
