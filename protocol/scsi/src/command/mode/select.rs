//! MODE SELECT (6) and (10).

use super::pages::{Control, PAGE_CODES};
use super::{Cx, Outcome, Reply, provisioning};
use crate::command::Failure;
use crate::disk::State;
use crate::disk::block_range::BlockRange;
use crate::sense::{Asc, Sense};
use crate::wire::{be16, be24, byte};

pub(crate) async fn mode_select(cx: &Cx<'_>) -> Outcome {
    let cdb = cx.cdb();
    let long = cx.row.length == 10;
    // SP: nothing can be saved.
    if cdb.byte(1) & 0x01 != 0 {
        return Err(Sense::invalid_cdb(1, Some(0)).into());
    }
    let length = if long { u32::from(cdb.be16(7)) } else { u32::from(cdb.byte(4)) };
    if length == 0 {
        return Ok(Reply::GOOD);
    }
    // PF=0 is vendor specific.
    if cdb.byte(1) & 0x10 == 0 {
        return Err(Sense::invalid_cdb(1, Some(4)).into());
    }
    let list = cx.parameter_list(length)?;
    let start = check_descriptor(cx, list, long)?;
    if !adopt(cx, list, start, false)? {
        // Cached data must not be lost (SBC-4 §6.5.6), nor that of a write which began with the
        // cache on: once it is off, no host flushes any more.
        let _alone = cx.disk.shared.ranges.exclude(BlockRange::WHOLE).await;
        cx.sync_aside().await?;
        adopt(cx, list, start, true)?;
    }
    Ok(Reply::GOOD)
}

/// Puts the pages of the list into effect, over what others have set by now. Returns false, and
/// changes nothing, if they turn a cache off that is not `emptied`.
fn adopt(cx: &Cx<'_>, list: &[u8], start: usize, emptied: bool) -> Result<bool, Failure> {
    let mut state = cx.disk.state();
    let wanted = parse(cx, &state, list, start)?;
    if state.mode.write_cache() && !wanted.write_cache() && !emptied {
        return Ok(false);
    }
    if state.mode != wanted {
        state.mode = wanted;
        state.empties_cache &= wanted.write_cache();
        state.raise_for_others(cx.command.nexus.id, Asc::MODE_PARAMETERS_CHANGED);
    }
    Ok(true)
}

