//! POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION and REPORT
//! ALL ROD TOKENS (SPC-4 §6.26, §6.29; SBC-4 §5.14, §5.49).
//!
//! Without snapshots of the store, a token represents a point in time only
//! until its blocks change ("change vulnerable").

mod lists;
mod tokens;

pub(crate) use tokens::{ROD_TYPE_CHANGE_VULNERABLE, TokenTable};

use super::extended_copy::{DiskOffset, Stopped, copy};
use super::{Cx, Failure, Outcome, Reply};
use crate::command::medium::Span;
use crate::disk::Disk;
use crate::disk::block_range::BlockRange;
use crate::disk::copy_result::{CopyResult, keep};
use crate::limits::MAX_TOKEN_BYTES;
use crate::sense::{Asc, Sense, SenseKey};
use crate::wire::put;
use bytes::Bytes;
use lists::{parse_populate, parse_write_using};
use std::sync::Arc;
use tokens::{ROD_TYPE_ZERO, TOKEN_BYTES, rod_type};

/// Performs POPULATE TOKEN.
pub(crate) async fn populate(cx: &Cx<'_>) -> Outcome {
    let list = cx.cdb().be32(6);
    let Some(wanted) = parse_populate(cx)? else { return Ok(Reply::GOOD) };
    let mut bytes = 0u64;
    for range in &wanted.ranges {
        bytes = bytes.saturating_add(cx.span(*range)?.len);
    }
    if bytes > MAX_TOKEN_BYTES {
        return Err(Sense::invalid_parameter(16).into());
    }
    let mut state = cx.disk.state();
    let token = state.tokens.make(&cx.disk.config, wanted.ranges, bytes);
    let result = CopyResult {
        list,
        action: 0x10,
        failure: None,
        segments: 0,
        transferred: bytes / cx.block_bytes(),
        cut: false,
        token: Some(token),
    };
    keep(&mut state.nexus(&cx.command.nexus).copies, result);
    Ok(Reply::GOOD)
}

/// Performs WRITE USING TOKEN: the copy runs inside the command.
pub(crate) async fn write_using(cx: &Cx<'_>) -> Outcome {
    let list = cx.cdb().be32(6);
    let Some(wanted) = parse_write_using(cx)? else { return Ok(Reply::GOOD) };
    let mut targets = Vec::new();
    let mut bytes = 0u64;
    for range in &wanted.ranges {
        let span = cx.span(*range)?;
        bytes = bytes.saturating_add(span.len);
        targets.push(span);
    }
    if bytes > MAX_TOKEN_BYTES {
        return Err(Sense::invalid_parameter(534).into());
    }
    let outcome = if rod_type(&wanted.token) == ROD_TYPE_ZERO {
        write_zeros(cx, &targets).await.map(|()| bytes)
    } else {
        write_from_token(cx, &wanted.token, wanted.offset_blocks, &targets).await
    };
    let failure = match &outcome {
        Ok(_) => None,
        Err(Failure::Check(sense)) => Some(*sense),
        Err(Failure::Conflict | Failure::Aborted) => {
            Some(Sense::new(SenseKey::CopyAborted, Asc::NONE))
        }
    };
    let written = outcome.as_ref().map_or(0, |written| *written);
    let mut state = cx.disk.state();
    let result = CopyResult {
        list,
        action: 0x11,
        failure,
        segments: 0,
        transferred: written / cx.block_bytes(),
        cut: written < bytes,
        token: None,
    };
    keep(&mut state.nexus(&cx.command.nexus).copies, result);
    drop(state);
    if wanted.delete_token && outcome.is_ok() {
        for disk in candidates(cx) {
            disk.as_ref().map_or(cx.disk, |disk| disk).state().tokens.forget(&wanted.token);
        }
    }
    outcome.map(|_| Reply::GOOD)
}

async fn write_zeros(cx: &Cx<'_>, targets: &[Span]) -> Result<(), Failure> {
    cx.disk.store.admit_change().await.map_err(Cx::write_failed)?;
    for span in targets {
        let range = in_blocks(cx, *span);
        let _shared = cx.disk.shared.ranges.share(range).await;
        cx.may_copy(cx.disk, cx.disk)?;
        cx.disk.blocks_change(range);
        let thin = cx.disk.is_thin(&cx.geometry);
        cx.disk.store.write_zeroes(span.offset, span.len, thin).await.map_err(Cx::write_failed)?;
    }
    if cx.write_through(false) { cx.sync().await } else { Ok(()) }
}

