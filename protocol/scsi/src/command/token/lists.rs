//! The parameter lists of POPULATE TOKEN (SBC-4 §5.14.2) and WRITE USING TOKEN
//! (SBC-4 §5.49.2).

use super::tokens::{ROD_TYPE_CHANGE_VULNERABLE, TOKEN_BYTES, rod_type};
use crate::command::{Cx, Failure};
use crate::disk::range_lock::BlockRange;
use crate::limits::{MAX_PARAMETER_LIST_BYTES, MAX_TOKEN_RANGES};
use crate::sense::{Asc, Sense};
use crate::wire::{be16, be32, be64, byte};

/// ROD types that mean a point in time and may be requested: the default, the
/// change vulnerable one, and "any".
const ACCEPTED_ROD_TYPES: [u32; 4] = [0, 0x0080_0000, ROD_TYPE_CHANGE_VULNERABLE, 0x0080_FFFF];

pub(super) struct Populate {
    pub(super) ranges: Vec<BlockRange>,
}

pub(super) struct WriteUsing {
    pub(super) token: Vec<u8>,
    pub(super) offset_blocks: u64,
    pub(super) delete_token: bool,
    pub(super) ranges: Vec<BlockRange>,
}

fn list<'a>(cx: &'a Cx<'_>, least: usize) -> Result<&'a [u8], Failure> {
    let length = cx.cdb().be32(10);
    if length > MAX_PARAMETER_LIST_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let list = cx.parameter_list(length)?;
    if list.len() < least || usize::from(be16(list, 0)) + 2 < least {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    Ok(list)
}

/// Parses block device range descriptors, which must not overlap.
fn ranges(list: &[u8], length_at: usize) -> Result<Vec<BlockRange>, Failure> {
    let field = u16::try_from(length_at).unwrap_or(u16::MAX);
    let bytes = usize::from(be16(list, length_at));
    let Some(descriptors) = list.get(length_at + 2..length_at + 2 + bytes) else {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    };
    if bytes < 16 || !bytes.is_multiple_of(16) {
        return Err(Sense::invalid_parameter(field).into());
    }
    if bytes / 16 > usize::from(MAX_TOKEN_RANGES) {
        return Err(Asc::TOO_MANY_SEGMENTS.into());
    }
    let ranges: Vec<BlockRange> = descriptors
        .chunks_exact(16)
        .map(|one| BlockRange { lba: be64(one, 0), blocks: u64::from(be32(one, 8)) })
        .collect();
    let mut sorted = ranges.clone();
    sorted.sort_unstable_by_key(|range| range.lba);
    let overlap =
        sorted.windows(2).any(|pair| pair[0].lba.saturating_add(pair[0].blocks) > pair[1].lba);
    if overlap {
        return Err(Sense::invalid_parameter(field + 2).into());
    }
    Ok(ranges)
}

pub(super) fn parse_populate(cx: &Cx<'_>) -> Result<Populate, Failure> {
    let list = list(cx, 32)?;
    // RTV: the ROD TYPE field is valid.
    let named = byte(list, 2) & 0x02 != 0;
    if named && !ACCEPTED_ROD_TYPES.contains(&be32(list, 8)) {
        return Err(Sense::invalid_parameter(8).into());
    }
    Ok(Populate { ranges: ranges(list, 14)? })
}

pub(super) fn parse_write_using(cx: &Cx<'_>) -> Result<WriteUsing, Failure> {
    let list = list(cx, 552)?;
    let token = list.get(16..16 + TOKEN_BYTES).unwrap_or_default().to_vec();
    if rod_type(&token) >> 16 != 0xFFFF && be16(&token, 6) != 0x01F8 {
        return Err(Asc::TOKEN_LENGTH.into());
    }
    Ok(WriteUsing {
        token,
        offset_blocks: be64(list, 8),
        delete_token: byte(list, 2) & 0x02 != 0,
        ranges: ranges(list, 534)?,
    })
}
