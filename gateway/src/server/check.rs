//! Checks of a configuration against this machine, without starting anything.

use crate::exports::settings::{check_directories, check_hosts};
use crate::iscsi::settings::settings;
use std::fs::File;
use std::io;
use zgate_config::{ChapConfig, Config, Place, Problem, TargetConfig};
use zgate_control::DatasetPattern;

/// Returns all directories, host names, datasets and secrets of a configuration
/// that cannot be used on this machine.
#[must_use]
pub fn check(config: &Config) -> Vec<Problem> {
    let mut found = check_directories(config);
    found.extend(check_hosts(config));
    found.extend(config.exports.iter().enumerate().filter_map(|(index, export)| {
        let place = Place::root("export").item(index).key("dataset");
        check_pattern(export.dataset.as_ref()?, place)
    }));
    found.extend(check_discovery(config));
    for (index, target) in config.targets.iter().enumerate() {
        found.extend(check_target(target, &Place::root("target").item(index)));
    }
    found
}

/// Checks the targets of a configuration, and reads their secrets.
///
/// # Errors
/// The target or the secret file.
pub fn check_targets(config: &Config) -> io::Result<()> {
    settings(config).map(drop)
}

fn check_pattern(text: &str, place: Place) -> Option<Problem> {
    let error = text.parse::<DatasetPattern>().err()?;
    Some(problem(place, error.to_string(), "correct the dataset or pattern"))
}

fn check_discovery(config: &Config) -> Option<Problem> {
    let place = Place::root("iscsi").key("discovery_chap");
    let chap = config.iscsi.discovery_chap.as_ref()?;
    check_secret(chap, &place).or_else(|| {
        let alone = Config { iscsi: config.iscsi.clone(), ..Config::default() };
        let error = settings(&alone).err()?;
        Some(problem(place.key("secret_file"), error.to_string(), "correct the file"))
    })
}

fn check_target(target: &TargetConfig, place: &Place) -> Vec<Problem> {
    let mut found = Vec::new();
    for (index, volumes) in target.volumes.iter().enumerate() {
        let place = place.key("volumes").item(index).key("dataset");
        found.extend(check_pattern(&volumes.dataset, place));
    }
    for (index, initiator) in target.initiators.iter().enumerate() {
        let place = place.key("initiator").item(index);
        let chaps = [("chap", &initiator.chap), ("mutual_chap", &initiator.mutual_chap)];
        let chaps = chaps.iter().filter_map(|(key, chap)| Some((key, chap.as_ref()?)));
        found.extend(chaps.filter_map(|(key, chap)| check_secret(chap, &place.key(key))));
    }
    // The rest concerns several values; the log has its warnings.
    if found.is_empty() {
        let alone = Config { targets: vec![target.clone()], ..Config::default() };
        let error = settings(&alone).err();
        let wrong = |error: io::Error| problem(place.clone(), error.to_string(), "correct it");
        found.extend(error.map(wrong));
    }
    found
}

fn check_secret(chap: &ChapConfig, place: &Place) -> Option<Problem> {
    let error = File::open(&chap.secret_file).err()?;
    let next_step = "put the secret there on one line, mode 0600";
    let fault = format!("cannot read {}: {error}", chap.secret_file.display());
    Some(problem(place.key("secret_file"), fault, next_step))
}

fn problem(place: Place, problem: String, next_step: &str) -> Problem {
    Problem { place, problem, next_step: next_step.to_owned() }
}
