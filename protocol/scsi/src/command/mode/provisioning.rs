//! The Logical Block Provisioning mode page (SBC-4 §6.5.9): the threshold at
//! which initiators are warned that the space behind a thin unit runs short.
//! Present if the space is known; read-only for initiators.

use super::pages::Control;
use crate::disk::ThinSpace;
use crate::limits::THRESHOLD_SET_BYTES;
use crate::wire::put;

/// Page and subpage.
pub(super) const CODE: u8 = 0x1C;
pub(super) const SUBPAGE: u8 = 0x02;
/// SPF: the page has a subpage code.
pub(super) const SPF: u8 = 0x40;
const PAGE_BYTES: usize = 24;
/// Position of the only threshold descriptor.
pub(crate) const THRESHOLD_AT: u8 = 16;
const DESCRIPTOR: usize = THRESHOLD_AT as usize;

/// Returns the page with its four-byte header.
pub(super) fn page(space: &ThinSpace, control: Control) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[0] = SPF | CODE;
    page[1] = SUBPAGE;
    put(&mut page, 2, &20u16.to_be_bytes());
    if control == Control::Changeable {
        return page;
    }
    if space.threshold_bytes > 0 {
        // ENABLED, THRESHOLD TYPE 000b (a number of sets), THRESHOLD ARMING
        // 000b (when the resource decreases).
        page[DESCRIPTOR] = 0x80;
    }
    // THRESHOLD RESOURCE: available LBA mapping resources.
    page[DESCRIPTOR + 1] = 0x01;
    let sets = u32::try_from(space.threshold_bytes / THRESHOLD_SET_BYTES).unwrap_or(u32::MAX);
    put(&mut page, DESCRIPTOR + 4, &sets.to_be_bytes());
    page
}

#[cfg(test)]
mod tests {
    use crate::disk::ThinSpace;
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;
    use crate::wire::{be16, be32};

    const GIB: u64 = 1 << 30;

    fn space(available_bytes: u64) -> Option<ThinSpace> {
        Some(ThinSpace { available_bytes, used_bytes: GIB, threshold_bytes: 10 * GIB })
    }

    fn sense(page: u8, subpage: u8) -> [u8; 10] {
        [0x5A, 0x08, page, subpage, 0, 0, 0, 1, 0, 0]
    }

    #[test]
    fn the_threshold_can_be_read_once_space_is_known() {
        let bench = Bench::new();
        bench.refused(&sense(0x1C, 2), b"", Asc::INVALID_FIELD_IN_CDB);
        let provisioning = [0x12, 1, 0xB2, 0, 255, 0];
        assert_eq!(bench.data(&bench.run(&provisioning, b""))[4], 0);
        assert!(!bench.disk.set_thin_space(space(20 * GIB)));
        // Sets of 2^11 blocks of 512 bytes.
        assert_eq!(bench.data(&bench.run(&provisioning, b""))[4], 11);
        let data = bench.data(&bench.run(&sense(0x1C, 2), b""));
        assert_eq!(usize::from(be16(&data, 0)), data.len() - 2);
        assert_eq!((data[8], data[9], be16(&data, 10)), (0x5C, 0x02, 20));
        assert_eq!((data[24], data[25], be32(&data, 28)), (0x80, 0x01, 10 * 1024));
        // Nothing in it can be changed, but sending it back unchanged is
        // accepted.
        let mut select = data.clone();
        select[..2].fill(0);
        select[3] = 0;
        let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, 32, 0];
        assert_eq!(bench.run(&cdb, &select).status, ScsiStatus::Good);
        select[31] ^= 1;
        bench.refused(&cdb, &select, Asc::INVALID_FIELD_IN_PARAMETERS);
        // All pages: with subpages only if requested.
        let plain = bench.data(&bench.run(&sense(0x3F, 0), b""));
        let all = bench.data(&bench.run(&sense(0x3F, 0xFF), b""));
        assert_eq!(all.len(), plain.len() + 24);
        assert!(all.ends_with(&data[8..]));
        let both = bench.data(&bench.run(&sense(0x1C, 0xFF), b""));
        assert_eq!(both.len(), 8 + 12 + 24);
    }

    #[test]
    fn hosts_are_warned_once_until_there_is_space_again() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        assert!(bench.disk.set_thin_space(space(10 * GIB)));
        for nexus in [&bench.nexus, &other] {
            let told = bench.run_as(nexus, &[0; 6], b"").sense.unwrap();
            assert_eq!(told.asc, Asc::THIN_SOFT_THRESHOLD);
        }
        // Near the threshold the warning is not repeated.
        assert!(!bench.disk.set_thin_space(space(10 * GIB + GIB / 2)));
        assert!(!bench.disk.set_thin_space(space(9 * GIB)));
        assert_eq!(bench.run(&[0; 6], b"").status, ScsiStatus::Good);
        assert!(!bench.disk.set_thin_space(space(12 * GIB)));
        assert!(bench.disk.set_thin_space(space(GIB)));
        // Without a threshold there are no warnings.
        let none = ThinSpace { available_bytes: 0, used_bytes: 0, threshold_bytes: 0 };
        assert!(!Bench::new().disk.set_thin_space(Some(none)));
    }
}
