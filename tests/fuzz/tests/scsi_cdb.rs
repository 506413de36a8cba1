//! Streams of CDBs against a disk on a simulated medium: every answer is well
//! formed, reads return at most the requested length, the size of the medium is
//! unchanged.

use bytes::Bytes;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use zgate_fuzz::{Dice, target};
use zgate_memory::{DiskOp, SimDisk};
use zgate_scsi::{
    AccessState, Cdb, Command, Disk, DiskConfig, LogicalUnits, Lun, MemoryReservations, Naa, Nexus,
    NexusId, PortGroup, ResetReason, Response, ScsiStatus, SenseKey, TargetPort, TaskAttribute,
    TransportId, expected_data_out,
};
use zgate_store::{BlockStore, StoreError};

target!(scsi_cdb_stream, 4000, stream);

const CAPACITY_BYTES: u64 = 1 << 20;

/// Every opcode with its service actions, and the length of its CDB.
const KNOWN: &[(u8, &[u8], usize)] = &[
    (0x00, &[], 6),
    (0x03, &[], 6),
    (0x04, &[], 6),
    (0x08, &[], 6),
    (0x0a, &[], 6),
    (0x12, &[], 6),
    (0x15, &[], 6),
    (0x16, &[], 6),
    (0x17, &[], 6),
    (0x1a, &[], 6),
    (0x1b, &[], 6),
    (0x1e, &[], 6),
    (0x25, &[], 10),
    (0x28, &[], 10),
    (0x2a, &[], 10),
    (0x2e, &[], 10),
    (0x2f, &[], 10),
    (0x34, &[], 10),
    (0x35, &[], 10),
    (0x41, &[], 10),
    (0x42, &[], 10),
    (0x48, &[1, 2, 3, 0x1f], 10),
    (0x4d, &[], 10),
    (0x55, &[], 10),
    (0x5a, &[], 10),
    (0x5e, &[0, 1, 2, 3], 10),
    (0x5f, &[0, 1, 2, 3, 4, 5, 6, 7], 10),
    (0x83, &[0, 1, 0x10, 0x11, 0x1c], 16),
    (0x84, &[0, 1, 3, 4, 5, 7, 8], 16),
    (0x88, &[], 16),
    (0x89, &[], 16),
    (0x8a, &[], 16),
    (0x8b, &[], 16),
    (0x8e, &[], 16),
    (0x8f, &[], 16),
    (0x90, &[], 16),
    (0x91, &[], 16),
    (0x93, &[], 16),
    (0x9c, &[], 16),
    (0x9e, &[0x10, 0x12], 16),
    (0xa0, &[], 12),
    (0xa3, &[5, 0x0a, 0x0c, 0x0d, 0x0f], 12),
    (0xa4, &[0x0a], 12),
    (0xa8, &[], 12),
    (0xaa, &[], 12),
    (0xae, &[], 12),
    (0xaf, &[], 12),
];

fn nexus(id: u64) -> Arc<Nexus> {
    Arc::new(Nexus {
        id: NexusId(id),
        initiator: TransportId::iscsi_port("iqn.2026-11.test:fuzz", [0x80, 0, 0, 0, 0, id as u8]),
        relative_port: 1,
    })
}

