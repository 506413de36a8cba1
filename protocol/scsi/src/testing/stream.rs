//! Any stream of CDBs gets well-formed answers.

use super::{Bench, nexus};
use crate::command::table::ROWS;
use crate::disk::ResetReason;
use crate::sense::ScsiStatus;
use crate::{Cdb, Command, TaskAttribute, expected_data_out};
use bytes::Bytes;
use zgate_fuzz::{Dice, target};

target!(streams_of_commands_get_well_formed_answers, 6000, commands);
target!(transport_ids_are_parsed_or_refused, 300, transport_ids);

enum Step {
    Command { nexus: u64, cdb: Vec<u8>, data: Vec<u8>, offered: u16 },
    Reset,
    Lost(u64),
    Resized,
}

/// CDBs that are mostly legal: a row of the table, masked noise on its bits.
fn cdb(dice: &mut Dice<'_>) -> Vec<u8> {
    if dice.once_in(9) {
        return dice.blob(19);
    }
    let (row, wildness) = (dice.pick(ROWS), dice.below(10));
    let mut cdb: Vec<u8> = row.usage.iter().map(|usage| dice.byte() & usage).collect();
    if wildness < 8 {
        // Small addresses and lengths, which the disk really has.
        for (at, byte) in cdb.iter_mut().enumerate().skip(2) {
            let low = match row.length {
                6 => at >= 3,
                10 => matches!(at, 5 | 8),
                12 => matches!(at, 5 | 9),
                _ => matches!(at, 9 | 13),
            };
            *byte = if low { *byte } else { 0 };
        }
    }
    cdb[0] = row.opcode;
    if let Some(action) = row.service_action {
        cdb[1] = (cdb[1] & !0x1F) | action;
    }
    cdb
}

fn step(dice: &mut Dice<'_>) -> Step {
    match dice.below(33) {
        0 => Step::Reset,
        1 => Step::Lost(1 + dice.below(3) as u64),
        2 => Step::Resized,
        _ => {
            let (nexus, cdb, offered) = (1 + dice.below(3) as u64, cdb(dice), dice.u32() as u16);
            let data = if dice.once_in(2) {
                dice.blob(63)
            } else {
                let bytes = dice.blob(199);
                bytes.iter().map(|byte| if byte & 1 == 0 { 0 } else { byte % 40 }).collect()
            };
            Step::Command { nexus, cdb, data, offered }
        }
    }
}

fn run(bench: &Bench, step: Step) {
    match step {
        Step::Reset => bench.disk.reset_lun(ResetReason::LunReset),
        Step::Lost(id) => bench.disk.nexus_lost(nexus(id).id),
        Step::Resized => bench.disk.capacity_changed(),
        Step::Command { nexus: id, cdb, mut data, offered } => {
            let cdb = Cdb::new(&cdb);
            let wanted = usize::try_from(expected_data_out(&cdb, 512)).unwrap();
            // Mostly what the command needs, sometimes less or more.
            if !offered.is_multiple_of(4) && wanted <= 1 << 20 {
                data.resize(wanted, 0);
            }
            let command = Command {
                nexus: nexus(id),
                cdb,
                attribute: TaskAttribute::Simple,
                data_out_offered_bytes: data.len() as u64,
                data_out: Bytes::from(data),
            };
            let response = bench.block_on(bench.disk.execute(command));
            match response.status {
                ScsiStatus::CheckCondition => {
                    let sense = response.sense.unwrap().encode();
                    assert!((8..=252).contains(&sense.len()));
                    assert!(response.data_in.is_none());
                }
                ScsiStatus::Good | ScsiStatus::ReservationConflict => {
                    assert!(response.sense.is_none());
                }
                other => panic!("unexpected {other:?}"),
            }
            assert!(response.data_in_bytes() <= crate::limits::MAX_TRANSFER_BYTES);
        }
    }
}

fn commands(dice: &mut Dice<'_>) {
    let (removable, thin) = (dice.once_in(2), dice.once_in(2));
    let bench = Bench::with(|config| {
        config.removable = removable;
        config.thin = thin;
        config.explicit_alua = true;
    });
    while !dice.is_spent() {
        run(&bench, step(dice));
    }
}

fn transport_ids(dice: &mut Dice<'_>) {
    let _ = crate::TransportId::parse(dice.rest());
}
