//! The parameter list of EXTENDED COPY (LID1) (SPC-4 §6.5.3, §6.6.5, §6.6.6).

use super::{Unit, aborted};
use crate::command::{Cx, Failure};
use crate::limits::{MAX_CSCD_DESCRIPTORS, MAX_DESCRIPTOR_LIST_BYTES, MAX_SEGMENT_DESCRIPTORS};
use crate::sense::{Asc, Sense};
use crate::wire::{be16, be24, be32, be64, byte};
use std::sync::Arc;

const HEADER_BYTES: usize = 16;
const CSCD_BYTES: usize = 32;
/// Identification CSCD descriptor.
const IDENTIFICATION: u8 = 0xE4;
/// Block device to block device.
const BLOCK_TO_BLOCK: u8 = 0x02;
/// Block device with offset to block device with offset.
const BLOCK_TO_BLOCK_OFFSET: u8 = 0x0A;

/// A parsed list.
pub(crate) struct Parameters<'a> {
    pub(crate) list: u8,
    /// Set if RECEIVE COPY STATUS may follow (LIST ID USAGE 00b).
    pub(crate) keeps_results: bool,
    /// The units of the CSCD descriptors; `None` for null ones.
    pub(crate) units: Vec<Option<Unit<'a>>>,
    pub(crate) segments: Vec<Segment>,
}

/// Length of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// In blocks of the source.
    SourceBlocks(u16),
    /// In blocks of the target (DC=1).
    TargetBlocks(u16),
    Bytes(u32),
}

/// One segment descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) source: u16,
    pub(crate) target: u16,
    length: Length,
    pub(crate) source_lba: u64,
    pub(crate) target_lba: u64,
    pub(crate) source_offset: u32,
    pub(crate) target_offset: u32,
}

impl Segment {
    pub(crate) fn bytes(&self, source_block: u32, target_block: u32) -> u64 {
        match self.length {
            Length::SourceBlocks(blocks) => u64::from(blocks) * u64::from(source_block),
            Length::TargetBlocks(blocks) => u64::from(blocks) * u64::from(target_block),
            Length::Bytes(bytes) => u64::from(bytes),
        }
    }
}

pub(crate) fn parse<'a>(cx: &Cx<'a>, list: &[u8]) -> Result<Parameters<'a>, Failure> {
    if list.len() < HEADER_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let cscd_bytes = usize::from(be16(list, 2));
    let segment_bytes = usize::try_from(be32(list, 8)).unwrap_or(usize::MAX);
    let inline_bytes = be32(list, 12);
    let limit = usize::try_from(MAX_DESCRIPTOR_LIST_BYTES).unwrap_or(usize::MAX);
    if cscd_bytes.saturating_add(segment_bytes) > limit {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    if inline_bytes > 0 {
        return Err(Asc::INLINE_DATA.into());
    }
    let segments_at = HEADER_BYTES + cscd_bytes;
    let (Some(cscds), Some(segments)) =
        (list.get(HEADER_BYTES..segments_at), list.get(segments_at..segments_at + segment_bytes))
    else {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    };
    if !cscd_bytes.is_multiple_of(CSCD_BYTES) {
        return Err(Sense::invalid_parameter(2).into());
    }
    let count = cscd_bytes / CSCD_BYTES;
    if count > usize::from(MAX_CSCD_DESCRIPTORS) {
        return Err(Asc::TOO_MANY_TARGETS.into());
    }
    let segments = parse_segments(segments)?;
    let units = cscds
        .chunks_exact(CSCD_BYTES)
        .map(|cscd| parse_cscd(cx, cscd))
        .collect::<Result<_, _>>()?;
    Ok(Parameters {
        list: byte(list, 0),
        keeps_results: (byte(list, 1) >> 3) & 0x03 == 0,
        units,
        segments,
    })
}

