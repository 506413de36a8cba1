//! Shares of logical units, and of the storages below them, in the commands that one
//! connection runs. Hosts have many disks behind one session: one whose pool hangs must not
//! take the room of the others.
//!
//! A storage may run another command as long as it holds less than what is left to the others,
//! and a logical unit as long as it holds less than what is left to its storage then. So the
//! first storage that hangs takes at most half of the room, the next one half of the rest, and
//! the same holds for logical units of one storage. Where a session sees one storage, or one
//! unit of a storage, that one takes what there is.
//!
//! Room is counted in commands and in bytes. Commands that do not get any wait; those of a unit
//! that does not answer, or on storage that does not, wait no longer than
//! [`super::limits::DATA_PATIENCE`].

use super::limits::{MAX_RUNNING, MAX_RUNNING_BYTES};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use zgate_scsi::Lun;

/// Place of a logical unit among those that a session sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    lun: Lun,
    /// Number of the storage that the unit fails with.
    storage: usize,
    /// The session sees other units of the same storage.
    has_siblings: bool,
    /// The session sees other storage.
    has_other_storage: bool,
}

/// Returns the places of logical units, which are given with the numbers of their storages.
/// One that is alone has none.
pub(crate) fn places(units: impl Iterator<Item = (Lun, usize)>) -> BTreeMap<Lun, Place> {
    let units: Vec<_> = units.collect();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, storage) in &units {
        *counts.entry(*storage).or_default() += 1;
    }
    let place = |(lun, storage): (Lun, usize)| {
        let has_siblings = counts.get(&storage).is_some_and(|count| *count > 1);
        let has_other_storage = counts.len() > 1;
        (lun, Place { lun, storage, has_siblings, has_other_storage })
    };
    let is_alone = |place: &Place| !place.has_siblings && !place.has_other_storage;
    units.into_iter().map(place).filter(|(_, place)| !is_alone(place)).collect()
}

/// A number of commands, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    commands: usize,
    bytes: usize,
}

impl Amount {
    fn without(self, other: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(other.commands),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn has_room(self) -> bool {
        self.commands > 0 && self.bytes > 0
    }
}

/// The commands of one unit, or one storage, that run.
#[derive(Debug)]
struct Held {
    amount: Amount,
    /// Moment at which the first of them began, or the last one ended.
    quiet_since: Instant,
}

/// The commands that one connection runs.
#[derive(Debug)]
pub(crate) struct Shares {
    all: Amount,
    units: BTreeMap<Lun, Held>,
    storages: BTreeMap<usize, Held>,
    /// Most commands with a place.
    window: usize,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            all: Amount::default(),
            units: BTreeMap::new(),
            storages: BTreeMap::new(),
            window: MAX_RUNNING,
        }
    }
}

impl Shares {
    /// Sets the number of commands that the connection may have in the command window.
    pub(crate) fn set_window(&mut self, commands: usize) {
        self.window = commands.min(MAX_RUNNING);
    }

    /// Returns whether another command may begin that has this place. Those for no unit, and
    /// those for the only one, have none.
    pub(crate) fn has_room(&self, place: Option<Place>) -> bool {
        let commands = if place.is_some() { self.window } else { MAX_RUNNING };
        let mut left = Amount { commands, bytes: MAX_RUNNING_BYTES }.without(self.all);
        let Some(place) = place else { return left.has_room() };
        if place.has_other_storage {
            left = left.without(amount(self.storages.get(&place.storage)));
        }
        if place.has_siblings {
            left = left.without(amount(self.units.get(&place.lun)));
        }
        left.has_room()
    }

    /// Counts a command that begins.
    pub(crate) fn begin(&mut self, place: Option<Place>, bytes: usize) {
        self.all.commands += 1;
        self.all.bytes += bytes;
        let Some(place) = place else { return };
        let now = Instant::now();
        begin(self.units.entry(place.lun).or_insert_with(|| Held::new(now)), bytes);
        begin(self.storages.entry(place.storage).or_insert_with(|| Held::new(now)), bytes);
    }

    /// Counts a command that has ended.
    pub(crate) fn end(&mut self, place: Option<Place>, bytes: usize) {
        let ended = Amount { commands: 1, bytes };
        self.all = self.all.without(ended);
        let Some(place) = place else { return };
        let now = Instant::now();
        end(&mut self.units, place.lun, ended, now);
        end(&mut self.storages, place.storage, ended, now);
    }

    /// Returns the moment at which the unit, or its storage, has not answered for so long;
    /// `None` if no command of either runs.
    pub(crate) fn quiet_for(&self, place: Place, time: Duration) -> Option<Instant> {
        let held = [self.units.get(&place.lun), self.storages.get(&place.storage)];
        held.into_iter().flatten().map(|held| held.quiet_since + time).min()
    }
}

impl Held {
    fn new(now: Instant) -> Self {
        Self { amount: Amount::default(), quiet_since: now }
    }
}

fn amount(held: Option<&Held>) -> Amount {
    held.map(|held| held.amount).unwrap_or_default()
}

