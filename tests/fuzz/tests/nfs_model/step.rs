//! One step of one client; indices choose among the existing objects.

use super::model::{CLIENTS, SPAN};
use zgate_fuzz::Dice;

/// Names in every directory.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
pub(super) const ATTRIBUTES: [&str; 3] = ["x", "y", "z"];
/// Block size of CLONE in bytes.
pub(super) const BLOCK: u64 = 4096;

/// Index that chooses among any number of objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index(u8);

impl Index {
    pub(super) fn of<T: Copy>(self, all: &[T]) -> T {
        all[usize::from(self.0) % all.len()]
    }
}

/// An offset near the start, a block boundary or the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offset(u8, u8);

impl Offset {
    pub(super) fn within(self, size: usize) -> u64 {
        let (size, by) = (size as u64, u64::from(self.1));
        match self.0 {
            0 => by,
            1 => BLOCK * (by % 4),
            2 => size.saturating_sub(by),
            3 => size,
            _ => size + by,
        }
    }
}

/// Byte range of a lock: from, to.
type Range = (usize, usize);

#[derive(Clone, Debug)]
pub(super) enum Step {
    Make { dir: Index, name: &'static str, link: bool },
    Open { dir: Index, name: &'static str, create: u8, access: u32, deny: u32 },
    Close { file: Index },
    Write { file: Index, at: Offset, len: usize, byte: u8, stable: usize },
    Truncate { file: Index, size: Offset },
    Read { file: Index },
    Remove { dir: Index, name: &'static str },
    Rename { from: Index, old: &'static str, to: Index, new: &'static str },
    Link { node: Index, dir: Index, name: &'static str },
    Lock { file: Index, write: bool, range: Range },
    Unlock { file: Index, range: Range },
    Test { file: Index, write: bool, range: Range },
    Allocate { file: Index, at: Offset, len: u64 },
    Deallocate { file: Index, at: Offset, len: u64 },
    Copy { from: Index, to: Index, at: Offset, into: Offset, count: u64 },
    Clone { from: Index, to: Index, at: u64, into: u64, count: u64 },
    Seek { file: Index, at: Offset, hole: bool },
    SetAttribute { file: Index, key: &'static str, option: usize, value: Vec<u8> },
    RemoveAttribute { file: Index, key: &'static str },
}

/// A step and its client.
pub(super) fn step(dice: &mut Dice<'_>) -> (usize, Step) {
    (dice.below(CLIENTS), one(dice))
}

fn one(dice: &mut Dice<'_>) -> Step {
    match dice.below(48) {
        0..=3 => Step::Make { dir: index(dice), name: name(dice), link: dice.once_in(2) },
        4..=15 => {
            let deny = if dice.once_in(4) { 1 + dice.below(3) as u32 } else { 0 };
            let (dir, name, create) = (index(dice), name(dice), dice.below(3) as u8);
            Step::Open { dir, name, create, access: 1 + dice.below(3) as u32, deny }
        }
        16..=19 => Step::Close { file: index(dice) },
        20..=24 => {
            let (file, at, len) = (index(dice), offset(dice), 1 + dice.below(3000));
            Step::Write { file, at, len, byte: dice.byte() | 1, stable: dice.below(3) }
        }
        25 | 26 => Step::Truncate { file: index(dice), size: offset(dice) },
        27 => Step::Read { file: index(dice) },
        28..=30 => Step::Remove { dir: index(dice), name: name(dice) },
        31..=33 => {
            let (from, to) = (index(dice), index(dice));
            Step::Rename { from, old: name(dice), to, new: name(dice) }
        }
        34 => Step::Link { node: index(dice), dir: index(dice), name: name(dice) },
        35..=37 => Step::Lock { file: index(dice), write: dice.once_in(2), range: range(dice) },
        38 => Step::Unlock { file: index(dice), range: range(dice) },
        39 => Step::Test { file: index(dice), write: dice.once_in(2), range: range(dice) },
        _ => of_later_versions(dice),
    }
}

fn of_later_versions(dice: &mut Dice<'_>) -> Step {
    let file = index(dice);
    match dice.below(7) {
        0 => Step::Allocate { file, at: offset(dice), len: length(dice).max(1) },
        1 => Step::Deallocate { file, at: offset(dice), len: length(dice).max(1) },
        2 => {
            let (from, at, into) = (index(dice), offset(dice), offset(dice));
            let count = if dice.once_in(2) { 0 } else { length(dice) };
            Step::Copy { from, to: file, at, into, count }
        }
        3 => {
            let mut blocks = || BLOCK * dice.below(3) as u64;
            let (at, into, count) = (blocks(), blocks(), blocks());
            Step::Clone { from: index(dice), to: file, at, into, count }
        }
        4 => Step::Seek { file, at: offset(dice), hole: dice.once_in(2) },
        5 => Step::RemoveAttribute { file, key: dice.pick::<&str>(&ATTRIBUTES) },
        _ => {
            let (key, option) = (*dice.pick(&ATTRIBUTES), dice.below(3));
            Step::SetAttribute { file, key, option, value: dice.blob(40) }
        }
    }
}

fn index(dice: &mut Dice<'_>) -> Index {
    Index(dice.byte())
}

fn name(dice: &mut Dice<'_>) -> &'static str {
    dice.pick::<&str>(&NAMES)
}

fn range(dice: &mut Dice<'_>) -> Range {
    let from = dice.below(SPAN);
    (from, (from + 1 + dice.below(SPAN - 1)).min(SPAN))
}

fn offset(dice: &mut Dice<'_>) -> Offset {
    Offset(dice.below(5) as u8, dice.byte())
}

fn length(dice: &mut Dice<'_>) -> u64 {
    match dice.below(4) {
        0 => BLOCK * (1 + dice.below(3) as u64),
        1 => 0,
        _ => 1 + dice.below(6000) as u64,
    }
}
