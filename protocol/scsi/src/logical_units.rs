//! Logical units of one target, as visible to one initiator.

use crate::disk::Disk;
use crate::disk::config::DiskConfig;
use crate::lun::Lun;
use crate::nexus::{Nexus, NexusId};
use crate::sense::Asc;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zgate_store::block_store::BlockGeometry;

/// A logical unit whose storage cannot be opened now, and what is known of it.
#[derive(Clone, Debug)]
pub struct AbsentUnit {
    pub(crate) config: DiskConfig,
    /// The unit as it was when it was served last, without its storage.
    pub(crate) last: Option<Arc<Disk>>,
}

impl AbsentUnit {
    /// Creates one whose storage had this geometry when it was served last, if that is known
    /// and fits the configuration.
    #[must_use]
    pub fn new(config: DiskConfig, geometry: Option<BlockGeometry>) -> Self {
        let last =
            geometry.and_then(|geometry| Disk::without_storage(config.clone(), geometry).ok());
        Self { config, last: last.map(Arc::new) }
    }

    /// Returns the size in bytes that READ CAPACITY tells meanwhile; none if it is not known.
    #[must_use]
    pub fn told_bytes(&self) -> Option<u64> {
        self.last.as_ref().map(|disk| disk.store().geometry().capacity_bytes)
    }
}

/// A LUN without a disk.
pub(crate) enum Late<'a> {
    /// It is known what it is.
    Known(&'a AbsentUnit),
    /// Nothing is known of it.
    Unknown,
}

/// A map from LUNs to disks. LUN masking is a map with fewer entries.
#[derive(Clone, Debug, Default)]
pub struct LogicalUnits {
    disks: BTreeMap<Lun, Arc<Disk>>,
    /// LUNs whose storage cannot be opened now, and what is known of them.
    becoming_ready: BTreeMap<Lun, AbsentUnit>,
    /// LUNs of which nobody knows yet whether they are there, and what they were.
    unknown: BTreeMap<Lun, Option<Arc<AbsentUnit>>>,
    /// Those of both kinds that have told this initiator another size than they tell now, or none.
    retold: BTreeSet<Lun>,
    is_read_only: bool,
}

impl LogicalUnits {
    /// Creates a map of these logical units.
    #[must_use]
    pub fn new(disks: impl IntoIterator<Item = (Lun, Arc<Disk>)>) -> Self {
        Self { disks: disks.into_iter().collect(), ..Self::default() }
    }

    /// Adds LUNs whose storage cannot be opened now. They are listed and say who they
    /// are, and, if that is known, what they were: Linux gives a disk that it looks at anew
    /// and that does not tell its size the size 0, and fails whatever uses it. Other commands
    /// to them are answered NOT READY, so that a host that used the disk before retries
    /// instead of giving it up.
    ///
    /// PERIPHERAL QUALIFIER is 000b, not 001b ("not connected", SPC-4 §6.6.2): Linux has no
    /// disk for a LUN that it has found with 001b, also when the storage is there later.
    #[must_use]
    pub fn with_becoming_ready(self, becoming_ready: BTreeMap<Lun, AbsentUnit>) -> Self {
        Self { becoming_ready, ..self }
    }

    /// Adds LUNs of which nobody knows yet whether they are there. They are not listed, because
    /// they may be gone for good: a host that searches for disks would find them. Commands
    /// to them are answered NOT READY: the other answer would be final. Those of which it is
    /// known what they were say that, as those whose storage cannot be opened.
    #[must_use]
    pub fn with_unknown(self, unknown: BTreeMap<Lun, Option<Arc<AbsentUnit>>>) -> Self {
        Self { unknown, ..self }
    }

    /// Refuses this initiator every modification of data; others of the same disks
    /// are not affected. The disks report write protection to it (SPC-4 §7.5.7, WP).
    #[must_use]
    pub fn with_read_only(self, is_read_only: bool) -> Self {
        Self { is_read_only, ..self }
    }

