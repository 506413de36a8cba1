//! Shares of logical units, and of the storages below them, in the commands that one
//! connection runs. Hosts have many disks behind one session: one whose pool hangs must not
//! take the room of the others.
//!
//! A storage may run another command as long as it holds less than twice what is left to the
//! others ([`TIMES_LEFT`]), and a logical unit as long as it holds less than twice what its
//! storage may run then. So the first storage that hangs takes two thirds of the room, the next
//! one two thirds of the rest, and the same holds for logical units of one storage. Units count
//! from their first command on: where a session uses one storage, or one unit of a storage,
//! that one takes what there is.
//!
//! Room is counted in commands and in bytes. Commands that do not get any wait; those of a unit
//! that does not answer, or on storage that does not, wait no longer than
//! [`super::limits::DATA_PATIENCE`].

use super::limits::{MAX_RUNNING, MAX_RUNNING_BYTES, MAX_SHARED_BYTES, TIMES_LEFT};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;
use tokio::time::Instant;
use zgate_scsi::Lun;

/// Place of a logical unit among those of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub lun: Lun,
    /// Number of the storage that the unit fails with.
    pub storage: usize,
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

    /// Returns what may be added to `held` if this is left to it and to others.
    fn share(self, held: Option<&Held>) -> Self {
        let most = Self { commands: self.commands * TIMES_LEFT, bytes: self.bytes * TIMES_LEFT };
        most.without(held.map(|held| held.amount).unwrap_or_default())
    }

    fn has_room(self) -> bool {
        self.commands > 0 && self.bytes > 0
    }
}

/// The commands of one unit, or one storage, that run.
#[derive(Debug, Default)]
struct Held {
    amount: Amount,
    /// Moment at which the last one began or ended; `None` if none runs, and as long as the
    /// session uses one unit.
    quiet_since: Option<Instant>,
}

impl Held {
    fn begin(&mut self, bytes: usize, now: Option<Instant>) {
        self.amount.commands += 1;
        self.amount.bytes += bytes;
        self.quiet_since = now;
    }

    fn end(&mut self, ended: Amount, now: Option<Instant>) {
        self.amount = self.amount.without(ended);
        self.quiet_since = now.filter(|_| self.amount.commands > 0);
    }
}

/// A storage whose units the session uses.
#[derive(Debug, Default)]
struct Storage {
    held: Held,
    /// Number of these units.
    units: usize,
}

/// The commands that one connection runs.
#[derive(Debug)]
pub(crate) struct Shares {
    all: Amount,
    /// Units that have had a command; at most those that the session has seen.
    units: BTreeMap<Lun, Held>,
    storages: BTreeMap<usize, Storage>,
    /// Most commands where units have shares.
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

    /// Notes that a command for this unit has come.
    pub(crate) fn note(&mut self, place: Place) {
        let Entry::Vacant(unit) = self.units.entry(place.lun) else { return };
        unit.insert(Held::default());
        self.storages.entry(place.storage).or_default().units += 1;
        // As long as there was one, nobody looked at the clock.
        let now = Instant::now();
        let storages = self.storages.values_mut().map(|storage| &mut storage.held);
        for held in self.units.values_mut().chain(storages) {
            if held.amount.commands > 0 {
                held.quiet_since.get_or_insert(now);
            }
        }
    }

    /// Returns whether another command for this unit may begin; `None` for no unit.
    pub(crate) fn has_room(&self, place: Option<Place>) -> bool {
        // Nothing keeps those for no unit.
        let Some(place) = place else { return self.all.commands < MAX_RUNNING };
        if !self.are_several() {
            let most = Amount { commands: MAX_RUNNING, bytes: MAX_RUNNING_BYTES };
            return most.without(self.all).has_room();
        }
        let most = Amount { commands: self.window, bytes: MAX_SHARED_BYTES };
        let mut left = most.without(self.all);
        let storage = self.storages.get(&place.storage);
        if self.storages.len() > 1 {
            left = left.share(storage.map(|storage| &storage.held));
        }
        if storage.is_some_and(|storage| storage.units > 1) {
            left = left.share(self.units.get(&place.lun));
        }
        left.has_room()
    }

