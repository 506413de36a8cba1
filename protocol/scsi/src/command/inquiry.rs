//! INQUIRY (SPC-4 §6.6): standard data. The vital product data pages are in
//! `vpd`.

use super::{Command, Cx, Outcome, Reply, vpd};
use crate::disk::config::DiskConfig;
use crate::sense::Sense;
use crate::wire::{padded, put};

/// VERSION: SPC-4.
const VERSION: u8 = 0x06;
/// Standards that the unit conforms to: SAM-5, iSCSI, SPC-4, SBC-3 (SPC-4 table
/// 179), each without a revision.
const VERSION_DESCRIPTORS: [u16; 4] = [0x00A0, 0x0960, 0x0460, 0x04C0];
const STANDARD_BYTES: usize = 96;

pub(crate) fn inquiry(cx: &Cx<'_>) -> Outcome {
    let allocation = u32::from(cx.cdb().be16(3));
    let page = cx.cdb().byte(2);
    let data = if cx.cdb().byte(1) & 0x01 != 0 {
        vpd::page(cx, page)?
    } else if page == 0 {
        standard(&cx.disk.config)
    } else {
        return Err(Sense::invalid_cdb(2, None).into());
    };
    Ok(Reply::data(data, allocation))
}

fn standard(config: &DiskConfig) -> Vec<u8> {
    let mut data = vec![0; STANDARD_BYTES];
    data[1] = u8::from(config.removable) << 7;
    data[2] = VERSION;
    // HISUP, RESPONSE DATA FORMAT 2.
    data[3] = 0x12;
    data[4] = u8::try_from(STANDARD_BYTES - 5).unwrap_or(u8::MAX);
    // TPGS and 3PC; no protection information.
    let tpgs = if config.explicit_alua { 0x30 } else { 0x10 };
    data[5] = tpgs | 0x08;
    // MULTIP.
    data[6] = if config.ports().nth(1).is_some() { 0x10 } else { 0 };
    // CMDQUE.
    data[7] = 0x02;
    put(&mut data, 8, &padded::<8>(&config.vendor));
    put(&mut data, 16, &padded::<16>(&config.product));
    put(&mut data, 32, &padded::<4>(&config.revision));
    for (number, descriptor) in VERSION_DESCRIPTORS.iter().enumerate() {
        put(&mut data, 58 + 2 * number, &descriptor.to_be_bytes());
    }
    data
}

/// Returns the data of a logical unit whose storage cannot be opened now: all that does
/// not depend on it.
pub(crate) fn becoming_ready(config: &DiskConfig, command: &Command) -> Result<Vec<u8>, Sense> {
    let (cdb, page) = (&command.cdb, command.cdb.byte(2));
    match (cdb.byte(1) & 0x01 != 0, page) {
        (true, page) => vpd::naming_page(config, &command.nexus, page),
        (false, 0) => Ok(standard(config)),
        (false, _) => Err(Sense::invalid_cdb(2, None)),
    }
}

/// Returns the standard data of a LUN that does not exist: PERIPHERAL QUALIFIER
/// 011b, type 1Fh (SPC-4 §6.6.2).
pub(crate) fn absent() -> Vec<u8> {
    let mut data = vec![0; 36];
    data[0] = 0x7F;
    data[2] = VERSION;
    data[3] = 0x02;
    data[4] = 31;
    data[8..36].fill(b' ');
    data
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    #[test]
    fn names_and_versions_are_told() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&[0x12, 0, 0, 0, 255, 0], b""));
        assert_eq!(data.len(), 96);
        assert_eq!(usize::from(data[4]), data.len() - 5);
        assert_eq!((data[0], data[2], data[3] & 0x0F), (0, 6, 2));
        assert_eq!(&data[8..16], b"ZGATE   ");
        assert_eq!(&data[62..66], &[0x04, 0x60, 0x04, 0xC0]);
    }

    #[test]
    fn every_allocation_length_is_fine() {
        let bench = Bench::new();
        for allocation in 0..=255 {
            let response = bench.run(&[0x12, 0, 0, 0, allocation, 0], b"");
            assert_eq!(response.status, ScsiStatus::Good);
            assert_eq!(bench.data(&response).len(), usize::from(allocation).min(96));
        }
    }

    #[test]
    fn a_page_without_evpd_is_refused() {
        Bench::new().refused(&[0x12, 0, 1, 0, 255, 0], b"", Asc::INVALID_FIELD_IN_CDB);
    }
}
