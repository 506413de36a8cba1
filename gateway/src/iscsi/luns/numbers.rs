//! Numbers of zvols that are logical units. A zvol keeps its number while it exists,
//! also when it is renamed or zgate restarts.

use super::catalog::{Catalog, Target};
use super::state_files::{IfLate, StateFiles};
use super::zvol_identity::identity;
use crate::exports::plan::Volume;
use crate::iscsi::settings::{IscsiSettings, TargetSettings};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use zgate_config::{DirectChoice, LunConfig, VolumesConfig};
use zgate_iscsi::names::IscsiName;

/// Largest LUN (SAM-5 flat space addressing).
const MAX_LUN: u16 = 0x3fff;

/// Numbers assigned so far, by the zvols' guids.
type Numbers = BTreeMap<u64, u16>;

/// Files of numbers that settings with zvols rely on.
#[derive(Debug, Default)]
pub(crate) struct NumberFiles {
    /// Targets whose numbers have changed.
    changed: Vec<ChangedNumbers>,
    /// Targets whose file cannot be used.
    faults: Vec<io::Error>,
}

/// Numbers of a target that have changed.
#[derive(Debug)]
struct ChangedNumbers {
    target: IscsiName,
    /// New content of its file.
    text: String,
    /// Numbers that a zvol has which had another one before, or none.
    new: BTreeSet<u16>,
}

impl NumberFiles {
    /// Stores the numbers that have changed, of all targets or of none. It must have succeeded
    /// before the settings take effect, and settings that take no effect must change nothing:
    /// the zvols in use would have other numbers at the next search. `if_late`: those that have
    /// been given up because the disk has not answered in time.
    ///
    /// # Errors
    /// The file and the reason.
    pub(crate) fn store(&self, files: &StateFiles, if_late: IfLate) -> io::Result<()> {
        let changed = self.changed.iter();
        let texts = changed.map(|one| (one.target.as_str().to_owned(), one.text.clone()));
        files.put_lun_numbers(texts.collect(), if_late)
    }

    /// Returns the settings without the zvols whose numbers are not stored.
    pub(crate) fn without_new(&self, mut settings: IscsiSettings) -> IscsiSettings {
        for ChangedNumbers { target: name, new, .. } in &self.changed {
            for target in settings.targets.iter_mut().filter(|target| target.name == *name) {
                target.followed.retain(|number| !new.contains(number));
                target.luns.retain(|lun| !new.contains(&lun.number));
            }
        }
        settings
    }

    /// Requires that all files can be used.
    ///
    /// # Errors
    /// The first target whose file cannot be used, the reason and the next step.
    pub(crate) fn require_all(&self) -> io::Result<()> {
        again(self.faults.first())
    }

    /// Requires that the disk of the state directory has answered for all files.
    ///
    /// # Errors
    /// The first target whose numbers are not known so, and the next step.
    pub(crate) fn require_answers(&self) -> io::Result<()> {
        again(self.faults.iter().find(|fault| fault.kind() == io::ErrorKind::TimedOut))
    }

    /// Logs the files that cannot be used.
    pub(crate) fn report(&self) {
        for error in &self.faults {
            tracing::error!(%error, "no further zvol becomes a LUN of this target");
        }
    }
}

/// Returns a fault once more.
fn again(fault: Option<&io::Error>) -> io::Result<()> {
    fault.map_or(Ok(()), |fault| Err(io::Error::new(fault.kind(), fault.to_string())))
}

