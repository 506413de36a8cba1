//! Numbers and identities of zvols that are logical units. A zvol keeps its
//! number while it exists, also when it is renamed or zgate restarts.

use crate::exports::plan::Volume;
use crate::iscsi::settings::{IscsiSettings, TargetSettings};
use crate::state_dir::StateDir;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use zgate_config::{LunConfig, NaaId};
use zgate_iscsi::names::IscsiName;

/// Largest LUN (SAM-5 flat space addressing).
const MAX_LUN: u16 = 0x3fff;
/// First digits of derived NAA identifiers: type 6 and a company id with the
/// "locally administered" bit, which no registered one has.
const DERIVED_NAA: [u8; 4] = [0x60, 0x25, 0xa4, 0x70];

/// Numbers assigned so far, by the zvols' guids.
type Numbers = BTreeMap<u64, u16>;

/// Adds the zvols to the settings as logical units. One without a device is one only
/// if it has a number: initiators know it then, and its device appears a moment after
/// the import of its pool. Others may never have one (`volmode=none`).
///
/// # Errors
/// If the numbers cannot be stored.
pub(crate) fn with_volumes(
    settings: &IscsiSettings,
    volumes: &[Volume],
    state_dir: &StateDir,
) -> io::Result<IscsiSettings> {
    let mut settings = settings.clone();
    for (index, target) in settings.targets.iter_mut().enumerate() {
        let fixed: BTreeSet<u16> = target.luns.iter().map(|lun| lun.number).collect();
        let mine: Vec<_> = volumes.iter().filter(|volume| volume.target == index).collect();
        let found = number(&target.name, &mine, &fixed, state_dir)?;
        target.followed = found.iter().map(|lun| lun.number).collect();
        target.luns.extend(found);
        target.unseen = unseen(target, state_dir)?;
    }
    Ok(settings)
}

/// Returns the numbers of zvols that are not among the LUNs of a target: they are gone, or
/// their pool has not answered yet.
fn unseen(target: &TargetSettings, state_dir: &StateDir) -> io::Result<BTreeSet<u16>> {
    let present: BTreeSet<u16> = target.luns.iter().map(|lun| lun.number).collect();
    let known = read(&state_dir.lun_numbers(target.name.as_str())?);
    Ok(known.into_values().filter(|number| !present.contains(number)).collect())
}

fn number(
    target: &IscsiName,
    volumes: &[&Volume],
    fixed: &BTreeSet<u16>,
    state_dir: &StateDir,
) -> io::Result<Vec<LunConfig>> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let known = read(&state_dir.lun_numbers(target.as_str())?);
    let is_served = |volume: &&&Volume| known.contains_key(&volume.guid) || volume.device.exists();
    let volumes: Vec<&Volume> = volumes.iter().filter(is_served).copied().collect();
    let numbers = assign(&known, &volumes, fixed);
    if numbers != known {
        state_dir.put_lun_numbers(target.as_str(), &write(&numbers))?;
    }
    let unit = |volume: &&Volume| {
        let number = *numbers.get(&volume.guid)?;
        let (serial, naa) = identity(volume.guid);
        Some(volume.template.unit(number, volume.device.clone(), serial, naa))
    };
    Ok(volumes.iter().filter_map(unit).collect())
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

/// Returns serial number and NAA identifier of a zvol, the same on every host.
pub(in crate::iscsi) fn identity(guid: u64) -> (String, NaaId) {
    let digest = Sha256::digest(format!("zgate zvol\0{guid}").as_bytes());
    let mut naa = [0; 16];
    naa.copy_from_slice(&digest[..16]);
    naa[..3].copy_from_slice(&DERIVED_NAA[..3]);
    naa[3] = DERIVED_NAA[3] | naa[3] & 0x0f;
    (format!("{guid:016x}"), NaaId::Long(naa))
}

