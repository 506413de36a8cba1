//! MODE SENSE and MODE SELECT (6) and (10) (SPC-4 §6.11 to §6.14).

mod pages;
mod provisioning;
mod select;

pub(crate) use pages::{ModePages, PAGES_WHILE_SANITIZING};
pub(crate) use provisioning::THRESHOLD_AT;
pub(crate) use select::mode_select;

use super::{Cx, Outcome, Reply};
use crate::sense::{Asc, Sense};
use pages::{Control, PAGE_CODES};

/// DEVICE-SPECIFIC PARAMETER: write protection.
const WP: u8 = 0x80;
/// DEVICE-SPECIFIC PARAMETER: DPO and FUA work.
const DPOFUA: u8 = 0x10;
const ALL_PAGES: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

pub(crate) fn mode_sense(cx: &Cx<'_>) -> Outcome {
    let cdb = cx.cdb();
    let long = cx.row.length == 10;
    let no_descriptors = cdb.byte(1) & 0x08 != 0;
    let long_lba = long && cdb.byte(1) & 0x10 != 0;
    let control = match cdb.byte(2) >> 6 {
        0b00 => Control::Current,
        0b01 => Control::Changeable,
        0b10 => Control::Default,
        _ => return Err(Asc::SAVING_NOT_SUPPORTED.into()),
    };
    let state = cx.disk.state();
    let space = state.thin_space.filter(|_| cx.disk.is_thin(&cx.geometry));
    let sub = space.map_or_else(Vec::new, |space| provisioning::page(&space, control));
    let wanted = (cdb.byte(2) & 0x3F, cdb.byte(3));
    let has_cache = cx.geometry.write_cache;
    let pages = requested_pages(&state.mode, &sub, control, has_cache, wanted)?;
    let protected = cx.disk.refuses_writes(cx.luns) || state.mode.software_write_protect();
    drop(state);
    let device_specific = DPOFUA | if protected { WP } else { 0 };
    let descriptor = match (no_descriptors, long_lba) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(cx),
        (false, true) => long_descriptor(cx),
    };
    let mut data = if long {
        let flag = u8::from(long_lba && !no_descriptors);
        let mut header = vec![0, 0, 0, device_specific, flag, 0];
        header.extend(u16::try_from(descriptor.len()).unwrap_or(0).to_be_bytes());
        header
    } else {
        vec![0, 0, device_specific, u8::try_from(descriptor.len()).unwrap_or(0)]
    };
    data.extend(descriptor);
    data.extend(pages);
    if long {
        let length = u16::try_from(data.len() - 2).unwrap_or(u16::MAX);
        data[..2].copy_from_slice(&length.to_be_bytes());
        Ok(Reply::data(data, u32::from(cdb.be16(7))))
    } else {
        data[0] = u8::try_from(data.len() - 1).unwrap_or(u8::MAX);
        Ok(Reply::data(data, u32::from(cdb.byte(4))))
    }
}

/// Returns the requested pages; `provisioning` is the only subpage, or empty.
fn requested_pages(
    mode: &ModePages,
    provisioning: &[u8],
    control: Control,
    has_cache: bool,
    (code, subpage): (u8, u8),
) -> Result<Vec<u8>, Sense> {
    let codes: &[u8] = match PAGE_CODES.iter().position(|known| *known == code) {
        Some(at) => &PAGE_CODES[at..=at],
        None if code == ALL_PAGES => &PAGE_CODES,
        None => return Err(Sense::invalid_cdb(2, Some(5))),
    };
    let has_sub = codes.contains(&provisioning::CODE) && !provisioning.is_empty();
    let pages = codes.iter().flat_map(|code| mode.page(*code, control, has_cache));
    let mut pages: Vec<u8> = pages.collect();
    match subpage {
        0 => Ok(pages),
        ALL_SUBPAGES => {
            if has_sub {
                // It belongs to the last page.
                pages.extend(provisioning);
            }
            Ok(pages)
        }
        provisioning::SUBPAGE if code == provisioning::CODE && has_sub => Ok(provisioning.to_vec()),
        _ => Err(Sense::invalid_cdb(3, None)),
    }
}

/// Returns the short LBA mode parameter block descriptor (SBC-4 §6.5.2.2).
fn short_descriptor(cx: &Cx<'_>) -> Vec<u8> {
    let blocks = u32::try_from(cx.capacity_blocks()).unwrap_or(u32::MAX);
    let mut data = blocks.to_be_bytes().to_vec();
    // The top byte of the length is reserved; all supported block sizes fit
    // below it.
    data.extend(cx.disk.block_bytes().to_be_bytes());
    data
}

/// Returns the long LBA mode parameter block descriptor (SBC-4 §6.5.2.3).
fn long_descriptor(cx: &Cx<'_>) -> Vec<u8> {
    let mut data = cx.capacity_blocks().to_be_bytes().to_vec();
    data.extend([0; 4]);
    data.extend(cx.disk.block_bytes().to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use crate::sense::Asc;
    use crate::testing::Bench;
    use crate::wire::{be16, be32};

    #[test]
    fn all_pages_have_a_consistent_frame() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&[0x1A, 0, 0x3F, 0, 255, 0], b""));
        assert_eq!(usize::from(data[0]), data.len() - 1);
        assert_eq!((data[2] & 0x90, data[3]), (0x10, 8));
        let mut at = 12;
        let mut codes = Vec::new();
        while at < data.len() {
            codes.push(data[at]);
            at += 2 + usize::from(data[at + 1]);
        }
        assert_eq!(at, data.len());
        assert_eq!(codes, [0x01, 0x02, 0x08, 0x0A, 0x1A, 0x1C]);
    }

    #[test]
    fn the_long_form_carries_a_long_descriptor() {
        let bench = Bench::new();
        let data = bench.data(&bench.run(&[0x5A, 0x10, 0x0A, 0, 0, 0, 0, 1, 0, 0], b""));
        assert_eq!(usize::from(be16(&data, 0)), data.len() - 2);
        assert_eq!((data[4], be16(&data, 6), be32(&data, 20)), (1, 16, 512));
        let bare = bench.data(&bench.run(&[0x5A, 0x08, 0x0A, 0, 0, 0, 0, 1, 0, 0], b""));
        assert_eq!((be16(&bare, 6), bare.len()), (0, 8 + 12));
    }

    #[test]
    fn saved_and_unknown_pages_are_refused() {
        let bench = Bench::new();
        bench.refused(&[0x1A, 0, 0xC8, 0, 255, 0], b"", Asc::SAVING_NOT_SUPPORTED);
        bench.refused(&[0x1A, 0, 0x05, 0, 255, 0], b"", Asc::INVALID_FIELD_IN_CDB);
        bench.refused(&[0x1A, 0, 0x0A, 7, 255, 0], b"", Asc::INVALID_FIELD_IN_CDB);
    }
}