/// Adds the zvols to the settings as logical units. One without a device is one only
/// if it has a number: initiators know it then, and its device appears a moment after
/// the import of its pool. Others may never have one (`volmode=none`).
///
/// Nothing is stored: that is for [`NumberFiles::store`] to do. If the numbers of a target
/// cannot be read, only its zvols that are logical units at `present` are added: others
/// might get the number by which initiators know another disk.
pub(crate) fn with_volumes(
    settings: &IscsiSettings,
    volumes: &[Volume],
    state_files: &StateFiles,
    present: &Catalog,
) -> (IscsiSettings, NumberFiles) {
    let (mut settings, mut files) = (settings.clone(), NumberFiles::default());
    for (index, target) in settings.targets.iter_mut().enumerate() {
        let mine: Vec<_> = volumes.iter().filter(|volume| volume.target == index).collect();
        match stored(&target.name, state_files) {
            Ok(known) => {
                let numbers = number(target, &mine, &known);
                if numbers != known {
                    let (target, text) = (target.name.clone(), write(&numbers));
                    let is_new = |guid: &u64, number: &u16| known.get(guid) != Some(number);
                    let new = numbers.iter().filter(|&(guid, number)| is_new(guid, number));
                    let new = new.map(|(_, number)| *number).collect();
                    files.changed.push(ChangedNumbers { target, text, new });
                }
            }
            Err(error) => {
                if let Some(before) = present.targets.get(&target.name) {
                    keep(target, &mine, before);
                }
                files.faults.push(error);
            }
        }
    }
    (settings, files)
}

/// Reads the numbers of a target's zvols.
///
/// # Errors
/// The target, the file, the reason and the next step.
fn stored(target: &IscsiName, files: &StateFiles) -> io::Result<Numbers> {
    let numbers = files.lun_numbers(target.as_str()).and_then(|text| {
        read(&text).map_err(|fault| {
            let path = files.dir.luns_path(target.as_str());
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {fault}", path.display()))
        })
    });
    numbers.map_err(|error| {
        let next_step = match error.kind() {
            // The error has one of its own.
            io::ErrorKind::TimedOut => "",
            _ => {
                "; restore the file, or remove it if hosts may find these disks under other LUNs, \
                 then `zgate reload`"
            }
        };
        let reason =
            format!("target {target}: the numbers of its zvols cannot be used: {error}{next_step}");
        io::Error::new(error.kind(), reason)
    })
}

/// Returns the numbers that the configuration gives to other logical units.
fn fixed_numbers(target: &TargetSettings) -> BTreeSet<u16> {
    target.luns.iter().map(|lun| lun.number).collect()
}

/// Adds zvols to a target. Returns the numbers that are assigned then.
fn number(target: &mut TargetSettings, volumes: &[&Volume], known: &Numbers) -> Numbers {
    let is_served = |volume: &&&Volume| known.contains_key(&volume.guid) || volume.device.exists();
    let served: Vec<&Volume> = volumes.iter().filter(is_served).copied().collect();
    let numbers = if volumes.is_empty() {
        known.clone()
    } else {
        assign(known, &served, &fixed_numbers(target))
    };
    add(target, &served, |volume| numbers.get(&volume.guid).copied());
    // They are gone, or their pool has not answered yet.
    let present: BTreeSet<u16> = target.luns.iter().map(|lun| lun.number).collect();
    let unseen = numbers.iter().filter(|(_, number)| !present.contains(number));
    let unseen = unseen.map(|(guid, number)| (*number, unseen_lun(target, *guid, *number)));
    target.unseen = unseen.collect();
    numbers
}

/// Returns the logical unit that a zvol would be, as far as initiators are told, whatever its name;
/// none if that depends on the entry that its name matches.
fn unseen_lun(target: &TargetSettings, guid: u64, number: u16) -> Option<LunConfig> {
    let lun = |template: &VolumesConfig| {
        let (serial, naa) = identity(guid);
        let unit = template.unit(number, PathBuf::new(), serial, naa);
        let direct = DirectChoice::default();
        LunConfig { direct, iops_max: None, bytes_per_second_max: None, ..unit }
    };
    let mut luns = target.patterns.iter().map(lun);
    let first = luns.next()?;
    luns.all(|other| other == first).then_some(first)
}

/// Adds those zvols to a target that it has at present, by the same numbers.
fn keep(target: &mut TargetSettings, volumes: &[&Volume], present: &Target) {
    let fixed = fixed_numbers(target);
    let units = present.units.values().map(|unit| &unit.config);
    let all: Vec<&LunConfig> =
        units.chain(present.absent.values().map(|absent| &absent.config)).collect();
    add(target, volumes, |volume| {
        let naa = Some(identity(volume.guid).1);
        let number = all.iter().find(|lun| lun.naa == naa)?.number;
        (present.settings.followed.contains(&number) && !fixed.contains(&number)).then_some(number)
    });
    target.unseen.clone_from(&present.settings.unseen);
}