    /// Returns whether this initiator may not modify data.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns what is known of a LUN that has no disk now, but may have one later; none for a
    /// LUN that is not supported.
    pub(crate) fn late(&self, lun: Lun) -> Option<Late<'_>> {
        if let Some(unit) = self.becoming_ready.get(&lun) {
            return Some(Late::Known(unit));
        }
        let unit = self.unknown.get(&lun)?.as_deref();
        // Names alone are those of a LUN that is listed.
        Some(unit.filter(|unit| unit.last.is_some()).map_or(Late::Unknown, Late::Known))
    }

    /// Takes the place of `before` for an initiator: remembers which LUNs without a disk have told
    /// it another size there than they tell now, or none.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        let is_retold = |lun: &Lun| {
            let was_there = before.disks.contains_key(lun) || before.late(*lun).is_some();
            before.retold.contains(lun)
                || (was_there && before.told_size(*lun) != self.told_size(*lun))
        };
        let late = self.becoming_ready.keys().chain(self.unknown.keys()).copied();
        let retold = late.filter(is_retold).collect();
        Self { retold, ..self }
    }

    /// Informs `nexus` of the size of each logical unit that had none in `before`, or has told
    /// another one until then (CAPACITY DATA HAS CHANGED): it may have asked.
    pub fn tell_sizes_since(&self, before: &Self, nexus: &Arc<Nexus>) {
        for (lun, disk) in &self.disks {
            let differs =
                || before.retold.contains(lun) || before.told_size(*lun) != self.told_size(*lun);
            if before.late(*lun).is_some() && differs() {
                disk.capacity_differs(nexus);
            }
        }
    }

    /// Returns the number of blocks that a LUN tells, and their size in bytes.
    fn told_size(&self, lun: Lun) -> Option<(u64, u32)> {
        let disk = match self.late(lun) {
            Some(Late::Known(unit)) => unit.last.as_ref(),
            Some(Late::Unknown) => None,
            None => self.disks.get(&lun),
        };
        disk.map(|disk| (disk.capacity_blocks(), disk.block_bytes()))
    }

    /// Returns the disk of a LUN.
    #[must_use]
    pub fn get(&self, lun: Lun) -> Option<&Arc<Disk>> {
        self.disks.get(&lun)
    }

    /// Returns all logical units in the order of their LUNs.
    pub fn iter(&self) -> impl Iterator<Item = (Lun, &Arc<Disk>)> {
        self.disks.iter().map(|(lun, disk)| (*lun, disk))
    }

    /// Returns the LUNs that are listed, ascending.
    #[must_use]
    pub fn numbers(&self) -> Vec<Lun> {
        let listed: BTreeSet<Lun> =
            self.disks.keys().chain(self.becoming_ready.keys()).copied().collect();
        listed.into_iter().collect()
    }

    /// Completes the report of a unit attention to `nexus`: REPORTED LUNS DATA HAS
    /// CHANGED is reported by one logical unit for all of them (SPC-4 §7.8.7, LUICLR).
    /// Locks each of them.
    pub(crate) fn attention_reported(&self, nexus: NexusId, asc: Asc) {
        if asc == Asc::LUNS_CHANGED {
            for disk in self.disks.values() {
                disk.luns_change_is_known(nexus);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AbsentUnit, LogicalUnits};
    use crate::command::Response;
    use crate::lun::Lun;
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::{Bench, nexus};
    use std::sync::Arc;
    use zgate_store::block_store::BlockGeometry;

    const READY: [u8; 6] = [0; 6];
    const REQUEST_SENSE: [u8; 6] = [0x03, 0, 0, 0, 252, 0];
    const REPORT_LUNS: [u8; 12] = [0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

    fn run(bench: &Bench, luns: &LogicalUnits, lun: u8, cdb: &[u8]) -> Response {
        let command = bench.command(&bench.nexus, cdb, b"");
        bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
    }

    #[test]
    fn one_unit_tells_of_changed_luns_for_all() {
        for first in [READY, REQUEST_SENSE] {
            let (bench, second, luns) = Bench::pair();
            let other = second.another_nexus(2);
            for disk in [&bench.disk, &second.disk] {
                disk.reported_luns_changed(bench.nexus.id);
                disk.capacity_changed();
            }
            let told = run(&bench, &luns, 0, &first);
            match told.sense {
                Some(sense) => assert_eq!(sense.asc, Asc::LUNS_CHANGED),
                None => assert_eq!(bench.data(&told)[12..14], [0x3F, 0x0E]),
            }
            // What concerns each unit is told by each.
            for lun in [0, 1] {
                let told = run(&bench, &luns, lun, &READY).sense.unwrap();
                assert_eq!(told.asc, Asc::CAPACITY_CHANGED);
                assert_eq!(run(&bench, &luns, lun, &READY).status, ScsiStatus::Good);
            }
            // The LUNs of another initiator have not changed.
            let told = second.run_as(&other, &READY, b"").sense.unwrap();
            assert_eq!(told.asc, Asc::CAPACITY_CHANGED);
        }
    }

    #[test]
    fn the_list_of_luns_tells_of_their_change_for_all() {
        // By a unit, and by a LUN without one.
        for by in [1, 5] {
            let (bench, second, luns) = Bench::pair();
            for disk in [&bench.disk, &second.disk] {
                disk.reported_luns_changed(bench.nexus.id);
            }
            let listed = bench.data(&run(&bench, &luns, by, &REPORT_LUNS));
            assert_eq!(listed.len(), 24, "two LUNs");
            for lun in [0, 1] {
                let status = run(&bench, &luns, lun, &READY).status;
                assert_eq!(status, ScsiStatus::Good, "LUN {lun} after the list of LUN {by}");
            }
        }
    }

    /// Unit attentions that a nexus gets from a LUN, in their order.
    fn attentions(bench: &Bench, luns: &LogicalUnits, lun: u8, of: u64) -> Vec<Asc> {
        let command = || bench.command(&nexus(of), &READY, b"");
        let run = || bench.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command()));
        std::iter::from_fn(|| run().sense.map(|sense| sense.asc)).collect()
    }

    #[test]
    fn a_size_that_was_not_told_or_was_another_one_is_told_when_the_disk_comes() {
        let told: [fn(&Bench) -> Option<BlockGeometry>; 3] = [
            |_| None,
            |bench| {
                let geometry = bench.disk.store().geometry();
                Some(BlockGeometry { capacity_bytes: 1 << 20, ..geometry })
            },
            |bench| Some(bench.disk.store().geometry()),
        ];
        for (case, told) in told.into_iter().enumerate() {
            let (bench, second, now) = Bench::pair();
            let lun = Lun::new(1).unwrap();
            let unit = AbsentUnit::new(second.disk.config().clone(), told(&second));
            assert_eq!(unit.told_bytes(), told(&second).map(|told| told.capacity_bytes));
            let first = LogicalUnits::new([(Lun::ZERO, Arc::clone(&bench.disk))]);
            let late = [
                first.clone().with_becoming_ready([(lun, unit.clone())].into()),
                first.with_unknown([(lun, Some(Arc::new(unit)))].into()),
            ];
            for (of, before) in (2..).zip(&late) {
                now.tell_sizes_since(before, &nexus(of));
                let mut expected = vec![Asc::POWER_ON_OR_RESET];
                expected.extend((case < 2).then_some(Asc::CAPACITY_CHANGED));
                assert_eq!(attentions(&second, &now, 1, of), expected, "{case}");
                // One that was there all the time has nothing to tell.
                assert_eq!(attentions(&bench, &now, 0, of), [Asc::POWER_ON_OR_RESET]);
            }
        }
    }

    #[test]
    fn a_size_that_is_told_late_is_told_again_when_the_disk_comes() {
        let (bench, second, now) = Bench::pair();
        let lun = Lun::new(1).unwrap();
        let geometry = second.disk.store().geometry();
        let other = BlockGeometry { capacity_bytes: 1 << 20, ..geometry };
        let late = |told: Option<BlockGeometry>| {
            let unit = AbsentUnit::new(second.disk.config().clone(), told);
            let first = LogicalUnits::new([(Lun::ZERO, Arc::clone(&bench.disk))]);
            first.with_becoming_ready([(lun, unit)].into())
        };
        let cases: [(&[Option<BlockGeometry>], bool); 5] = [
            (&[Some(geometry), Some(geometry)], false),
            (&[None, Some(geometry)], true),
            (&[None, Some(geometry), Some(geometry)], true),
            (&[Some(other), Some(geometry)], true),
            (&[Some(geometry), Some(other), Some(geometry)], true),
        ];
        for (of, (told, differs)) in (2..).zip(cases) {
            let maps = told.iter().map(|told| late(*told));
            let last = maps.reduce(|before, next| next.after(&before)).unwrap();
            let here = now.clone().after(&last);
            here.tell_sizes_since(&last, &nexus(of));
            let mut expected = vec![Asc::POWER_ON_OR_RESET];
            expected.extend(differs.then_some(Asc::CAPACITY_CHANGED));
            assert_eq!(attentions(&second, &here, 1, of), expected, "{of}");
            // A later change of the LUNs is none of its size.
            now.clone().after(&here).tell_sizes_since(&here, &nexus(of));
            assert!(attentions(&second, &now, 1, of).is_empty(), "{of}");
        }
        // One whose storage went: the host knows the size that it had.
        for (of, (told, differs)) in (20..).zip([(Some(geometry), false), (Some(other), true)]) {
            let last = late(told).after(&now);
            assert_eq!(last.retold.contains(&lun), differs);
            now.tell_sizes_since(&last, &nexus(of));
            let attentions = attentions(&second, &now, 1, of);
            assert_eq!(attentions.contains(&Asc::CAPACITY_CHANGED), differs, "{of}");
        }
    }
}