fn read(text: &str) -> Numbers {
    let line = |line: &str| {
        let (number, guid) = line.split_once(' ')?;
        Some((guid.parse().ok()?, number.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn write(numbers: &Numbers) -> String {
    numbers.iter().map(|(guid, number)| format!("{number} {guid}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::open::Opening;
    use crate::iscsi::luns::catalog::{Catalog, LunMap};
    use std::sync::Arc;
    use zgate_scsi::{Asc, Cdb, LogicalUnits, Lun, Nexus, NexusId, TaskAttribute, TransportId};

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
        let second = assign(&read(&write(&first)), &[&b, &c], &fixed);
        assert_eq!(second, Numbers::from([(70, 2), (71, 4), (72, 5)]));
        let full = assign(&Numbers::new(), &[&volume(1, MAX_LUN), &volume(2, MAX_LUN)], &fixed);
        assert_eq!(full.len(), 1);
        // The zvol with the last number was destroyed: the number is assigned
        // again.
        let again = assign(&full, &[&volume(2, MAX_LUN)], &fixed);
        assert_eq!(again, Numbers::from([(2, MAX_LUN)]));
    }

    #[test]
    fn identities_are_the_zvols() {
        assert_eq!(identity(7), identity(7));
        assert_ne!(identity(7).1, identity(8).1);
        assert!(identity(7).1.to_string().starts_with("6025a47"));
        assert_eq!(identity(0xabc).0, "0000000000000abc");
    }

    #[test]
    fn a_zvol_without_a_device_is_a_unit_if_initiators_know_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let name = IscsiName::parse("iqn.2026-11.io.zgate:vm").unwrap();
        let found = |volume: &Volume| number(&name, &[volume], &BTreeSet::new(), &state).unwrap();
        let missing = |guid| Volume { device: "/nosuch/zvol".into(), ..volume(guid, 4) };
        assert!(found(&missing(9)).is_empty());
        assert_eq!(found(&volume(9, 4))[0].number, 4);
        let again = found(&missing(9));
        assert_eq!((again[0].number, again[0].path.to_str()), (4, Some("/nosuch/zvol")));
        assert!(found(&missing(8)).is_empty());
    }

    /// LUNs that a host sees of a target after a restart, if zvol 9 was LUN 4 before.
    fn seen(volumes: &[Volume]) -> LunMap {
        let dir = tempfile::tempdir().unwrap();
        let gateway = crate::nfs::tcp::tests::gateway_with(dir.path(), "");
        let state = StateDir::open(&dir.path().join("numbers")).unwrap();
        let text = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.test:vm\"\n\
            allow_any_initiator = true\n[[target.volumes]]\ndataset = \"llm/vm/*\"\n";
        let config = zgate_config::parse(text, std::path::Path::new("x")).unwrap();
        let settings = crate::iscsi::settings::settings(&config).unwrap();
        with_volumes(&settings, &[volume(9, 4)], &state).unwrap();
        let settings = with_volumes(&settings, volumes, &state).unwrap();
        let iscsi = &gateway.shared.iscsi;
        let (home, opened) = (&iscsi.home, &iscsi.volumes);
        let catalog = Catalog::default().next(&settings, home, opened, Opening::Start).unwrap();
        let host = IscsiName::parse("iqn.2026-11.test:host").unwrap();
        catalog.targets.values().next().unwrap().lun_map(&host, None)
    }

    /// Sends TEST UNIT READY to LUN 4.
    fn sense(luns: &LogicalUnits) -> Asc {
        let initiator = TransportId::iscsi_port("iqn.2026-11.test:host", [0; 6]);
        let command = zgate_scsi::Command {
            nexus: Arc::new(Nexus { id: NexusId(1), initiator, relative_port: 1 }),
            cdb: Cdb::new(&[0; 6]),
            attribute: TaskAttribute::Simple,
            data_out: bytes::Bytes::new(),
            data_out_offered_bytes: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let response = runtime.block_on(luns.execute([0, 4, 0, 0, 0, 0, 0, 0], command));
        response.sense.unwrap().asc
    }

    #[test]
    fn a_zvol_that_waits_for_its_device_at_the_start_is_becoming_ready() {
        let seen = seen(&[Volume { device: "/nosuch/zvol".into(), ..volume(9, 4) }]);
        let lun = BTreeSet::from([Lun::new(4).unwrap()]);
        assert_eq!((seen.absent, seen.unseen), (lun, BTreeSet::new()));
        assert_eq!(seen.luns.numbers(), [Lun::new(4).unwrap()]);
        assert_eq!(sense(&seen.luns), Asc::BECOMING_READY);
    }

    #[test]
    fn a_zvol_of_a_pool_that_has_not_answered_yet_is_becoming_ready() {
        let seen = seen(&[]);
        assert_eq!(seen.unseen, BTreeSet::from([Lun::new(4).unwrap()]));
        assert!(seen.awaiting.numbers().is_empty(), "it may be gone");
        assert_eq!(sense(&seen.awaiting), Asc::BECOMING_READY);
        // When the patience with pools has ended.
        assert_eq!(sense(&seen.luns), Asc::LUN_NOT_SUPPORTED);
    }

    #[test]
    fn numbers_are_kept_in_the_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let name = IscsiName::parse("iqn.2026-11.io.zgate:vm").unwrap();
        let luns = number(&name, &[&volume(9, 4)], &BTreeSet::new(), &state).unwrap();
        assert_eq!(luns[0].number, 4);
        let again = number(&name, &[&volume(8, 0), &volume(9, 0)], &BTreeSet::new(), &state);
        let again: Vec<u16> = again.unwrap().iter().map(|lun| lun.number).collect();
        assert_eq!(again, [0, 4]);
    }
}