fn in_blocks(cx: &Cx<'_>, span: Span) -> BlockRange {
    BlockRange { lba: span.offset / cx.block_bytes(), blocks: span.len / cx.block_bytes() }
}

/// Returns the disks that a token may come from: this one (`None`) and the
/// others of the target.
fn candidates(cx: &Cx<'_>) -> Vec<Option<Arc<Disk>>> {
    let mut disks = vec![None];
    if let Some(luns) = cx.luns {
        let others = luns.iter().filter(|(_, disk)| !std::ptr::eq(disk.as_ref(), cx.disk));
        disks.extend(others.map(|(_, disk)| Some(Arc::clone(disk))));
    }
    disks
}

/// Writes what the token stands for to the targets, as far as it goes, and
/// returns the number of bytes written: whole blocks.
async fn write_from_token(
    cx: &Cx<'_>,
    token: &[u8],
    offset_blocks: u64,
    targets: &[Span],
) -> Result<u64, Failure> {
    let mut unknown = Asc::TOKEN_UNKNOWN;
    for candidate in candidates(cx) {
        let disk = candidate.as_ref().map_or(cx.disk, |disk| disk);
        let found = disk.state().tokens.find(token);
        let sources = match found {
            Ok(sources) => sources,
            Err(asc) => {
                if asc != Asc::TOKEN_UNKNOWN {
                    unknown = asc;
                }
                continue;
            }
        };
        disk.check_third_party(cx, false)?;
        let block = u64::from(disk.block_bytes());
        let spans: Vec<Span> = sources
            .iter()
            .map(|range| Span { offset: range.lba * block, len: range.blocks * block })
            .collect();
        // OFFSET INTO ROD counts blocks of the destination unit.
        let total: u64 = spans.iter().map(|span| span.len).sum();
        let skip = offset_blocks
            .checked_mul(cx.block_bytes())
            .filter(|skip| *skip < total)
            .ok_or(Sense::invalid_parameter(8))?;
        let wanted: u64 = targets.iter().map(|span| span.len).sum();
        let copied = wanted.min(total - skip);
        copy_ranges(cx, disk, token, &skipped(&spans, skip), &front(targets, copied)).await?;
        let written = copied.next_multiple_of(cx.block_bytes());
        // The data may end within a block of this unit, which has larger blocks.
        for rest in skipped(&front(targets, written), copied) {
            zero_rest(cx, disk, rest).await?;
        }
        return Ok(written);
    }
    Err(unknown.into())
}

/// Returns the spans without their first `skip` bytes.
fn skipped(spans: &[Span], mut skip: u64) -> Vec<Span> {
    let mut rest = Vec::new();
    for span in spans {
        let cut = skip.min(span.len);
        skip -= cut;
        if span.len > cut {
            rest.push(Span { offset: span.offset + cut, len: span.len - cut });
        }
    }
    rest
}

/// Returns the first `len` bytes of the spans.
fn front(spans: &[Span], mut len: u64) -> Vec<Span> {
    let mut front = Vec::new();
    for span in spans {
        let part = len.min(span.len);
        len -= part;
        if part > 0 {
            front.push(Span { offset: span.offset, len: part });
        }
    }
    front
}

/// Zeros the rest of a block that the data of a token covers in part.
async fn zero_rest(cx: &Cx<'_>, source: &Disk, rest: Span) -> Result<(), Failure> {
    let range = BlockRange { lba: rest.offset / cx.block_bytes(), blocks: 1 };
    let _shared = cx.disk.shared.ranges.share(range).await;
    cx.may_copy(source, cx.disk)?;
    cx.disk.blocks_change(range);
    let zeros = Bytes::from(vec![0; rest.size()]);
    cx.write_bytes(rest.offset, zeros, cx.write_through(false)).await
}

