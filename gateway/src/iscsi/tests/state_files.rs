//! Files of the state directory that are damaged, and reloads that are refused: no other
//! disk is served in the place of one, and one file concerns one disk. A disk below it that hangs.

use super::{Fixture, TARGET};
use crate::exports::open::Opening;
use crate::exports::plan::Volume;
use crate::exports::settings::ExportSet;
use crate::iscsi::change::NotKept;
use crate::iscsi::luns::catalog::{Catalog, Target};
use crate::iscsi::settings::{IscsiSettings, identity};
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_config::LunConfig;
use zgate_iscsi::names::IscsiName;

fn target(fixture: &Fixture) -> Arc<Target> {
    let rules = fixture.gateway.shared.iscsi.rules();
    Arc::clone(&rules.catalog.targets[&IscsiName::parse(TARGET).unwrap()])
}

/// Settings with the target as it is.
fn settings(fixture: &Fixture) -> IscsiSettings {
    let targets = vec![target(fixture).settings.clone()];
    IscsiSettings { targets, ..IscsiSettings::default() }
}

/// A zvol that gets the first number from 4 on; a file is its device.
fn zvol(fixture: &Fixture, guid: u64) -> Volume {
    let device = fixture._dir.path().join(format!("zvol{guid}"));
    std::fs::File::create(&device).unwrap().set_len(1 << 20).unwrap();
    let template = "dataset = \"tank/vm/*\"\nfirst_number = 4\ndirect = \"never\"\n";
    Volume {
        target: 0,
        guid,
        name: format!("tank/vm/d{guid}").parse().unwrap(),
        device,
        template: toml::from_str(template).unwrap(),
    }
}

/// Returns the path of a LUN's device or file.
fn path_of(fixture: &Fixture, number: u16) -> PathBuf {
    target(fixture).units[&number].config.path.clone()
}

#[test]
fn a_refused_reload_leaves_zvols_their_numbers() {
    let fixture = Fixture::start();
    let gateway = &fixture.gateway;
    let (block, a, b) = (settings(&fixture), zvol(&fixture, 70), zvol(&fixture, 71));
    gateway.replace_volumes(&block, slice::from_ref(&a)).unwrap();
    assert_eq!(path_of(&fixture, 4), a.device);
    let numbers = || gateway.shared.iscsi.home.state_files.dir.lun_numbers(TARGET).unwrap();
    assert_eq!(numbers(), "4 70\n");
    // LUN 4 is to be something else, which cannot be opened.
    let mut wrong = block.clone();
    let fixed = wrong.targets[0].luns[0].clone();
    let path = fixture._dir.path().to_owned();
    wrong.targets[0].luns.push(LunConfig { number: 4, path, ..fixed });
    let volumes = slice::from_ref(&a);
    let refused = gateway.replace(&ExportSet::default(), &wrong, (volumes, &[]), true);
    assert!(refused.err().unwrap().to_string().contains("lun 4"));
    assert_eq!(numbers(), "4 70\n");
    gateway.replace_volumes(&block, &[a.clone(), b.clone()]).unwrap();
    assert_eq!((path_of(&fixture, 4), path_of(&fixture, 5)), (a.device.clone(), b.device.clone()));
    // A reload that takes effect stores what it changes.
    let mut other = block.clone();
    let path = fixture._dir.path().join("fixed.img");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let fixed = other.targets[0].luns[0].clone();
    other.targets[0].luns.push(LunConfig { number: 4, path: path.clone(), ..fixed });
    drop(gateway.replace(&ExportSet::default(), &other, (volumes, &[]), true).unwrap());
    assert_eq!(path_of(&fixture, 4), path);
    assert_eq!(numbers(), "6 70\n5 71\n");
}

#[test]
fn a_refused_reload_leaves_disks_the_notes_of_their_files() {
    let fixture = Fixture::start();
    let gateway = &fixture.gateway;
    let state = &gateway.shared.iscsi.home.state_files.dir;
    let (block, path) = (settings(&fixture), path_of(&fixture, 0));
    let naa = target(&fixture).units[&0].naa.to_string();
    let knows = |path: &PathBuf| state.knows_file(&naa, path).unwrap();
    assert!(knows(&path));
    // LUN 0 is to be another file, and LUN 4 something that cannot be opened.
    let other = fixture._dir.path().join("other.img");
    std::fs::File::create(&other).unwrap().set_len(1 << 20).unwrap();
    let mut moved = block.clone();
    moved.targets[0].luns[0].path = other.clone();
    let mut wrong = moved.clone();
    let first = wrong.targets[0].luns[0].clone();
    let directory = fixture._dir.path().to_owned();
    wrong.targets[0].luns.push(LunConfig { number: 4, path: directory, ..first });
    let refused = gateway.replace(&ExportSet::default(), &wrong, (&[], &[]), true);
    assert!(refused.err().unwrap().to_string().contains("lun 4"));
    assert_eq!(path_of(&fixture, 0), path);
    assert!(knows(&path), "without it an empty one may take its place");
    drop(gateway.replace(&ExportSet::default(), &moved, (&[], &[]), true).unwrap());
    assert_eq!(path_of(&fixture, 0), other);
    assert!(knows(&other) && !knows(&path));
}