    /// Counts a command that begins.
    pub(crate) fn begin(&mut self, place: Option<Place>, bytes: usize) {
        self.all.commands += 1;
        self.all.bytes += bytes;
        let Some(place) = place else { return };
        let now = self.now();
        self.units.entry(place.lun).or_default().begin(bytes, now);
        self.storages.entry(place.storage).or_default().held.begin(bytes, now);
    }

    /// Counts a command that has ended.
    pub(crate) fn end(&mut self, place: Option<Place>, bytes: usize) {
        let ended = Amount { commands: 1, bytes };
        self.all = self.all.without(ended);
        let Some(place) = place else { return };
        let now = self.now();
        self.units.entry(place.lun).or_default().end(ended, now);
        self.storages.entry(place.storage).or_default().held.end(ended, now);
    }

    /// Returns the moment from which on the unit, or its storage, has begun and ended no
    /// command for so long; `None` if none of either runs, or there is one unit.
    pub(crate) fn quiet_for(&self, place: Place, time: Duration) -> Option<Instant> {
        let unit = self.units.get(&place.lun);
        let storage = self.storages.get(&place.storage).map(|storage| &storage.held);
        let since = [unit, storage].into_iter().flatten().filter_map(|held| held.quiet_since);
        since.min().map(|since| since + time)
    }

    /// Returns whether the session uses more than one unit.
    fn are_several(&self) -> bool {
        self.units.len() > 1
    }