/// Adds the zvols that have a number to a target.
fn add(
    target: &mut TargetSettings,
    volumes: &[&Volume],
    number_of: impl Fn(&Volume) -> Option<u16>,
) {
    for volume in volumes {
        let Some(number) = number_of(volume) else { continue };
        let (serial, naa) = identity(volume.guid);
        target.followed.insert(number);
        target.luns.push(volume.template.unit(number, volume.device.clone(), serial, naa));
    }
}

/// Assigns the lowest free number to each zvol without one. Zvols that are
/// absent keep theirs: a pool may return, and initiators remember disks by
/// their numbers. Only if no number is free, those are assigned again.
fn assign(known: &Numbers, volumes: &[&Volume], fixed: &BTreeSet<u16>) -> Numbers {
    let mut numbers = known.clone();
    // A number that the configuration gives to something else now is lost.
    numbers.retain(|_, number| !fixed.contains(number));
    for volume in volumes {
        if numbers.contains_key(&volume.guid) {
            continue;
        }
        if free(&numbers, fixed, volume).is_none() {
            numbers.retain(|guid, _| volumes.iter().any(|volume| volume.guid == *guid));
        }
        match free(&numbers, fixed, volume) {
            Some(number) => {
                numbers.insert(volume.guid, number);
            }
            None => tracing::error!(zvol = %volume.name, "no number is free for this zvol"),
        }
    }
    numbers
}

fn free(numbers: &Numbers, fixed: &BTreeSet<u16>, volume: &Volume) -> Option<u16> {
    let taken: BTreeSet<u16> = numbers.values().chain(fixed).copied().collect();
    (volume.template.first_number..=MAX_LUN).find(|number| !taken.contains(number))
}

/// Reads the content of a file of numbers.
///
/// # Errors
/// The line that is damaged, or contradicts another one: whoever went on without it could
/// serve a zvol under the number of another one.
fn read(text: &str) -> Result<Numbers, String> {
    let (mut numbers, mut taken) = (Numbers::new(), BTreeSet::new());
    for (index, line) in text.lines().enumerate() {
        let fault = |why: &str| format!("line {} ({line:?}) {why}", index + 1);
        let words = line.split_once(' ');
        let pair = words.and_then(|(number, guid)| {
            Some((number.parse::<u16>().ok()?, guid.parse::<u64>().ok()?))
        });
        let (number, guid) = pair.ok_or_else(|| fault("is not a number and a guid"))?;
        if number > MAX_LUN {
            return Err(fault("has a number that no LUN can have"));
        }
        if !taken.insert(number) {
            return Err(fault("has the number of another zvol"));
        }
        if numbers.insert(guid, number).is_some() {
            return Err(fault("has a zvol that has another number"));
        }
    }
    Ok(numbers)
}

