//! Any stream of CDBs gets well-formed answers.

use super::{Bench, nexus};
use crate::command::table::ROWS;
use crate::disk::ResetReason;
use crate::sense::ScsiStatus;
use crate::{Cdb, Command, TaskAttribute, expected_data_out};
use bytes::Bytes;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Command { nexus: u64, cdb: Vec<u8>, data: Vec<u8>, offered: u16 },
    Reset,
    Lost(u64),
    Resized,
}

/// CDBs that are mostly legal: a row of the table, masked noise on its bits.
fn cdb() -> impl Strategy<Value = Vec<u8>> {
    let known = (0..ROWS.len(), prop::array::uniform16(any::<u8>()), 0u8..10).prop_map(
        |(row, noise, wildness)| {
            let row = &ROWS[row];
            let mut cdb: Vec<u8> =
                noise.iter().zip(row.usage).map(|(noise, usage)| noise & usage).collect();
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
        },
    );
    prop_oneof![
        8 => known,
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(prop_oneof![Just(0u8), 0u8..40], 0..600),
    ];
    let command = (1u64..4, cdb(), data, any::<u16>())
        .prop_map(|(nexus, cdb, data, offered)| Step::Command { nexus, cdb, data, offered });
    prop_oneof![
        30 => command,
        1 => Just(Step::Reset),
        1 => (1u64..4).prop_map(Step::Lost),
        1 => Just(Step::Resized),
    ]
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_commands_get_well_formed_answers(
        steps in prop::collection::vec(step(), 1..60),
        removable in any::<bool>(),
        thin in any::<bool>(),
    ) {
        let bench = Bench::with(|config| {
            config.removable = removable;
            config.thin = thin;
            config.explicit_alua = true;
        });
        for step in steps {
            run(&bench, step);
        }
    }

    #[test]
    fn transport_ids_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = crate::TransportId::parse(&bytes);
    }
}