fn begin(held: &mut Held, bytes: usize) {
    held.amount.commands += 1;
    held.amount.bytes += bytes;
}

/// Takes a command from what `key` holds, and forgets it if it was the last one.
fn end<K: Ord>(all: &mut BTreeMap<K, Held>, key: K, ended: Amount, now: Instant) {
    let Some(held) = all.get_mut(&key) else { return };
    held.amount = held.amount.without(ended);
    held.quiet_since = now;
    if held.amount.commands == 0 {
        all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_scsi::limits::MAX_TRANSFER_BYTES;

    const WINDOW: usize = 128;

    fn lun(number: u16) -> Lun {
        Lun::new(number).unwrap()
    }

    /// Places of LUNs 0, 1, ... on these storages.
    fn on(storages: &[usize]) -> Vec<Option<Place>> {
        let places = places((0..).map(lun).zip(storages.iter().copied()));
        (0..).zip(storages).map(|(number, _)| places.get(&lun(number)).copied()).collect()
    }

    fn shares() -> Shares {
        let mut shares = Shares::default();
        shares.set_window(WINDOW);
        shares
    }

    /// Begins commands while there is room; returns their number.
    fn fill(shares: &mut Shares, place: Option<Place>, bytes: usize) -> usize {
        let mut begun = 0;
        while shares.has_room(place) {
            shares.begin(place, bytes);
            begun += 1;
        }
        begun
    }

    #[test]
    fn one_that_is_alone_takes_what_there_is() {
        let only = on(&[0]);
        assert!(only[0].is_none());
        assert_eq!(fill(&mut shares(), only[0], 1), MAX_RUNNING);
        assert_eq!(fill(&mut shares(), only[0], 1 << 20), MAX_RUNNING_BYTES >> 20);
    }

    #[test]
    fn a_unit_leaves_half_to_others_of_its_storage() {
        for (bytes, all) in [(1, WINDOW), (1 << 20, MAX_RUNNING_BYTES >> 20)] {
            let (units, mut shares) = (on(&[0, 0, 0]), shares());
            assert_eq!(fill(&mut shares, units[0], bytes), all / 2);
            assert_eq!(fill(&mut shares, units[1], bytes), all / 4);
            assert_eq!(fill(&mut shares, units[2], bytes), all / 8);
        }
    }

    #[test]
    fn a_storage_with_many_units_leaves_half_to_the_other_one() {
        let storages: Vec<usize> = (0..60).map(|number| number % 30 / 29).collect();
        let (units, mut shares) = (on(&storages), shares());
        let (hung, healthy): (Vec<_>, Vec<_>) =
            units.into_iter().partition(|place| place.unwrap().storage == 0);
        let taken: usize = hung.into_iter().map(|place| fill(&mut shares, place, 4096)).sum();
        assert!((WINDOW / 2 - 1..=WINDOW / 2).contains(&taken), "{taken} commands");
        let [first, second] = healthy[..] else { panic!("two units") };
        assert!(fill(&mut shares, first, 4096) > WINDOW / 8);
        assert!(fill(&mut shares, second, 4096) > 0);
    }

    #[test]
    fn the_longest_commands_of_a_storage_leave_room_for_the_other_one() {
        let longest = MAX_TRANSFER_BYTES as usize;
        for before in [0, 1, longest - 1] {
            let (units, mut shares) = (on(&[0, 1]), shares());
            shares.begin(units[0], before);
            fill(&mut shares, units[0], longest);
            assert!(shares.has_room(units[1]), "{before} bytes before");
        }
    }

    #[test]
    fn what_ends_makes_room_and_is_forgotten() {
        let (units, mut shares) = (on(&[0, 0]), shares());
        let begun = fill(&mut shares, units[0], 512);
        assert!(!shares.has_room(units[0]) && shares.has_room(units[1]));
        shares.end(units[0], 512);
        assert!(shares.has_room(units[0]));
        (1..begun).for_each(|_| shares.end(units[0], 512));
        assert_eq!(shares.all, Amount::default());
        assert!(shares.units.is_empty() && shares.storages.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_is_quiet_until_a_command_of_it_ends_and_its_storage_until_any_does() {
        let (units, mut shares) = (on(&[0, 0]), shares());
        let second = Duration::from_secs(1);
        let [Some(first), Some(other)] = units[..] else { panic!("two units") };
        assert_eq!(shares.quiet_for(first, second), None);
        let begun = Instant::now();
        (0..2).for_each(|_| shares.begin(units[0], 1));
        assert_eq!(shares.quiet_for(first, second), Some(begun + second));
        assert_eq!(shares.quiet_for(other, second), Some(begun + second), "its storage");
        tokio::time::sleep(second).await;
        shares.begin(units[1], 1);
        shares.end(units[1], 1);
        let later = Instant::now();
        assert_eq!(shares.quiet_for(first, second), Some(begun + second), "not the unit itself");
        assert_eq!(shares.quiet_for(other, second), Some(later + second));
        shares.end(units[0], 1);
        assert_eq!(shares.quiet_for(first, second), Some(later + second));
    }
}