#[test]
fn a_disk_that_hangs_takes_nothing_but_what_needs_it() {
    let fixture = Fixture::start();
    let (gateway, iscsi) = (&fixture.gateway, &fixture.gateway.shared.iscsi);
    let block = settings(&fixture);
    let [a, goes, new] = [70, 71, 72].map(|guid| zvol(&fixture, guid));
    gateway.replace_volumes(&block, &[a.clone(), goes.clone()]).unwrap();
    let now = [a.clone(), new.clone()];
    let (state, files) = (&iscsi.home.state_files.dir, &iscsi.home.state_files);
    let has = |number: u16| target(&fixture).has_lun(number);
    let late = |result: std::io::Result<()>, path: PathBuf| {
        let said = result.unwrap_err().to_string();
        for part in [path.to_str().unwrap(), "its disk has not answered", "; check that disk"] {
            assert!(said.contains(part), "{said}");
        }
    };
    let hangs = files.hang(false);
    let begun = Instant::now();
    let all = [a.clone(), goes, new.clone()];
    late(gateway.replace_volumes(&block, &all), state.luns_path(TARGET));
    assert!(has(4) && has(5) && !has(6), "a number is on the disk before initiators see it");
    late(gateway.replace_volumes(&block, &now), state.luns_path(TARGET));
    assert!(has(4) && !has(5) && !has(6), "what needs no number is in effect");
    let exports = ExportSet::default();
    let reload = gateway.replace(&exports, &block, (now.as_slice(), &[]), true);
    late(reload.map(drop), state.luns_path(TARGET));
    let path = fixture._dir.path().join("other.img");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let lun = format!("number = 9\npath = {path:?}\ndirect = \"never\"\n");
    let lun: LunConfig = toml::from_str(&lun).unwrap();
    let naa = identity(&IscsiName::parse(TARGET).unwrap(), &lun).1.to_string();
    late(iscsi.add_lun(TARGET, &lun, &mut NotKept), state.file_note(&naa));
    iscsi.remove_lun(TARGET, 0, &mut NotKept).unwrap();
    assert!(!has(9) && !has(0) && begun.elapsed() < Duration::from_secs(30));
    assert_eq!(state.lun_numbers(TARGET).unwrap(), "4 70\n5 71\n");
    drop(hangs);
    fixture.until("the disk answers", || files.forget_file("none").is_ok());
    gateway.replace_volumes(&block, &now).unwrap();
    assert_eq!((path_of(&fixture, 4), path_of(&fixture, 6)), (a.device, new.device));
    iscsi.add_lun(TARGET, &lun, &mut NotKept).unwrap();
    assert_eq!(path_of(&fixture, 9), path);
}

#[test]
fn damaged_reservations_of_one_disk_keep_no_other_one_from_being_served() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = crate::nfs::tcp::tests::gateway_with(dir.path(), "");
    let iscsi = &gateway.shared.iscsi;
    let mut text = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\n\
         allow_any_initiator = true\n"
    );
    for number in 0..2 {
        let path = dir.path().join(format!("disk{number}"));
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        text +=
            &format!("[[target.lun]]\nnumber = {number}\npath = {path:?}\ndirect = \"never\"\n");
    }
    let config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
    let settings = crate::iscsi::settings::settings(&config).unwrap();
    let name = IscsiName::parse(TARGET).unwrap();
    let naa = identity(&name, &config.targets[0].luns[1]).1.to_string();
    let state = &iscsi.home.state_files.dir;
    state.put_reservations(&naa, b"garbage").unwrap();
    let catalog =
        Catalog::default().next(&settings, &iscsi.home, &iscsi.volumes, Opening::Start).unwrap();
    let target = &catalog.targets[&name];
    assert!(target.units.contains_key(&0) && !target.units.contains_key(&1));
    let reason = &target.absent[&1].fault.reason;
    assert!(reason.contains(state.reservations_path(&naa).to_str().unwrap()), "{reason}");
    // By which a strict start is refused.
    assert_eq!(catalog.named_absent().count(), 1);
}

#[test]
fn a_file_of_which_nobody_knows_whether_it_was_served_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = crate::nfs::tcp::tests::gateway_with(dir.path(), "");
    let iscsi = &gateway.shared.iscsi;
    let path = dir.path().join("disk");
    let text = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{TARGET}\"\n\
         allow_any_initiator = true\n[[target.lun]]\nnumber = 0\npath = {path:?}\n\
         size = \"1MiB\"\ndirect = \"never\"\n"
    );
    let config = zgate_config::parse(&text, std::path::Path::new("x")).unwrap();
    let settings = crate::iscsi::settings::settings(&config).unwrap();
    let name = IscsiName::parse(TARGET).unwrap();
    let naa = identity(&name, &config.targets[0].luns[0]).1.to_string();
    let open = || {
        let (home, volumes) = (&iscsi.home, &iscsi.volumes);
        let catalog = Catalog::default().next(&settings, home, volumes, Opening::Start);
        Arc::clone(&catalog.unwrap().targets[&name])
    };
    // A note that cannot be read: its disk has an error.
    let note = iscsi.home.state_files.dir.file_note(&naa);
    std::fs::create_dir(&note).unwrap();
    let reason = open().absent[&0].fault.reason.clone();
    let said = reason.contains("may have been served") && reason.contains(note.to_str().unwrap());
    assert!(said, "{reason}");
    assert!(!path.exists(), "hosts would find their data gone");
    std::fs::remove_dir(&note).unwrap();
    assert!(open().units.contains_key(&0) && path.exists());
}