async fn copy_ranges(
    cx: &Cx<'_>,
    source: &Disk,
    token: &[u8],
    sources: &[Span],
    targets: &[Span],
) -> Result<(), Failure> {
    // After a read, it shows that what was read is what the token stands for. The copy
    // itself revokes the token when it writes over its blocks.
    let goes_on = || {
        cx.may_copy(source, cx.disk)?;
        let found = source.state().tokens.find(token);
        found.map(drop).map_err(|_| Failure::from(Asc::TOKEN_REVOKED))
    };
    let mut sources = sources.iter().copied();
    let mut current = sources.next();
    for target in targets {
        let mut target = *target;
        while target.len > 0 {
            let Some(from) = current else {
                return Err(Asc::INVALID_TOKEN.into());
            };
            let len = from.len.min(target.len);
            copy(
                DiskOffset { disk: source, offset: from.offset },
                DiskOffset { disk: cx.disk, offset: target.offset },
                len,
                &goes_on,
            )
            .await
            .map_err(|stopped| match stopped {
                Stopped::Store(error) => Cx::write_failed(error),
                Stopped::Refused(failure) => failure,
            })?;
            target = Span { offset: target.offset + len, len: target.len - len };
            current = if from.len > len {
                Some(Span { offset: from.offset + len, len: from.len - len })
            } else {
                sources.next()
            };
        }
    }
    Ok(())
}

/// Performs RECEIVE ROD TOKEN INFORMATION.
pub(crate) fn receive_information(cx: &Cx<'_>) -> Outcome {
    let list = cx.cdb().be32(2);
    let allocation = cx.cdb().be32(10);
    let state = cx.disk.state();
    let result = state
        .nexuses
        .get(&cx.command.nexus.id)
        .and_then(|nexus| nexus.copies.iter().find(|one| one.action != 0 && one.list == list))
        .ok_or(Sense::invalid_cdb(2, None))?;
    let sense = result.failure.map(|failure| failure.encode()).unwrap_or_default();
    let mut data = vec![0; 32];
    data[4] = result.action;
    // COPY OPERATION STATUS: completed with errors, or without, with all or a
    // part of what there was to be written.
    data[5] = match (result.failure, result.cut) {
        (Some(_), _) => 0x02,
        (None, true) => 0x03,
        (None, false) => 0x01,
    };
    data[7] = 1;
    // ESTIMATED STATUS UPDATE DELAY: the operation has ended.
    put(&mut data, 8, &u32::MAX.wrapping_sub(1).to_be_bytes());
    data[12] = if result.failure.is_some() { 0x02 } else { 0x00 };
    let sense_bytes = u8::try_from(sense.len()).unwrap_or(0);
    data[13] = sense_bytes;
    data[14] = sense_bytes;
    // TRANSFER COUNT UNITS: logical blocks.
    data[15] = 0xF1;
    put(&mut data, 16, &result.transferred.to_be_bytes());
    data.extend(sense);
    match &result.token {
        Some(token) => {
            let bytes = u32::try_from(2 + TOKEN_BYTES).unwrap_or(0);
            data.extend(bytes.to_be_bytes());
            data.extend([0, 0]);
            data.extend(token);
        }
        None => data.extend([0; 4]),
    }
    let available = u32::try_from(data.len() - 4).unwrap_or(u32::MAX);
    put(&mut data, 0, &available.to_be_bytes());
    Ok(Reply::data(data, allocation))
}