/// Checks header and block descriptor; returns the position of the first page.
fn check_descriptor(cx: &Cx<'_>, list: &[u8], long: bool) -> Result<usize, Failure> {
    let header = if long { 8 } else { 4 };
    if list.len() < header {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let descriptor_bytes =
        if long { usize::from(be16(list, 6)) } else { usize::from(byte(list, 3)) };
    let long_lba = long && byte(list, 4) & 0x01 != 0;
    let Some(descriptor) = list.get(header..header + descriptor_bytes) else {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    };
    let block = match (descriptor_bytes, long_lba) {
        (0, _) => return Ok(header),
        (8, false) => be24(descriptor, 5),
        (16, true) => be24(descriptor, 13),
        _ => {
            let at = if long { 6 } else { 3 };
            return Err(Sense::invalid_parameter(at).into());
        }
    };
    // The block size cannot be changed; the number of blocks is ignored,
    // because the store defines the capacity.
    if block != cx.disk.block_bytes() {
        let at = header + descriptor_bytes - 3;
        return Err(Sense::invalid_parameter(u16::try_from(at).unwrap_or(0)).into());
    }
    Ok(header + descriptor_bytes)
}

/// Applies all pages to a copy of the current ones, so that either all take
/// effect or none.
fn parse(
    cx: &Cx<'_>,
    state: &State,
    list: &[u8],
    start: usize,
) -> Result<super::ModePages, Failure> {
    let mut wanted = state.mode;
    let mut at = start;
    while at < list.len() {
        let field = |offset: usize| u16::try_from(at + offset).unwrap_or(u16::MAX);
        let code = byte(list, at) & 0x3F;
        // The list cuts the header of the page (SPC-4 §6.11).
        if list.len() - at < 2 {
            return Err(Asc::PARAMETER_LIST_LENGTH.into());
        }
        if let Some(length) = unchanged_provisioning(cx, state, list, at)? {
            at += length;
            continue;
        }
        // No other page has SPF, and PS is reserved here.
        if byte(list, at) & 0xC0 != 0 || !PAGE_CODES.contains(&code) {
            return Err(Sense::invalid_parameter(field(0)).into());
        }
        let has_cache = cx.geometry.write_cache;
        let expected = wanted.page(code, Control::Current, has_cache).len();
        let length = 2 + usize::from(byte(list, at + 1));
        if length != expected {
            return Err(Sense::invalid_parameter(field(1)).into());
        }
        let Some(page) = list.get(at..at + length) else {
            return Err(Asc::PARAMETER_LIST_LENGTH.into());
        };
        wanted
            .apply(page, has_cache)
            .map_err(|byte| Failure::from(Sense::invalid_parameter(field(byte))))?;
        at += length;
    }
    Ok(wanted)
}

/// Returns the length of the provisioning page if it is the one at `at`; it is
/// only accepted unchanged.
fn unchanged_provisioning(
    cx: &Cx<'_>,
    state: &State,
    list: &[u8],
    at: usize,
) -> Result<Option<usize>, Failure> {
    let (code, subpage) = (byte(list, at), byte(list, at + 1));
    if (code, subpage) != (provisioning::SPF | provisioning::CODE, provisioning::SUBPAGE) {
        return Ok(None);
    }
    let field = |offset: usize| u16::try_from(at + offset).unwrap_or(u16::MAX);
    let Some(space) = state.thin_space.filter(|_| cx.disk.is_thin(&cx.geometry)) else {
        return Err(Sense::invalid_parameter(field(0)).into());
    };
    let current = provisioning::page(&space, Control::Current);
    let Some(given) = list.get(at..at + current.len()) else {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    };
    match given.iter().zip(&current).position(|(new, old)| new != old) {
        Some(wrong) => Err(Sense::invalid_parameter(field(wrong)).into()),
        None => Ok(Some(current.len())),
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::background::Unpaced;
    use crate::disk::{ResetReason, ThinSpace};
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::{Bench, poll_until};
    use std::pin::pin;
    use std::task::{Context, Waker};
    use zgate_store::StoreError;

    fn current(bench: &Bench, page: u8) -> Vec<u8> {
        bench.data(&bench.run(&[0x1A, 0x08, page, 0, 255, 0], b""))
    }

    fn select(bench: &Bench, mut list: Vec<u8>) -> crate::Response {
        list[0] = 0;
        list[2] = 0;
        let length = u8::try_from(list.len()).unwrap();
        bench.run(&[0x15, 0x10, 0, 0, length, 0], &list)
    }

    #[test]
    fn software_write_protection_comes_and_goes() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        let mut list = current(&bench, 0x0A);
        list[8] |= 0x08;
        assert_eq!(select(&bench, list.clone()).status, ScsiStatus::Good);
        let told = bench.run_as(&other, &[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::MODE_PARAMETERS_CHANGED);
        let write = bench.run(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512]);
        assert_eq!(write.sense.unwrap().asc, Asc::SOFTWARE_WRITE_PROTECTED);
        assert_eq!(current(&bench, 0x0A)[2] & 0x80, 0x80);
        list[8] &= !0x08;
        assert_eq!(select(&bench, list).status, ScsiStatus::Good);
        let write = bench.run(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512]);
        assert_eq!(write.status, ScsiStatus::Good);
    }

    #[test]
    fn a_unit_opened_again_keeps_what_was_set() {
        let bench = Bench::new();
        let (mut control, mut caching) = (current(&bench, 0x0A), current(&bench, 0x08));
        control[8] |= 0x08;
        caching[6] &= !0x04;
        assert_eq!(select(&bench, control).status, ScsiStatus::Good);
        assert_eq!(select(&bench, caching).status, ScsiStatus::Good);
        let after = bench.reopened();
        after.settle(&after.nexus);
        let write = after.run(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512]);
        assert_eq!(write.sense.unwrap().asc, Asc::SOFTWARE_WRITE_PROTECTED);
        assert_eq!(current(&after, 0x08)[6] & 0x04, 0);
    }

    #[test]
    fn another_default_of_the_cache_counts_with_the_first_command() {
        let bench = Bench::with(|config| config.write_cache = Some(false));
        let after = bench.reopened_with(|config| config.write_cache = Some(true));
        assert_eq!(current(&bench, 0x08)[6] & 0x04, 0, "it is not in use yet");
        after.settle(&after.nexus);
        assert_eq!(current(&after, 0x08)[6] & 0x04, 0x04);
    }

    #[test]
    fn a_cache_that_the_configuration_turns_off_is_on_until_it_is_empty() {
        let bench = Bench::new();
        bench.store.pause_calls(true);
        let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let running = bench.command(&bench.nexus, &write, &[1; 512]);
        let mut running = pin!(bench.disk.execute(running));
        let mut context = Context::from_waker(Waker::noop());
        assert!(running.as_mut().poll(&mut context).is_pending());
        let after = bench.reopened_with(|config| config.write_cache = Some(false));
        let mut background = pin!(after.disk.run_background(&Unpaced));
        assert!(background.as_mut().poll(&mut context).is_pending(), "it is not in use yet");
        after.settle(&after.nexus);
        for _ in 0..4 {
            assert!(background.as_mut().poll(&mut context).is_pending(), "the write goes on");
        }
        assert_eq!(after.store.syncs(), 1, "of what is in it by now");
        assert_eq!(current(&after, 0x08)[6] & 0x04, 0x04);
        assert_eq!(bench.block_on(running).status, ScsiStatus::Good);
        poll_until(background.as_mut(), || after.store.syncs() == 2);
        let told = after.run(&[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::MODE_PARAMETERS_CHANGED);
        assert_eq!(current(&after, 0x08)[6] & 0x04, 0);
        assert_eq!(after.run(&write, &[2; 512]).status, ScsiStatus::Good);
        assert_eq!(after.store.stable_writes(), 1);
    }

    #[test]
    fn commands_run_while_a_cache_that_is_turned_off_is_emptied() {
        let bench = Bench::new();
        let after = bench.reopened_with(|config| config.write_cache = Some(false));
        after.settle(&after.nexus);
        after.store.pause_calls(true);
        let mut background = pin!(after.disk.run_background(&Unpaced));
        let mut context = Context::from_waker(Waker::noop());
        assert!(background.as_mut().poll(&mut context).is_pending());
        let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let write = after.command(&after.nexus, &write, &[1; 512]);
        let mut write = pin!(after.disk.execute(write));
        assert!((0..4).any(|_| write.as_mut().poll(&mut context).is_ready()), "it waits");
        assert_eq!(after.store.syncs(), 0);
        poll_until(background.as_mut(), || after.store.syncs() == 2);
        after.settle(&after.nexus);
        assert_eq!(current(&after, 0x08)[6] & 0x04, 0);
    }

    #[test]
    fn what_a_cache_that_is_turned_off_has_lost_is_told() {
        let bench = Bench::new();
        let after = bench.reopened_with(|config| config.write_cache = Some(false));
        after.settle(&after.nexus);
        after.store.fail_writes(Some(StoreError::Io));
        let mut background = pin!(after.disk.run_background(&Unpaced));
        poll_until(background.as_mut(), || after.store.syncs() == 2);
        after.store.fail_writes(None);
        after.settle(&after.nexus);
        assert_eq!(current(&after, 0x08)[6] & 0x04, 0);
        let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let told = after.run(&write, &[1; 512]).sense.unwrap();
        assert_eq!(told.asc, Asc::WRITE_ERROR);
        assert_eq!(after.run(&write, &[1; 512]).status, ScsiStatus::Good);
    }

    #[test]
    fn a_reset_turns_no_cache_off_that_is_not_empty() {
        let bench = Bench::with(|config| config.write_cache = Some(false));
        let mut list = current(&bench, 0x08);
        list[6] |= 0x04;
        assert_eq!(select(&bench, list).status, ScsiStatus::Good);
        bench.disk.reset_lun(ResetReason::LunReset);
        bench.settle(&bench.nexus);
        assert_eq!(current(&bench, 0x08)[6] & 0x04, 0x04);
        let mut background = pin!(bench.disk.run_background(&Unpaced));
        poll_until(background.as_mut(), || bench.store.syncs() == 2);
        bench.settle(&bench.nexus);
        assert_eq!(current(&bench, 0x08)[6] & 0x04, 0);
    }

    #[test]
    fn turning_the_cache_off_empties_it() {
        let bench = Bench::new();
        let mut list = current(&bench, 0x08);
        list[6] &= !0x04;
        assert_eq!(select(&bench, list).status, ScsiStatus::Good);
        assert_eq!(bench.store.syncs(), 1);
        bench.run(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512]);
        assert_eq!(bench.store.stable_writes(), 1);
    }

    /// Returns MODE SELECT (6) that turns the cache off, and its list.
    fn cache_off(bench: &Bench) -> ([u8; 6], Vec<u8>) {
        let mut list = current(bench, 0x08);
        (list[0], list[2]) = (0, 0);
        list[6] &= !0x04;
        ([0x15, 0x10, 0, 0, u8::try_from(list.len()).unwrap(), 0], list)
    }

    #[test]
    fn the_cache_is_off_once_the_writes_that_it_served_have_ended() {
        let bench = Bench::new();
        let (cdb, list) = cache_off(&bench);
        bench.store.pause_calls(true);
        let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let write = bench.command(&bench.nexus, &write, &[1; 512]);
        let mut write = pin!(bench.disk.execute(write));
        let mut context = Context::from_waker(Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
        let mut off = pin!(bench.disk.execute(bench.command(&bench.nexus, &cdb, &list)));
        for _ in 0..4 {
            assert!(off.as_mut().poll(&mut context).is_pending(), "the write goes on");
        }
        assert_eq!(bench.store.syncs(), 0);
        assert_eq!(bench.block_on(write).status, ScsiStatus::Good);
        assert_eq!(bench.block_on(off).status, ScsiStatus::Good);
        assert_eq!((bench.store.stable_writes(), bench.store.syncs()), (0, 1));
        assert_eq!(current(&bench, 0x08)[6] & 0x04, 0);
    }

    #[test]
    fn what_another_host_sets_while_the_cache_is_emptied_stays() {
        let bench = Bench::new();
        let other = bench.another_nexus(2);
        let (cdb, list) = cache_off(&bench);
        let mut control = current(&bench, 0x0A);
        (control[0], control[2]) = (0, 0);
        control[8] |= 0x08;
        bench.store.pause_calls(true);
        let mut off = pin!(bench.disk.execute(bench.command(&bench.nexus, &cdb, &list)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(off.as_mut().poll(&mut context).is_pending(), "it waits for the flush");
        let protect = [0x15, 0x10, 0, 0, u8::try_from(control.len()).unwrap(), 0];
        assert_eq!(bench.run_as(&other, &protect, &control).status, ScsiStatus::Good);
        assert_eq!(bench.block_on(off).status, ScsiStatus::Good);
        bench.settle(&bench.nexus);
        assert_eq!(current(&bench, 0x08)[6] & 0x04, 0);
        assert_eq!(current(&bench, 0x0A)[8] & 0x08, 0x08, "write protection");
    }

    /// Returns WCE of the changeable values.
    fn changeable_cache(bench: &Bench) -> u8 {
        bench.data(&bench.run(&[0x1A, 0x08, 0x48, 0, 255, 0], b""))[6] & 0x04
    }

    #[test]
    fn without_a_cache_there_is_none_to_turn_on() {
        let bench = Bench::new();
        assert_eq!(changeable_cache(&bench), 0x04);
        bench.store.set_write_cache(false);
        let bench = bench.restarted();
        bench.settle(&bench.nexus);
        let mut list = current(&bench, 0x08);
        assert_eq!((list[6] & 0x04, changeable_cache(&bench)), (0, 0));
        assert_eq!(select(&bench, list.clone()).status, ScsiStatus::Good);
        list[6] |= 0x04;
        let refused = select(&bench, list).sense.unwrap();
        assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_PARAMETERS);
    }

    #[test]
    fn a_cache_that_the_configuration_claims_stays_on_until_it_is_turned_off() {
        let bench = Bench::with(|config| config.write_cache = Some(true));
        bench.store.set_write_cache(false);
        let mut list = current(&bench, 0x08);
        assert_eq!((list[6] & 0x04, changeable_cache(&bench)), (0x04, 0));
        assert_eq!(select(&bench, list.clone()).status, ScsiStatus::Good);
        list[6] &= !0x04;
        assert_eq!(select(&bench, list.clone()).status, ScsiStatus::Good);
        list[6] |= 0x04;
        let refused = select(&bench, list).sense.unwrap();
        assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_PARAMETERS);
    }

    #[test]
    fn descriptor_sense_is_obeyed() {
        let bench = Bench::new();
        let mut list = current(&bench, 0x0A);
        list[6] |= 0x04;
        assert_eq!(select(&bench, list).status, ScsiStatus::Good);
        let sense = bench.run(&[0xFF], b"").sense.unwrap();
        assert_eq!(sense.encode()[0], 0x72);
    }

    #[test]
    fn a_page_that_the_list_cuts_anywhere_is_an_error_of_the_length() {
        let bench = Bench::new();
        bench.disk.set_thin_space(Some(ThinSpace {
            available_bytes: 1 << 40,
            used_bytes: 1 << 30,
            threshold_bytes: 0,
        }));
        for cdb in [[0x1A, 0x08, 0x0A, 0, 255, 0], [0x1A, 0x08, 0x1C, 2, 255, 0]] {
            let whole = bench.data(&bench.run(&cdb, b""));
            for length in 5..whole.len() {
                let cut = select(&bench, whole[..length].to_vec()).sense.unwrap();
                assert_eq!(cut.asc, Asc::PARAMETER_LIST_LENGTH, "{length} of {}", whole.len());
            }
            assert_eq!(select(&bench, whole).status, ScsiStatus::Good);
        }
    }

    #[test]
    fn wrong_lists_are_refused() {
        let bench = Bench::new();
        let mut list = current(&bench, 0x0A);
        list[7] ^= 0x10;
        assert_eq!(
            select(&bench, list.clone()).sense.unwrap().asc,
            Asc::INVALID_FIELD_IN_PARAMETERS
        );
        list.pop();
        assert_eq!(select(&bench, list).sense.unwrap().asc, Asc::PARAMETER_LIST_LENGTH);
        bench.refused(&[0x15, 0x11, 0, 0, 4, 0], &[0; 4], Asc::INVALID_FIELD_IN_CDB);
        bench.refused(&[0x15, 0x10, 0, 0, 3, 0], &[0; 3], Asc::PARAMETER_LIST_LENGTH);
    }
}
