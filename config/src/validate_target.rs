//! Rules between the values of iSCSI targets.

use crate::schema::Config;
use crate::target::{ChapConfig, InitiatorConfig, LunConfig, TargetConfig};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Largest LUN (SAM-5 flat space addressing).
const MAX_LUN: u16 = 0x3fff;
/// Longest iSCSI name in bytes (RFC 7143 §4.2.7.2).
const MAX_NAME_BYTES: usize = 223;

/// Everything that is wrong.
pub(crate) fn problems(config: &Config, found: &mut Vec<String>) {
    let iscsi = &config.iscsi;
    if iscsi.portal_group == 0 {
        found.push("iscsi.portal_group = 0: must be between 1 and 65535".into());
    }
    if !(1..=65_000).contains(&iscsi.max_sessions) {
        found.push(format!(
            "iscsi.max_sessions = {}: must be between 1 and 65000",
            iscsi.max_sessions
        ));
    }
    if let Some(chap) = &iscsi.discovery_chap {
        check_chap("iscsi.discovery_chap", chap, found);
    }
    if iscsi.listen.is_empty() && !config.targets.is_empty() {
        found.push(
            "iscsi.listen is missing: targets need a portal, for example \
             [iscsi] listen = [\"0.0.0.0:3260\"]"
                .into(),
        );
    }
    let mut names = HashSet::new();
    let mut paths: HashMap<&Path, String> = HashMap::new();
    for target in &config.targets {
        check_target(target, found);
        if !names.insert(target.name.to_lowercase()) {
            found.push(format!("target {}: its name is used twice", target.name));
        }
        for lun in &target.luns {
            let place = format!("target {} lun {}", target.name, lun.number);
            if let Some(other) = paths.insert(&lun.path, place.clone()) {
                found.push(format!("{place}: path {} is {other} already", lun.path.display()));
            }
        }
    }
}

/// What is wrong with one logical unit, if anything.
pub(crate) fn lun_problems(target: &str, lun: &LunConfig) -> Vec<String> {
    let mut found = Vec::new();
    check_lun(target, lun, &mut found);
    found
}

fn check_target(target: &TargetConfig, found: &mut Vec<String>) {
    let name = &target.name;
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    let kind = ["iqn.", "eui.", "naa."].iter().any(|kind| name.to_lowercase().starts_with(kind));
    if !kind || name.len() <= 4 || name.len() > MAX_NAME_BYTES || !name.chars().all(legal) {
        found.push(format!(
            "target \"{name}\": name must be an iSCSI name, for example \"iqn.2026-11.org.example:vm\""
        ));
    }
    let mut range = |key: &str, value: u32, least: u32, most: u32| {
        if !(least..=most).contains(&value) {
            found.push(format!("target {name}: {key} = {value}: must be {least} to {most}"));
        }
    };
    range("max_connections", target.max_connections, 1, 32);
    range("error_recovery_level", target.error_recovery_level, 0, 2);
    let mut numbers = HashSet::new();
    for lun in &target.luns {
        check_lun(name, lun, found);
        if !numbers.insert(lun.number) {
            found.push(format!("target {name}: lun {} is there twice", lun.number));
        }
    }
    for initiator in &target.initiators {
        check_initiator(name, initiator, &numbers, found);
    }
}

fn check_lun(target: &str, lun: &LunConfig, found: &mut Vec<String>) {
    let mut wrong =
        |text: String| found.push(format!("target {target} lun {}: {text}", lun.number));
    if lun.number > MAX_LUN {
        wrong(format!("number must be at most {MAX_LUN}"));
    }
    if !lun.path.is_absolute() {
        wrong(format!("path = \"{}\": must be absolute", lun.path.display()));
    }
    if !matches!(lun.block_bytes, 512 | 4096) {
        wrong(format!("block_bytes = {}: must be 512 or 4096", lun.block_bytes));
    }
    if let Some(physical) = lun.physical_block_bytes
        && (!physical.is_power_of_two() || !(lun.block_bytes..=1 << 20).contains(&physical))
    {
        wrong(format!(
            "physical_block_bytes = {physical}: must be a power of two, at least block_bytes and at most 1048576"
        ));
    }
    if let Some(size) = lun.size
        && (size.0 == 0 || !size.0.is_multiple_of(u64::from(lun.block_bytes.max(512))))
    {
        wrong(format!("size = {size}: must be a multiple of block_bytes and not 0"));
    }
    if let Some(serial) = &lun.serial
        && (serial.is_empty()
            || serial.len() > 64
            || !serial.bytes().all(|byte| (0x21..=0x7e).contains(&byte)))
    {
        wrong("serial: must be 1 to 64 printable ASCII characters without blanks".into());
    }
}

fn check_initiator(
    target: &str,
    initiator: &InitiatorConfig,
    numbers: &HashSet<u16>,
    found: &mut Vec<String>,
) {
    let place = format!("target {target} initiator {}", initiator.name);
    if initiator.mutual_chap.is_some() && initiator.chap.is_none() {
        found.push(format!("{place}: mutual_chap needs chap as well"));
    }
    for (key, chap) in [("chap", &initiator.chap), ("mutual_chap", &initiator.mutual_chap)] {
        if let Some(chap) = chap {
            check_chap(&format!("{place}: {key}"), chap, found);
        }
    }
    for lun in initiator.luns.iter().flatten() {
        if !numbers.contains(lun) {
            found.push(format!("{place}: luns names {lun}, which the target does not have"));
        }
    }
}

fn check_chap(place: &str, chap: &ChapConfig, found: &mut Vec<String>) {
    if chap.user.is_empty() || chap.user.len() > 255 {
        found.push(format!("{place}: user must have 1 to 255 characters"));
    }
    if !chap.secret_file.is_absolute() {
        found.push(format!("{place}: secret_file must be absolute"));
    }
}