/// Performs REPORT ALL ROD TOKENS: returns the management part of each.
pub(crate) fn report_all(cx: &Cx<'_>) -> Outcome {
    let list = cx.disk.state().tokens.management();
    let bytes = u32::try_from(list.len() + 4).unwrap_or(u32::MAX);
    let mut data = bytes.to_be_bytes().to_vec();
    data.extend([0; 4]);
    data.extend(list);
    Ok(Reply::data(data, cx.cdb().be32(10)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TOKEN_INACTIVITY_SECONDS;
    use crate::sense::ScsiStatus;
    use crate::testing::{Bench, poll_until};
    use crate::wire::be64;
    use std::pin::pin;

    fn cdb(action: u8, bytes: usize) -> [u8; 16] {
        let mut cdb = [0u8; 16];
        (cdb[0], cdb[1], cdb[9]) = (0x83, action, 5);
        cdb[10..14].copy_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        cdb
    }

    fn ranges(list: &mut Vec<u8>, ranges: &[(u64, u32)]) {
        list.extend(u16::try_from(ranges.len() * 16).unwrap().to_be_bytes());
        for (lba, blocks) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        let length = u16::try_from(list.len() - 2).unwrap();
        list[..2].copy_from_slice(&length.to_be_bytes());
    }

    /// Sends RECEIVE ROD TOKEN INFORMATION.
    fn information(bench: &Bench) -> Vec<u8> {
        let mut receive = [0u8; 16];
        (receive[0], receive[1], receive[5], receive[12]) = (0x84, 0x07, 5, 4);
        bench.data(&bench.run(&receive, b""))
    }

    /// Returns COPY OPERATION STATUS and TRANSFER COUNT of the last
    /// WRITE USING TOKEN.
    fn written(bench: &Bench) -> (u8, u64) {
        let data = information(bench);
        assert_eq!((data[4], data[15]), (0x11, 0xF1));
        (data[5], be64(&data, 16))
    }

    fn populate(bench: &Bench, wanted: &[(u64, u32)]) -> Vec<u8> {
        let mut list = vec![0; 14];
        ranges(&mut list, wanted);
        assert_eq!(bench.run(&cdb(0x10, list.len()), &list).status, ScsiStatus::Good);
        let data = information(bench);
        assert_eq!((data[4], data[5]), (0x10, 1));
        data[38..38 + TOKEN_BYTES].to_vec()
    }

    fn write_list(token: &[u8], skip: u64, to: &[(u64, u32)]) -> Vec<u8> {
        let mut list = vec![0; 8];
        list.extend(skip.to_be_bytes());
        list.extend(token);
        list.extend([0; 6]);
        ranges(&mut list, to);
        list
    }

    fn write_using(bench: &Bench, token: &[u8], skip: u64, to: &[(u64, u32)]) -> crate::Response {
        let list = write_list(token, skip, to);
        bench.run(&cdb(0x11, list.len()), &list)
    }

    #[test]
    fn a_token_moves_blocks() {
        let bench = Bench::new();
        bench.fill(0, 4, 1);
        bench.fill(50, 4, 2);
        let token = populate(&bench, &[(0, 4), (50, 4)]);
        assert_eq!(token.len(), 512);
        let written = write_using(&bench, &token, 2, &[(100, 3), (200, 3)]);
        assert_eq!(written.status, ScsiStatus::Good);
        let blocks: Vec<u8> =
            [100, 101, 102, 200, 201, 202].map(|lba| bench.content(lba, 1)[0]).to_vec();
        assert_eq!(blocks, [1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn changed_blocks_revoke_the_token() {
        let bench = Bench::new();
        let token = populate(&bench, &[(0, 8)]);
        bench.run(&[0x2A, 0, 0, 0, 0, 7, 0, 0, 1, 0], &[9; 512]);
        let refused = write_using(&bench, &token, 0, &[(100, 8)]);
        assert_eq!(refused.sense.unwrap().asc, Asc::TOKEN_REVOKED);
    }

    #[test]
    fn blocks_that_change_during_the_copy_revoke_the_token() {
        const BLOCKS: u32 = 3000;
        let (source, target, luns) = Bench::pair();
        source.fill(0, u64::from(BLOCKS), 7);
        let token = populate(&source, &[(0, BLOCKS)]);
        let list = write_list(&token, 0, &[(0, BLOCKS)]);
        source.store.pause_calls(true);
        let command = source.command(&source.nexus, &cdb(0x11, list.len()), &list);
        let mut copy = pin!(luns.execute([0, 1, 0, 0, 0, 0, 0, 0], command));
        poll_until(copy.as_mut(), || target.content(0, 1)[0] == 7);
        // A write to a block that is still to be copied.
        let [high, low] = (BLOCKS as u16 - 1).to_be_bytes();
        let write = [0x2A, 0, 0, 0, high, low, 0, 0, 1, 0];
        assert_eq!(source.run(&write, &[9; 512]).status, ScsiStatus::Good);
        assert_eq!(source.block_on(copy).sense.unwrap().asc, Asc::TOKEN_REVOKED);
        assert_eq!(target.content(u64::from(BLOCKS) - 1, 1)[0], 0, "not mixed with the change");
    }

    #[test]
    fn forged_tokens_are_unknown() {
        let bench = Bench::new();
        let mut token = populate(&bench, &[(0, 8)]);
        token[100] ^= 1;
        let refused = write_using(&bench, &token, 0, &[(100, 8)]);
        assert_eq!(refused.sense.unwrap().asc, Asc::TOKEN_UNKNOWN);
    }

    #[test]
    fn writes_beyond_the_token_are_cut() {
        let bench = Bench::new();
        bench.fill(0, 8, 1);
        bench.fill(100, 8, 9);
        let token = populate(&bench, &[(0, 8)]);
        let all = write_using(&bench, &token, 0, &[(200, 8)]);
        assert_eq!((all.status, written(&bench)), (ScsiStatus::Good, (0x01, 8)));
        let part = write_using(&bench, &token, 4, &[(100, 3), (103, 5)]);
        assert_eq!((part.status, written(&bench)), (ScsiStatus::Good, (0x03, 4)));
        assert_eq!(bench.content(100, 4), vec![1; 4 * 512]);
        assert_eq!(bench.content(104, 4), vec![9; 4 * 512]);
        for skip in [8, u64::MAX] {
            let refused = write_using(&bench, &token, skip, &[(100, 8)]);
            assert_eq!(refused.sense.unwrap().asc, Asc::INVALID_FIELD_IN_PARAMETERS);
            assert_eq!(written(&bench), (0x02, 0));
        }
    }

    #[test]
    fn the_rest_of_a_larger_block_is_zeroed() {
        let (source, target, luns) = Bench::pair_with(|config| config.logical_block_bytes = 4096);
        source.fill(0, 3, 7);
        target.fill(0, 16, 9);
        let token = populate(&source, &[(0, 3)]);
        let list = write_list(&token, 0, &[(0, 2)]);
        let command = source.command(&source.nexus, &cdb(0x11, list.len()), &list);
        let response = source.block_on(luns.execute([0, 1, 0, 0, 0, 0, 0, 0], command));
        assert_eq!(response.status, ScsiStatus::Good);
        assert_eq!(written(&target), (0x03, 1));
        assert_eq!(target.content(0, 3), vec![7; 3 * 512]);
        assert_eq!(target.content(3, 5), vec![0; 5 * 512]);
        assert_eq!(target.content(8, 8), vec![9; 8 * 512], "the second block");
    }

    #[test]
    fn lists_are_checked() {
        let bench = Bench::new();
        bench.fill(0, 1, 1);
        // Without a list there is nothing to do.
        for action in [0x10, 0x11] {
            assert_eq!(bench.run(&cdb(action, 0), b"").status, ScsiStatus::Good);
        }
        let token = populate(&bench, &[(0, 1)]);
        let mut list = write_list(&token, 0, &[(100, 1)]);
        let short = 549u16.to_be_bytes();
        let whole = [list[0], list[1]];
        list[..2].copy_from_slice(&short);
        bench.refused(&cdb(0x11, list.len()), &list, Asc::INVALID_FIELD_IN_PARAMETERS);
        list[..2].copy_from_slice(&whole);
        bench.refused(&cdb(0x11, 551), &list[..551], Asc::PARAMETER_LIST_LENGTH);
        // Half a descriptor follows, which is ignored.
        list.extend([0xFF; 8]);
        let length = u16::try_from(list.len() - 2).unwrap();
        list[..2].copy_from_slice(&length.to_be_bytes());
        list[534..536].copy_from_slice(&24u16.to_be_bytes());
        assert_eq!(bench.run(&cdb(0x11, list.len()), &list).status, ScsiStatus::Good);
        assert_eq!((written(&bench), bench.content(100, 1)), ((0x01, 1), vec![1; 512]));
    }

    #[test]
    fn a_longer_validity_than_page_8f_tells_is_refused() {
        let bench = Bench::new();
        let mut list = vec![0; 14];
        ranges(&mut list, &[(0, 1)]);
        list[4..8].copy_from_slice(&TOKEN_INACTIVITY_SECONDS.to_be_bytes());
        assert_eq!(bench.run(&cdb(0x10, list.len()), &list).status, ScsiStatus::Good);
        list[4..8].copy_from_slice(&(TOKEN_INACTIVITY_SECONDS + 1).to_be_bytes());
        bench.refused(&cdb(0x10, list.len()), &list, Asc::INVALID_FIELD_IN_PARAMETERS);
    }

    #[test]
    fn the_zero_token_writes_zeros() {
        let bench = Bench::new();
        bench.fill(10, 4, 7);
        let mut token = vec![0; 512];
        token[..4].copy_from_slice(&ROD_TYPE_ZERO.to_be_bytes());
        token[6..8].copy_from_slice(&0x01F8u16.to_be_bytes());
        assert_eq!(write_using(&bench, &token, 0, &[(10, 4)]).status, ScsiStatus::Good);
        assert_eq!(bench.content(10, 4), vec![0; 4 * 512]);
    }
}