    /// Returns the time, if it is of use.
    fn now(&self) -> Option<Instant> {
        self.are_several().then(Instant::now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_scsi::limits::MAX_TRANSFER_BYTES;

    const WINDOW: usize = 128;
    const SECOND: Duration = Duration::from_secs(1);

    /// Places of LUNs 0, 1, ... on these storages.
    fn on(storages: &[usize]) -> Vec<Place> {
        let luns = (0..).map(|number| Lun::new(number).unwrap());
        luns.zip(storages).map(|(lun, storage)| Place { lun, storage: *storage }).collect()
    }

    /// Shares of a session that uses these.
    fn shares(places: &[Place]) -> Shares {
        let mut shares = Shares::default();
        shares.set_window(WINDOW);
        places.iter().for_each(|place| shares.note(*place));
        shares
    }

    /// Begins commands while there is room; returns their number.
    fn fill(shares: &mut Shares, place: Place, bytes: usize) -> usize {
        let mut begun = 0;
        while shares.has_room(Some(place)) {
            shares.begin(Some(place), bytes);
            begun += 1;
        }
        begun
    }

    #[test]
    fn one_that_is_alone_takes_what_there_is() {
        let only = on(&[0]);
        assert_eq!(fill(&mut shares(&only), only[0], 1), MAX_RUNNING);
        assert_eq!(fill(&mut shares(&only), only[0], 1 << 20), MAX_RUNNING_BYTES >> 20);
    }

    #[test]
    fn one_that_is_not_used_takes_nothing_from_the_others() {
        let units = on(&[0, 0, 1]);
        for other in [units[1], units[2]] {
            let mut shares = shares(&units[..1]);
            (0..WINDOW).for_each(|_| shares.begin(Some(units[0]), 1));
            assert!(shares.has_room(Some(units[0])));
            shares.note(other);
            assert!(!shares.has_room(Some(units[0])));
        }
    }

    #[test]
    fn a_busy_unit_runs_as_many_bytes_as_one_that_is_alone() {
        for storages in [[0, 0], [0, 1]] {
            let units = on(&storages);
            assert_eq!(fill(&mut shares(&units), units[0], 1 << 20), MAX_RUNNING_BYTES >> 20);
        }
    }

    #[test]
    fn a_unit_leaves_a_third_to_others_of_its_storage() {
        for (bytes, run) in [(1, [86, 28, 10]), (1 << 20, [64, 22, 7])] {
            let units = on(&[0, 0, 0]);
            let mut shares = shares(&units);
            let begun: Vec<_> = units.iter().map(|unit| fill(&mut shares, *unit, bytes)).collect();
            assert_eq!(begun, run);
        }
    }

    #[test]
    fn a_storage_with_many_units_leaves_a_third_to_the_other_one() {
        let storages: Vec<usize> = (0..60).map(|number| number % 30 / 29).collect();
        let units = on(&storages);
        let mut shares = shares(&units);
        let (hung, healthy): (Vec<_>, Vec<_>) =
            units.into_iter().partition(|place| place.storage == 0);
        let taken: usize = hung.into_iter().map(|place| fill(&mut shares, place, 4096)).sum();
        assert_eq!(taken, (WINDOW * 2).div_ceil(3));
        let begun: Vec<_> =
            healthy.into_iter().map(|place| fill(&mut shares, place, 4096)).collect();
        assert_eq!(begun, [24, 4]);
    }

    #[test]
    fn the_longest_commands_of_a_storage_leave_room_for_the_other_one() {
        let longest = MAX_TRANSFER_BYTES as usize;
        for before in [0, 1, longest - 1] {
            let units = on(&[0, 1]);
            let mut shares = shares(&units);
            shares.begin(Some(units[0]), before);
            fill(&mut shares, units[0], longest);
            assert!(shares.has_room(Some(units[1])), "{before} bytes before");
        }
    }

    #[test]
    fn what_is_for_no_unit_waits_for_none() {
        let units = on(&[0, 1]);
        let mut shares = shares(&units);
        for unit in units {
            fill(&mut shares, unit, MAX_TRANSFER_BYTES as usize);
        }
        assert!(shares.has_room(None));
    }

    #[test]
    fn what_ends_makes_room() {
        let units = on(&[0, 0]);
        let mut shares = shares(&units);
        let begun = fill(&mut shares, units[0], 512);
        assert!(!shares.has_room(Some(units[0])) && shares.has_room(Some(units[1])));
        shares.end(Some(units[0]), 512);
        assert!(shares.has_room(Some(units[0])));
        (1..begun).for_each(|_| shares.end(Some(units[0]), 512));
        assert_eq!(shares.all, Amount::default());
        assert_eq!(shares.units[&units[0].lun].amount, Amount::default());
        assert_eq!(shares.storages[&0].held.amount, Amount::default());
        assert_eq!(shares.quiet_for(units[0], SECOND), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_is_quiet_while_none_of_its_commands_begins_or_ends_and_so_is_its_storage() {
        let units = on(&[0, 0]);
        let mut shares = shares(&units);
        let (first, other) = (units[0], units[1]);
        assert_eq!(shares.quiet_for(first, SECOND), None);
        let begun = Instant::now();
        (0..2).for_each(|_| shares.begin(Some(first), 1));
        assert_eq!(shares.quiet_for(first, SECOND), Some(begun + SECOND));
        assert_eq!(shares.quiet_for(other, SECOND), Some(begun + SECOND), "its storage");
        tokio::time::sleep(SECOND).await;
        shares.begin(Some(other), 1);
        shares.end(Some(other), 1);
        let later = Instant::now();
        assert_eq!(shares.quiet_for(first, SECOND), Some(begun + SECOND), "not the unit itself");
        assert_eq!(shares.quiet_for(other, SECOND), Some(later + SECOND));
        shares.end(Some(first), 1);
        assert_eq!(shares.quiet_for(first, SECOND), Some(later + SECOND));
        // One that takes long is no reason to refuse those that come after it.
        tokio::time::sleep(SECOND * 10).await;
        shares.begin(Some(first), 1);
        assert_eq!(shares.quiet_for(first, SECOND), Some(Instant::now() + SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_that_was_alone_is_quiet_from_the_first_command_of_another_one_on() {
        let units = on(&[0, 1]);
        let mut shares = shares(&units[..1]);
        shares.begin(Some(units[0]), 1);
        assert_eq!(shares.quiet_for(units[0], SECOND), None, "it is in nobody's way");
        tokio::time::sleep(SECOND).await;
        shares.note(units[1]);
        assert_eq!(shares.quiet_for(units[0], SECOND), Some(Instant::now() + SECOND));
        assert_eq!(shares.quiet_for(units[1], SECOND), None);
    }
}