fn write(numbers: &Numbers) -> String {
    numbers.iter().map(|(guid, number)| format!("{number} {guid}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::open::Opening;
    use crate::iscsi::luns::catalog::LunMap;
    use crate::iscsi::tests::command;
    use crate::state_dir::StateDir;
    use std::sync::Arc;
    use zgate_scsi::{Asc, LogicalUnits, Lun, Response};
    use zgate_store::Payload;

    const TARGET: &str = "iqn.2026-11.test:vm";
    const CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    /// Record of a zvol of 1 GiB that was served.
    const RECORD: &str = "capacity_bytes 1073741824\nphysical_block_bytes 16384\n\
        optimal_io_bytes 1048576\ndiscard_granularity_bytes 16384\ndiscard_zeroes true\n\
        write_cache true\nread_only false\n";

    fn files(dir: &std::path::Path) -> StateFiles {
        StateFiles::start(Arc::new(StateDir::open(dir).unwrap())).unwrap()
    }

    fn volume(guid: u64, first_number: u16) -> Volume {
        let template = format!("dataset = \"llm/vm/*\"\nfirst_number = {first_number}\n");
        Volume {
            target: 0,
            guid,
            name: format!("llm/vm/d{guid}").parse().unwrap(),
            device: "/dev/null".into(),
            template: toml::from_str(&template).unwrap(),
        }
    }

    #[test]
    fn numbers_stay_and_skip_those_in_use() {
        let fixed = BTreeSet::from([0, 3]);
        let (a, b, c) = (volume(70, 2), volume(71, 2), volume(72, 2));
        let first = assign(&Numbers::new(), &[&a, &b], &fixed);
        assert_eq!(first, Numbers::from([(70, 2), (71, 4)]));
        // The first zvol is absent; its number is not assigned to another.
        let second = assign(&read(&write(&first)).unwrap(), &[&b, &c], &fixed);
        assert_eq!(second, Numbers::from([(70, 2), (71, 4), (72, 5)]));
        let full = assign(&Numbers::new(), &[&volume(1, MAX_LUN), &volume(2, MAX_LUN)], &fixed);
        assert_eq!(full.len(), 1);
        // The zvol with the last number was destroyed: the number is assigned
        // again.
        let again = assign(&full, &[&volume(2, MAX_LUN)], &fixed);
        assert_eq!(again, Numbers::from([(2, MAX_LUN)]));
    }

    #[test]
    fn a_zvol_without_a_device_is_a_unit_if_initiators_know_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = files(dir.path());
        let found = |volume: &Volume| found(&state, std::slice::from_ref(volume));
        let missing = |guid| Volume { device: "/nosuch/zvol".into(), ..volume(guid, 4) };
        assert!(found(&missing(9)).is_empty());
        assert_eq!(found(&volume(9, 4))[0].number, 4);
        let again = found(&missing(9));
        assert_eq!((again[0].number, again[0].path.to_str()), (4, Some("/nosuch/zvol")));
        assert!(found(&missing(8)).is_empty());
    }

    /// A target without zvols.
    fn settings() -> IscsiSettings {
        settings_with("")
    }

    /// The same with further entries.
    fn settings_with(entries: &str) -> IscsiSettings {
        let text = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\n\
             allow_any_initiator = true\n[[target.volumes]]\ndataset = \"llm/vm/*\"\n{entries}"
        );
        let config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
        crate::iscsi::settings::settings(&config).unwrap()
    }

    /// Returns the logical units of the target with these zvols, whose numbers are stored.
    fn found(state: &StateFiles, volumes: &[Volume]) -> Vec<LunConfig> {
        let (settings, files) = with_volumes(&settings(), volumes, state, &Catalog::default());
        files.require_all().unwrap();
        files.store(state, IfLate::Keep).unwrap();
        settings.targets[0].luns.clone()
    }

    /// The target after a restart, if zvol 9 was LUN 4 before, and this is its record.
    fn after_restart(volumes: &[Volume], record: Option<&str>) -> Arc<Target> {
        let dir = tempfile::tempdir().unwrap();
        let gateway = crate::nfs::tcp::tests::gateway_with(dir.path(), "");
        let state = files(&dir.path().join("numbers"));
        found(&state, &[volume(9, 4)]);
        let (settings, _) = with_volumes(&settings(), volumes, &state, &Catalog::default());
        let iscsi = &gateway.shared.iscsi;
        let (home, opened) = (&iscsi.home, &iscsi.volumes);
        if let Some(record) = record {
            home.state_files.dir.put_geometry(&identity(9).1.to_string(), record).unwrap();
        }
        let catalog = Catalog::default().next(&settings, home, opened, Opening::Start).unwrap();
        Arc::clone(catalog.targets.values().next().unwrap())
    }

    /// LUNs that a host sees of it.
    fn seen(volumes: &[Volume], record: Option<&str>) -> LunMap {
        let host = IscsiName::parse("iqn.2026-11.test:host").unwrap();
        after_restart(volumes, record).lun_map(&host, None)
    }

    /// Sends a command to LUN 4.
    fn run(luns: &LogicalUnits, cdb: &[u8]) -> Response {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(luns.execute([0, 4, 0, 0, 0, 0, 0, 0], command(cdb)))
    }

    /// Sends TEST UNIT READY to LUN 4.
    fn sense(luns: &LogicalUnits) -> Asc {
        run(luns, &[0; 6]).sense.unwrap().asc
    }

    #[test]
    fn a_zvol_that_waits_for_its_device_at_the_start_is_becoming_ready() {
        let seen = seen(&[Volume { device: "/nosuch/zvol".into(), ..volume(9, 4) }], None);
        let lun = BTreeMap::from([(Lun::new(4).unwrap(), None)]);
        assert_eq!((seen.absent, seen.unseen), (lun, BTreeSet::new()));
        assert_eq!(seen.luns.numbers(), [Lun::new(4).unwrap()]);
        assert_eq!(sense(&seen.luns), Asc::BECOMING_READY);
    }

    #[test]
    fn a_zvol_of_a_pool_that_has_not_answered_yet_is_becoming_ready() {
        let seen = seen(&[], None);
        assert_eq!(seen.unseen, BTreeSet::from([Lun::new(4).unwrap()]));
        assert!(seen.awaiting.numbers().is_empty(), "it may be gone");
        assert_eq!(sense(&seen.awaiting), Asc::BECOMING_READY);
        assert_eq!(run(&seen.awaiting, &CAPACITY_10).sense.unwrap().asc, Asc::BECOMING_READY);
        // When the patience with pools has ended.
        assert_eq!(sense(&seen.luns), Asc::LUN_NOT_SUPPORTED);
    }

    #[test]
    fn a_zvol_of_a_pool_that_has_not_answered_yet_tells_what_it_was() {
        let seen = seen(&[], Some(RECORD));
        match run(&seen.awaiting, &CAPACITY_10).data_in {
            // The last block of 1 GiB, and 512 bytes for each.
            Some(Payload::Bytes(told)) => assert_eq!(told[..], [0, 0x1F, 0xFF, 0xFF, 0, 0, 2, 0]),
            other => panic!("{other:?}"),
        }
        assert_eq!(sense(&seen.awaiting), Asc::BECOMING_READY);
        assert!(seen.awaiting.numbers().is_empty(), "it may be gone");
        assert_eq!(run(&seen.luns, &CAPACITY_10).sense.unwrap().asc, Asc::LUN_NOT_SUPPORTED);
    }

    #[test]
    fn a_zvol_without_a_name_tells_only_what_all_entries_say() {
        let lun = |entries: &str| unseen_lun(&settings_with(entries).targets[0], 9, 4);
        let (serial, naa) = identity(9);
        let found = lun("").unwrap();
        assert_eq!((found.number, found.serial, found.naa), (4, Some(serial), Some(naa)));
        let entry = "[[target.volumes]]\ndataset = \"slow/*\"\n";
        assert!(lun(&format!("{entry}first_number = 9\niops_max = 50\n")).is_some());
        assert_eq!(lun(&format!("{entry}block_bytes = 4096\n")), None);
    }

    #[test]
    fn a_login_waits_for_a_pool_that_may_have_all_disks_of_the_target() {
        let target = after_restart(&[], None);
        assert!(target.is_absent_to(None, true));
        assert!(!target.is_absent_to(None, false), "they are gone");
        // One that waits for its device is waited for in any case.
        let target = after_restart(&[Volume { device: "/no".into(), ..volume(9, 4) }], None);
        assert!(target.is_absent_to(None, true) && target.is_absent_to(None, false));
    }

    #[test]
    fn numbers_are_kept_in_the_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = files(dir.path());
        assert_eq!(found(&state, &[volume(9, 4)])[0].number, 4);
        let again = found(&state, &[volume(8, 0), volume(9, 0)]);
        let again: Vec<u16> = again.iter().map(|lun| lun.number).collect();
        assert_eq!(again, [0, 4]);
    }

    #[test]
    fn numbers_change_only_when_they_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let state = files(dir.path());
        let (_, files) = with_volumes(&settings(), &[volume(9, 4)], &state, &Catalog::default());
        assert_eq!(state.lun_numbers(TARGET).unwrap(), "");
        files.store(&state, IfLate::PutBack).unwrap();
        assert_eq!(state.lun_numbers(TARGET).unwrap(), "4 9\n");
    }

    #[test]
    fn zvols_whose_numbers_are_not_stored_are_left_out_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let state = files(dir.path());
        found(&state, &[volume(9, 4)]);
        let all = [volume(8, 4), volume(9, 4)];
        let (with, files) = with_volumes(&settings(), &all, &state, &Catalog::default());
        let numbers = |of: &IscsiSettings| {
            let target = &of.targets[0];
            let luns: BTreeSet<u16> = target.luns.iter().map(|lun| lun.number).collect();
            assert_eq!(target.followed, luns);
            luns
        };
        assert_eq!(numbers(&with), BTreeSet::from([4, 5]));
        assert_eq!(numbers(&files.without_new(with)), BTreeSet::from([4]));
    }

    #[test]
    fn numbers_of_a_disk_that_does_not_answer_are_not_said_to_be_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let state = files(dir.path());
        let _hangs = state.hang(false);
        let (_, files) = with_volumes(&settings(), &[volume(9, 4)], &state, &Catalog::default());
        let said = files.require_answers().unwrap_err().to_string();
        assert!(said.contains("its disk has not answered"), "{said}");
        assert!(said.contains(TARGET) && !said.contains("remove"), "{said}");
    }

    #[test]
    fn a_line_that_is_damaged_or_contradicts_another_one_is_an_error() {
        assert_eq!(read("").unwrap(), Numbers::new());
        assert_eq!(read("4 9\n5 10\n").unwrap(), Numbers::from([(9, 4), (10, 5)]));
        for (text, line) in [
            ("4", 1),
            ("4 9 \n", 1),
            ("4 9\n\n", 2),
            ("4 9\nx 10\n", 2),
            ("4 9\n4 10\n", 2),
            ("4 9\n5 9\n", 2),
            ("16384 9\n", 1),
            ("70000 9\n", 1),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(&format!("line {line} ")), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_damaged_file_is_kept_and_its_target_gets_no_zvol() {
        let dir = tempfile::tempdir().unwrap();
        let state = files(dir.path());
        for damaged in ["4 9\n4 10\n", "4 9 \n", "4"] {
            state.dir.put_lun_numbers(&[(TARGET, damaged)]).unwrap();
            let (settings, files) =
                with_volumes(&settings(), &[volume(9, 4)], &state, &Catalog::default());
            files.store(&state, IfLate::Keep).unwrap();
            assert_eq!(state.lun_numbers(TARGET).unwrap(), damaged);
            assert!(settings.targets[0].luns.is_empty());
            let said = files.require_all().unwrap_err().to_string();
            let path = state.dir.luns_path(TARGET);
            for part in [TARGET, path.to_str().unwrap(), "line ", "`zgate reload`"] {
                assert!(said.contains(part), "{said}");
            }
        }
    }

    #[test]
    fn zvols_that_are_served_stay_while_their_numbers_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = crate::nfs::tcp::tests::gateway_with(dir.path(), "");
        let iscsi = &gateway.shared.iscsi;
        let (state, home) = (&iscsi.home.state_files, &iscsi.home);
        let (before, files) =
            with_volumes(&settings(), &[volume(9, 4)], state, &Catalog::default());
        files.store(state, IfLate::Keep).unwrap();
        let catalog =
            Catalog::default().next(&before, home, &iscsi.volumes, Opening::Start).unwrap();
        state.dir.put_lun_numbers(&[(TARGET, "4")]).unwrap();
        let (now, files) =
            with_volumes(&settings(), &[volume(8, 4), volume(9, 4)], state, &catalog);
        assert!(files.require_all().is_err());
        assert_eq!(now.targets[0].luns, before.targets[0].luns);
        assert_eq!(now.targets[0].followed, BTreeSet::from([4]));
        // One that is gone, or whose number the configuration gives to something else, goes.
        let (now, _) = with_volumes(&settings(), &[volume(8, 4)], state, &catalog);
        assert!(now.targets[0].luns.is_empty());
        let mut fixed = settings();
        let lun: LunConfig = toml::from_str("number = 4\npath = \"/nosuch/fixed\"\n").unwrap();
        fixed.targets[0].luns.push(lun.clone());
        let (now, _) = with_volumes(&fixed, &[volume(9, 4)], state, &catalog);
        assert_eq!(now.targets[0].luns, [lun]);
    }
}