/// Finds the unit with that designator. SPC-4 made LU ID TYPE reserved, so it
/// is ignored.
fn parse_cscd<'a>(cx: &Cx<'a>, cscd: &[u8]) -> Result<Option<Unit<'a>>, Failure> {
    if byte(cscd, 0) != IDENTIFICATION {
        return Err(Asc::UNSUPPORTED_TARGET.into());
    }
    // NUL: the descriptor names no unit.
    if byte(cscd, 1) & 0x20 != 0 {
        return Ok(None);
    }
    if byte(cscd, 1) & 0x1F != 0 {
        return Err(aborted(Asc::INCORRECT_COPY_TARGET));
    }
    let length = usize::from(byte(cscd, 7));
    let Some(designator) = cscd.get(8..8 + length).filter(|_| length <= 20) else {
        return Err(Sense::invalid_parameter(23).into());
    };
    let kind = byte(cscd, 5) & 0x0F;
    let found = if matches(cx.disk, kind, designator) {
        Some(Unit::Own(cx.disk))
    } else {
        cx.luns.and_then(|luns| {
            let mut units = luns.iter();
            let found = units.find(|(_, disk)| matches(disk, kind, designator));
            found.map(|(_, disk)| Unit::Other(Arc::clone(disk)))
        })
    };
    let Some(unit) = found else {
        return Err(aborted(Asc::COPY_TARGET_NOT_REACHABLE));
    };
    let block = be24(cscd, 29);
    if block != 0 && block != unit.disk().block_bytes() {
        return Err(aborted(Asc::INCORRECT_COPY_TARGET));
    }
    Ok(Some(unit))
}

fn matches(disk: &crate::disk::Disk, kind: u8, designator: &[u8]) -> bool {
    match kind {
        0x03 => disk.config.naa.bytes() == designator,
        0x01 => {
            let mut t10 = crate::wire::padded::<8>(&disk.config.vendor).to_vec();
            t10.extend(disk.config.serial.bytes());
            t10 == designator
        }
        _ => false,
    }
}

fn parse_segments(mut rest: &[u8]) -> Result<Vec<Segment>, Failure> {
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let kind = byte(rest, 0);
        let expected = match kind {
            BLOCK_TO_BLOCK => 28,
            BLOCK_TO_BLOCK_OFFSET => 32,
            _ => return Err(Asc::UNSUPPORTED_SEGMENT.into()),
        };
        let Some((descriptor, tail)) = rest.split_at_checked(expected) else {
            return Err(Asc::PARAMETER_LIST_LENGTH.into());
        };
        if usize::from(be16(descriptor, 2)) != expected - 4 {
            return Err(Asc::INVALID_FIELD_IN_PARAMETERS.into());
        }
        if segments.len() == usize::from(MAX_SEGMENT_DESCRIPTORS) {
            return Err(Asc::TOO_MANY_SEGMENTS.into());
        }
        segments.push(parse_segment(kind, descriptor));
        rest = tail;
    }
    Ok(segments)
}

fn parse_segment(kind: u8, data: &[u8]) -> Segment {
    let with_offset = kind == BLOCK_TO_BLOCK_OFFSET;
    let blocks = be16(data, 10);
    let length = if with_offset {
        Length::Bytes(be32(data, 8))
    } else if byte(data, 1) & 0x02 != 0 {
        Length::TargetBlocks(blocks)
    } else {
        Length::SourceBlocks(blocks)
    };
    let offset = |at| if with_offset { u32::from(be16(data, at)) } else { 0 };
    Segment {
        source: be16(data, 4),
        target: be16(data, 6),
        length,
        source_lba: be64(data, 12),
        target_lba: be64(data, 20),
        source_offset: offset(28),
        target_offset: offset(30),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::Bench;

    /// Identification descriptor of the bench's own disk.
    pub(crate) fn own_cscd(bench: &Bench) -> Vec<u8> {
        let naa = bench.disk.config().naa;
        let mut cscd = vec![0u8; 32];
        cscd[0] = 0xE4;
        cscd[4] = 0x01;
        cscd[5] = 0x03;
        cscd[7] = u8::try_from(naa.bytes().len()).unwrap();
        cscd[8..8 + naa.bytes().len()].copy_from_slice(naa.bytes());
        cscd[30] = 0x02;
        cscd
    }

    /// Builds a complete parameter list.
    pub(crate) fn list(id: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
        let (cscds, segments) = (cscds.concat(), segments.concat());
        let mut list = vec![id, 0];
        list.extend(u16::try_from(cscds.len()).unwrap().to_be_bytes());
        list.extend([0; 4]);
        list.extend(u32::try_from(segments.len()).unwrap().to_be_bytes());
        list.extend([0; 4]);
        list.extend(cscds);
        list.extend(segments);
        list
    }
}
