//! The parameter lists of POPULATE TOKEN (SBC-4 §5.14.2) and WRITE USING TOKEN
//! (SBC-4 §5.49.2).

use super::tokens::{ROD_TYPE_CHANGE_VULNERABLE, TOKEN_BYTES, rod_type};
use crate::command::{Cx, Failure};
use crate::disk::block_range::BlockRange;
use crate::limits::{MAX_PARAMETER_LIST_BYTES, MAX_TOKEN_RANGES, TOKEN_INACTIVITY_SECONDS};
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

/// Bytes of POPULATE TOKEN's list before its descriptors; a shorter list is an
/// error (SBC-4 §5.12.1).
const SHORTEST_LIST_BYTES: usize = 16;
/// Bytes of a block device range descriptor.
const DESCRIPTOR_BYTES: usize = 16;

/// Returns the parameter list, or `None` if the initiator sends none, which is
/// no error. With one descriptor it is `least` bytes long.
fn list<'a>(cx: &'a Cx<'_>, least: usize) -> Result<Option<&'a [u8]>, Failure> {
    let length = cx.cdb().be32(10);
    if length == 0 {
        return Ok(None);
    }
    if length > MAX_PARAMETER_LIST_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let list = cx.parameter_list(length)?;
    if list.len() < SHORTEST_LIST_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    if usize::from(be16(list, 0)) + 2 < least {
        return Err(Sense::invalid_parameter(0).into());
    }
    if list.len() < least {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    Ok(Some(list))
}

/// Parses block device range descriptors, which must not overlap. An incomplete
/// last one is ignored.
fn ranges(list: &[u8], length_at: usize) -> Result<Vec<BlockRange>, Failure> {
    let field = u16::try_from(length_at).unwrap_or(u16::MAX);
    let count = usize::from(be16(list, length_at)) / DESCRIPTOR_BYTES;
    if count == 0 {
        return Err(Sense::invalid_parameter(field).into());
    }
    if count > usize::from(MAX_TOKEN_RANGES) {
        return Err(Asc::TOO_MANY_SEGMENTS.into());
    }
    let start = length_at + 2;
    let Some(descriptors) = list.get(start..start + count * DESCRIPTOR_BYTES) else {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    };
    let ranges: Vec<BlockRange> = descriptors
        .chunks_exact(DESCRIPTOR_BYTES)
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

/// Parses the list of POPULATE TOKEN; `None` if there is none.
pub(super) fn parse_populate(cx: &Cx<'_>) -> Result<Option<Populate>, Failure> {
    let Some(list) = list(cx, 32)? else { return Ok(None) };
    // SBC-4 §5.12.2: a host must not take a token for valid longer than page 8Fh tells.
    if be32(list, 4) > TOKEN_INACTIVITY_SECONDS {
        return Err(Sense::invalid_parameter(4).into());
    }
    // RTV: the ROD TYPE field is valid.
    let named = byte(list, 2) & 0x02 != 0;
    if named && !ACCEPTED_ROD_TYPES.contains(&be32(list, 8)) {
        return Err(Sense::invalid_parameter(8).into());
    }
    Ok(Some(Populate { ranges: ranges(list, 14)? }))
}

/// Parses the list of WRITE USING TOKEN; `None` if there is none.
pub(super) fn parse_write_using(cx: &Cx<'_>) -> Result<Option<WriteUsing>, Failure> {
    let Some(list) = list(cx, 552)? else { return Ok(None) };
    let token = list.get(16..16 + TOKEN_BYTES).unwrap_or_default().to_vec();
    if rod_type(&token) >> 16 != 0xFFFF && be16(&token, 6) != 0x01F8 {
        return Err(Asc::TOKEN_LENGTH.into());
    }
    Ok(Some(WriteUsing {
        token,
        offset_blocks: be64(list, 8),
        delete_token: byte(list, 2) & 0x02 != 0,
        ranges: ranges(list, 534)?,
    }))
}
