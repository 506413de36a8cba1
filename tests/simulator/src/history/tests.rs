use super::*;
use crate::executor::SECOND;

const BLOCK: Register = Register { client: 1, block: 2 };

fn history() -> History {
    let executor = Executor::new(1);
    let trace = Arc::new(Trace::new(Arc::clone(&executor)));
    History::new(executor, trace)
}

fn violated(history: &History) -> Option<Invariant> {
    history.violation().map(|violation| violation.invariant)
}

#[test]
fn contents_tell_their_version() {
    assert_eq!(BLOCK.version(&BLOCK.content(7)), Some(7));
    assert_eq!(BLOCK.version(&[0; BLOCK_BYTES]), Some(0));
    let mut torn = BLOCK.content(7);
    torn[BLOCK_BYTES / 2..].copy_from_slice(&BLOCK.content(6)[BLOCK_BYTES / 2..]);
    assert_eq!(BLOCK.version(&torn), None);
    assert_eq!(BLOCK.version(&Register { client: 0, block: 2 }.content(7)), None);
}

#[test]
fn stable_versions_must_survive_and_others_need_not() {
    let history = history();
    for version in 1..=2 {
        assert_eq!(history.next_version(BLOCK), version);
    }
    history.stable(BLOCK, 1, false);
    history.written(BLOCK, 2);
    history.unstable_lost();
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(1));
    assert_eq!(violated(&history), None);
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(0));
    assert_eq!(violated(&history), Some(Invariant::DurableWrite));
}

#[test]
fn what_was_read_does_not_become_older() {
    let history = history();
    history.next_version(BLOCK);
    history.next_version(BLOCK);
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(2));
    assert_eq!(violated(&history), None);
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(1));
    assert_eq!(violated(&history), Some(Invariant::NoOlderData));
}

#[test]
fn zeros_before_an_unmap_do_not_count_as_the_unmap() {
    let history = history();
    for version in 1..=4 {
        assert_eq!(history.next_version(BLOCK), version);
    }
    history.unmapping(BLOCK, 2);
    history.unmapping(BLOCK, 4);
    // The first write is still on its way, and lands.
    history.read(BLOCK, history.expected(BLOCK), &[0; BLOCK_BYTES]);
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(1));
    // The second UNMAP is still on its way: these are the first one's.
    history.read(BLOCK, history.expected(BLOCK), &[0; BLOCK_BYTES]);
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(3));
    history.read(BLOCK, history.expected(BLOCK), &[0; BLOCK_BYTES]);
    assert_eq!(violated(&history), None);
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(3));
    assert_eq!(violated(&history), Some(Invariant::NoOlderData));
}

#[test]
fn a_version_that_nobody_sent_is_refused() {
    let history = history();
    history.read(BLOCK, history.expected(BLOCK), &BLOCK.content(1));
    assert_eq!(violated(&history), Some(Invariant::NoOlderData));
}

#[test]
fn opens_that_exclude_each_other_are_seen() {
    let lasting = 2000 * SECOND;
    for (leases, second, conflict) in [
        ([lasting, lasting], (1, 0), false),
        ([lasting, lasting], (2, 0), true),
        ([lasting, lasting], (1, 1), true),
        ([0, lasting], (2, 0), false),
        ([lasting, 0], (2, 0), false),
    ] {
        let history = history();
        history.leased(0, leases[0]);
        history.leased(1, leases[1]);
        history.shared(0, 0, (1, 2));
        history.shared(1, 0, second);
        assert_eq!(violated(&history).is_some(), conflict, "{leases:?} {second:?}");
    }
}

#[test]
fn a_stale_read_is_wrong_once_the_cached_version_is_written_back() {
    for (reader, written_back, wrong) in [(0, true, true), (0, false, false), (1, true, false)] {
        let history = history();
        history.next_version(BLOCK);
        history.cached(BLOCK, 1);
        let expected = history.expected(BLOCK);
        history.read_beside_cache(reader, (BLOCK, expected), &BLOCK.content(0));
        if written_back {
            history.written_back(BLOCK, 1);
        } else {
            history.uncached(BLOCK);
        }
        assert_eq!(violated(&history) == Some(Invariant::FreshDelegation), wrong);
    }
}

#[test]
fn conflicting_locks_are_seen_while_both_leases_last() {
    let lasting = 2000 * SECOND;
    for (leases, conflict) in
        [([lasting, lasting], true), ([0, lasting], false), ([lasting, 0], false)]
    {
        let history = history();
        history.leased(0, leases[0]);
        history.leased(1, leases[1]);
        history.locked(0, 0, 1, false);
        history.locked(1, 0, 2, true);
        history.locked(1, 1, 1, false);
        history.unlocked(1, 1, 1);
        assert_eq!(violated(&history), None);
        history.locked(1, 0, 1, true);
        assert_eq!(violated(&history).is_some(), conflict);
    }
    let history = history();
    history.leased(0, lasting);
    history.leased(1, lasting);
    history.locked(0, 0, 1, true);
    history.unlocked(0, 0, 1);
    history.locked(1, 0, 1, true);
    assert_eq!(violated(&history), None);
}

#[test]
fn a_torn_block_may_be_made_whole_while_it_is_read() {
    for (begins_torn, wrong) in [(true, false), (false, true)] {
        let history = history();
        for _ in 0..2 {
            history.next_version(BLOCK);
        }
        history.stable(BLOCK, 1, false);
        history.unstable_lost();
        let torn = history.expected(BLOCK);
        history.stable(BLOCK, 2, false);
        let expected = if begins_torn { torn } else { history.expected(BLOCK) };
        let mut content = BLOCK.content(1);
        content[BLOCK_BYTES / 2..].copy_from_slice(&BLOCK.content(2)[BLOCK_BYTES / 2..]);
        history.read(BLOCK, expected, &content);
        assert_eq!(violated(&history).is_some(), wrong);
    }
}