fn config(dice: &mut Dice<'_>) -> DiskConfig {
    let choices = dice.byte();
    DiskConfig {
        vendor: "ZGATE".into(),
        product: "FUZZ".into(),
        revision: "1".into(),
        serial: "0001".into(),
        naa: Naa::Long([0x6e, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        logical_block_bytes: if choices & 1 == 0 { 512 } else { 4096 },
        physical_block_bytes: None,
        read_only: choices & 0x0e == 0x0e,
        removable: choices & 0x10 != 0,
        write_cache: None,
        thin: choices & 0x20 == 0,
        sanitize: true,
        explicit_alua: choices & 0x40 != 0,
        state_elsewhere: false,
        token_secret: [7; 16],
        port_groups: vec![PortGroup {
            id: 1,
            preferred: false,
            state: AccessState::ActiveOptimized,
            ports: vec![TargetPort {
                relative_id: 1,
                target_name: "iqn.2026-11.test:target".into(),
                portal_group_tag: 1,
            }],
        }],
    }
}

/// Runs a future by polling: the backend is always ready soon.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("a command without end");
}

fn cdb(dice: &mut Dice<'_>) -> Vec<u8> {
    if dice.once_in(16) {
        return dice.blob(20);
    }
    let (opcode, actions, len) = *dice.pick(KNOWN);
    let mut cdb = vec![0; len];
    let wild = dice.once_in(6);
    let noise = dice.raw(len - 1);
    for (at, byte) in noise.iter().enumerate() {
        // The low bytes of addresses and lengths; others are mostly zero.
        let low = match len {
            6 => at + 1 >= 3,
            10 => matches!(at + 1, 1 | 2 | 5 | 7 | 8),
            12 => matches!(at + 1, 1 | 2 | 5 | 8 | 9),
            _ => matches!(at + 1, 1 | 9 | 12 | 13),
        };
        cdb[at + 1] = if low || wild { *byte } else { 0 };
    }
    cdb[0] = opcode;
    if !actions.is_empty() && !dice.once_in(12) {
        cdb[1] = cdb[1] & 0xe0 | dice.pick(actions);
    }
    if len > 6 && !wild {
        // The other length bytes are the high bytes of 16 or 32 bits: most are
        // kept small.
        let at = if len == 16 { 12 } else { len - 3 };
        cdb[at] &= 3;
    }
    cdb
}

fn check(cdb: &Cdb, response: &Response) {
    match response.status {
        ScsiStatus::CheckCondition => {
            let sense = response.sense.as_ref().expect("sense with CHECK CONDITION");
            let encoded = sense.encode();
            // SPC-4 §4.5: fixed or descriptor format, at most 252 bytes.
            assert!((8..=252).contains(&encoded.len()));
            assert!(matches!(encoded[0] & 0x7f, 0x70..=0x73));
            assert_ne!(sense.key, SenseKey::HardwareError, "{cdb:?}");
            assert!(response.data_in.is_none());
        }
        ScsiStatus::Good | ScsiStatus::ReservationConflict => assert!(response.sense.is_none()),
        other => panic!("{other:?} to {cdb:?}"),
    }
    assert!(response.data_in_bytes() <= zgate_scsi::limits::MAX_TRANSFER_BYTES);
}

/// Most bytes that a command may read, if its CDB states the length.
fn most_bytes(raw: &[u8], block_bytes: u64) -> Option<u64> {
    let be = |at: usize, len: usize| {
        raw.get(at..at + len).map(|b| b.iter().fold(0, |sum, b| sum << 8 | u64::from(*b)))
    };
    Some(match *raw.first()? {
        0x12 => be(3, 2)?,
        0x03 | 0x1a => be(4, 1)?,
        0x5a | 0x4d | 0x5e => be(7, 2)?,
        0xa0 | 0xa3 => be(6, 4)?,
        0x9e | 0x84 => be(10, 4)?,
        0x28 => be(7, 2)? * block_bytes,
        0xa8 => be(6, 4)? * block_bytes,
        0x88 => be(10, 4)? * block_bytes,
        _ => return None,
    })
}

fn stream(dice: &mut Dice<'_>) {
    let config = config(dice);
    let block_bytes = config.logical_block_bytes;
    let medium = SimDisk::builder(CAPACITY_BYTES).read_only(config.read_only).build();
    let reservations = Arc::new(MemoryReservations::default());
    let disk = Disk::open(config, Arc::new(medium.clone()), reservations);
    let Ok(disk) = run(disk) else { panic!("the disk does not open") };
    let disk = Arc::new(disk);
    let luns = LogicalUnits::new([(Lun::parse([0; 8]).expect("LUN 0"), Arc::clone(&disk))]);
    while !dice.is_spent() {
        match dice.below(64) {
            0 => disk.reset_lun(ResetReason::LunReset),
            1 => disk.nexus_lost(NexusId(dice.below(3) as u64 + 1)),
            2 => disk.capacity_changed(),
            3 => {
                let op = *dice.pick(&[DiskOp::Read, DiskOp::Write, DiskOp::Sync, DiskOp::Discard]);
                let error = *dice.pick(&[StoreError::NoSpace, StoreError::Io]);
                medium.faults().fail_next(op, error);
            }
            _ => {
                let raw = cdb(dice);
                let cdb = Cdb::new(&raw);
                let wanted = expected_data_out(&cdb, block_bytes) as usize;
                let mut data = dice.blob(64);
                if wanted <= 64 << 10 && !dice.once_in(8) {
                    data.resize(wanted, 0);
                }
                let lun = if dice.once_in(32) { dice.u64().to_be_bytes() } else { [0; 8] };
                let command = Command {
                    nexus: nexus(dice.below(3) as u64 + 1),
                    cdb: Cdb::new(&raw),
                    attribute: TaskAttribute::Simple,
                    data_out_offered_bytes: data.len() as u64,
                    data_out: Bytes::from(data),
                };
                let response = run(luns.execute(lun, command));
                check(&cdb, &response);
                if let Some(most) = most_bytes(&raw, block_bytes.into()) {
                    assert!(response.data_in_bytes() <= most, "more than {most} for {cdb:?}");
                }
            }
        }
    }
    assert_eq!(medium.geometry().capacity_bytes, CAPACITY_BYTES);
}
