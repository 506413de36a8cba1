//! The index of a file's opens against a list of them, and the table of its
//! locks against a map of bytes: all queries must return the same.

use std::collections::HashMap;
use std::sync::Arc;
use zgate_fuzz::{Dice, target};
use zgate_nfs::v4::tables::ids::StateKey;
use zgate_nfs::v4::tables::owner::OwnerName;
use zgate_nfs::v4::tables::ranges::{Range, RangeTable};
use zgate_nfs::v4::tables::shares::{OpenIndex, Share};
use zgate_nfs_wire::v4::ClientId;

target!(nfs_share_index, 1500, shares);
target!(nfs_lock_ranges, 1500, ranges);

/// An open in the reference model.
struct Listed {
    client: ClientId,
    owner: OwnerName,
    key: StateKey,
    bits: (u32, u32),
}

fn excludes(a: (u32, u32), b: (u32, u32)) -> bool {
    a.0 & b.1 != 0 || a.1 & b.0 != 0
}

fn bits(dice: &mut Dice<'_>) -> (u32, u32) {
    // Denials are rare, so that files fill up.
    (1 + dice.below(3) as u32, if dice.once_in(4) { dice.below(4) as u32 } else { 0 })
}

fn compare(index: &OpenIndex<ClientId>, list: &[Listed]) {
    assert_eq!(index.len(), list.len());
    for access in 1..4 {
        for deny in 0..4 {
            let wanted = (access, deny);
            let found = index.conflict(Share::new(access, deny));
            let right =
                |client| list.iter().any(|o| o.client == client && excludes(o.bits, wanted));
            assert_eq!(found.is_some(), list.iter().any(|o| excludes(o.bits, wanted)));
            assert!(found.is_none_or(right), "a client that is in nobody's way");
        }
    }
    for client in (0..4).map(ClientId) {
        assert_eq!(index.has(client), list.iter().any(|o| o.client == client));
        assert_eq!(index.only_by(client), list.iter().all(|o| o.client == client));
        let written = list.iter().filter(|o| o.bits.0 & 2 != 0).all(|o| o.client == client);
        assert_eq!(index.written_only_by(client), written);
    }
}

/// OPEN, upgrades, OPEN_DOWNGRADE, CLOSE and the removal of a client, in any
/// order.
fn shares(dice: &mut Dice<'_>) {
    let mut index = OpenIndex::default();
    let mut list: Vec<Listed> = Vec::new();
    let mut next = 0u8;
    while !dice.is_spent() {
        let client = ClientId(dice.below(4) as u64);
        let owner: OwnerName = Arc::from(vec![dice.below(6) as u8]);
        let at = list.iter().position(|o| o.client == client && o.owner == owner);
        assert_eq!(index.of_owner(client, &owner), at.map(|at| list[at].key));
        let share = |bits: (u32, u32)| Share::new(bits.0, bits.1);
        match (dice.below(8), at) {
            (0..=3, None) => {
                let bits = bits(dice);
                next = next.wrapping_add(1);
                let key = StateKey([next; 12]);
                index.insert(client, &owner, key, share(bits));
                list.push(Listed { client, owner, key, bits });
            }
            (0..=4, Some(at)) => {
                let (before, after) = (list[at].bits, bits(dice));
                index.reshare(client, list[at].key, share(before), share(after));
                list[at].bits = after;
            }
            (7, _) if dice.once_in(3) => {
                for gone in list.extract_if(.., |o| o.client == client) {
                    index.remove(client, &gone.owner, gone.key, share(gone.bits));
                }
            }
            (_, Some(at)) => {
                let gone = list.swap_remove(at);
                index.remove(client, &owner, gone.key, share(gone.bits));
            }
            (_, None) => {}
        }
        compare(&index, &list);
    }
    assert_eq!(index.is_empty(), list.is_empty());
}

const BYTES: usize = 48;

/// LOCK, LOCKU and the removal of an owner, against a model with one mode for
/// each owner and byte.
fn ranges(dice: &mut Dice<'_>) {
    let mut table = RangeTable::default();
    let mut bytes = vec![HashMap::<u8, bool>::new(); BYTES];
    while !dice.is_spent() {
        let (start, owner) = (dice.below(BYTES), dice.below(4) as u8);
        let end = (start + 1 + dice.below(BYTES / 3)).min(BYTES);
        let range = Range { start: start as u64, last: end as u64 - 1 };
        match dice.below(8) {
            0 => {
                table.clear_owner(&owner);
                bytes.iter_mut().for_each(|byte| {
                    byte.remove(&owner);
                });
            }
            1 | 2 => {
                let outside = |at: Option<usize>| {
                    at.and_then(|at| bytes.get(at)).and_then(|byte| byte.get(&owner))
                };
                let within = bytes[start..end].iter().map(|byte| byte.get(&owner));
                let modes: Vec<_> = std::iter::once(outside(start.checked_sub(1)))
                    .chain(within)
                    .chain([outside(Some(end))])
                    .collect();
                let whole = modes[0].is_some() && modes.iter().all(|mode| *mode == modes[0]);
                assert_eq!(table.splits(&range, &owner), whole);
                table.clear(&range, &owner);
                bytes[start..end].iter_mut().for_each(|byte| {
                    byte.remove(&owner);
                });
            }
            _ => lock(&mut table, &mut bytes, range, owner, dice.below(2) == 1),
        }
        let mut seen = vec![HashMap::<u8, bool>::new(); BYTES];
        for held in table.iter() {
            for byte in &mut seen[held.range.start as usize..=held.range.last as usize] {
                assert!(byte.insert(held.owner, held.write).is_none(), "locked twice");
            }
        }
        assert_eq!(seen, bytes);
        assert_eq!(table.len(), table.iter().count());
        assert_eq!(table.holds(&owner), table.held_by(&owner) > 0);
    }
}

fn lock(
    table: &mut RangeTable<u8>,
    bytes: &mut [HashMap<u8, bool>],
    range: Range,
    owner: u8,
    write: bool,
) {
    let span = range.start as usize..=range.last as usize;
    let blocks = |byte: &HashMap<u8, bool>| byte.iter().any(|(o, w)| *o != owner && (*w || write));
    let blocked = bytes[span.clone()].iter().any(blocks);
    let found = table.conflict(&range, write, &owner);
    assert_eq!(found.is_some(), blocked);
    if let Some(held) = found {
        assert!(held.owner != owner && (held.write || write));
        assert!(held.range.start <= range.last && range.start <= held.range.last);
    } else {
        table.set(range, write, &owner);
        bytes[span].iter_mut().for_each(|byte| {
            byte.insert(owner, write);
        });
    }
}
