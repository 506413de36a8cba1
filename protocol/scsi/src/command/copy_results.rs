//! RECEIVE COPY RESULTS with its LID1 service actions (SPC-4 §6.21 to §6.25)
//! and COPY OPERATION ABORT.

use super::{Cx, Outcome, Reply};
use crate::disk::copy_result::CopyResult;
use crate::limits::{
    MAX_CSCD_DESCRIPTORS, MAX_DESCRIPTOR_LIST_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENT_DESCRIPTORS,
};
use crate::sense::Sense;
use crate::wire::put;

/// Number of concurrent copies reported to initiators; more work as well.
pub(crate) const CONCURRENT_COPIES: u8 = 16;

pub(crate) fn receive(cx: &Cx<'_>) -> Outcome {
    let allocation = cx.cdb().be32(10);
    let list = u32::from(cx.cdb().byte(2));
    let action = cx.cdb().service_action();
    if action == 0x03 {
        return Ok(Reply::data(operating_parameters(), allocation));
    }
    let state = cx.disk.state();
    let results = state.nexuses.get(&cx.command.nexus.id).map(|nexus| &nexus.copies);
    let result = results
        .and_then(|results| results.iter().find(|one| one.action == 0 && one.list == list))
        .ok_or(Sense::invalid_cdb(2, None))?;
    let data = match action {
        0x00 => copy_status(result),
        _ => failure_details(result).ok_or(Sense::invalid_cdb(2, None))?,
    };
    Ok(Reply::data(data, allocation))
}

/// RECEIVE COPY STATUS (LID1).
fn copy_status(result: &CopyResult) -> Vec<u8> {
    let mut data = vec![0; 12];
    put(&mut data, 0, &8u32.to_be_bytes());
    data[4] = if result.failure.is_some() { 0x02 } else { 0x01 };
    put(&mut data, 5, &result.segments.to_be_bytes());
    // TRANSFER COUNT UNITS: bytes, or 1 KiB when they would not fit.
    let (units, count) = match u32::try_from(result.transferred) {
        Ok(bytes) => (0, bytes),
        Err(_) => (1, u32::try_from(result.transferred >> 10).unwrap_or(u32::MAX)),
    };
    data[7] = units;
    put(&mut data, 8, &count.to_be_bytes());
    data
}

/// RECEIVE COPY FAILURE DETAILS (LID1).
fn failure_details(result: &CopyResult) -> Option<Vec<u8>> {
    let sense = result.failure?.encode();
    let mut data = vec![0; 60];
    data.extend(&sense);
    let available = u32::try_from(data.len() - 4).unwrap_or(u32::MAX);
    put(&mut data, 0, &available.to_be_bytes());
    // EXTENDED COPY COMMAND STATUS: CHECK CONDITION.
    data[56] = 0x02;
    put(&mut data, 58, &u16::try_from(sense.len()).unwrap_or(0).to_be_bytes());
    Some(data)
}

/// RECEIVE COPY OPERATING PARAMETERS.
fn operating_parameters() -> Vec<u8> {
    const IMPLEMENTED: [u8; 3] = [0x02, 0x0A, 0xE4];
    let mut data = vec![0; 44];
    data.extend(IMPLEMENTED);
    let available = u32::try_from(data.len() - 4).unwrap_or(u32::MAX);
    put(&mut data, 0, &available.to_be_bytes());
    // SNLID: a list without a list identifier is accepted.
    data[4] = 0x01;
    put(&mut data, 8, &MAX_CSCD_DESCRIPTORS.to_be_bytes());
    put(&mut data, 10, &MAX_SEGMENT_DESCRIPTORS.to_be_bytes());
    put(&mut data, 12, &MAX_DESCRIPTOR_LIST_BYTES.to_be_bytes());
    put(&mut data, 16, &MAX_SEGMENT_BYTES.to_be_bytes());
    // TOTAL CONCURRENT COPIES, MAXIMUM CONCURRENT COPIES.
    put(&mut data, 34, &u16::from(CONCURRENT_COPIES).to_be_bytes());
    data[36] = CONCURRENT_COPIES;
    // DATA SEGMENT GRANULARITY: 512 bytes.
    data[37] = 9;
    data[43] = IMPLEMENTED.len() as u8;
    data
}

/// Refuses the abort: copies run inside their commands, so there is never one
/// to abort.
pub(crate) fn copy_operation_abort(_: &Cx<'_>) -> Outcome {
    Err(Sense::invalid_cdb(2, None).into())
}
