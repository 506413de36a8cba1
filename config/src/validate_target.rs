//! Rules between the values of iSCSI targets.

use crate::schema::Config;
use crate::target::{
    ChapConfig, ISCSI_PORT, InitiatorConfig, IscsiConfig, LunConfig, NamePattern, TargetConfig,
    VolumesConfig,
};
use crate::validate::pattern_problem;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Largest LUN (SAM-5 flat space addressing).
const MAX_LUN: u16 = 0x3fff;
/// Longest iSCSI name in bytes (RFC 7143 §4.2.7.2).
const MAX_NAME_BYTES: usize = 223;

/// Adds the problems of portals and targets.
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
    if iscsi.thin_warning_percent > 90 {
        found.push(format!(
            "iscsi.thin_warning_percent = {}: must be between 0 and 90",
            iscsi.thin_warning_percent
        ));
    }
    check_groups(iscsi, found);
    let has_portal = !iscsi.listen.is_empty() || !iscsi.iser_listen.is_empty();
    if !has_portal && !config.targets.is_empty() {
        found.push(format!(
            "iscsi.listen is missing: targets need a portal, for example \
             [iscsi] listen = [\"0.0.0.0:{ISCSI_PORT}\"]"
        ));
    }
    let mut names = HashSet::new();
    let mut paths: HashMap<&Path, String> = HashMap::new();
    let mut identities: HashMap<String, String> = HashMap::new();
    for target in &config.targets {
        check_target(target, found);
        if !names.insert(target.name.to_lowercase()) {
            found.push(format!("target {}: the name is used twice", target.name));
        }
        for lun in &target.luns {
            let place = format!("target {} lun {}", target.name, lun.number);
            if let Some(other) = paths.insert(&lun.path, place.clone()) {
                found.push(format!(
                    "{place}: path {} is used by {other} already",
                    lun.path.display()
                ));
            }
            // Initiators would take the two for one disk with two paths.
            let serial = lun.serial.as_ref().map(|serial| format!("serial {serial}"));
            for identity in serial.into_iter().chain(lun.naa.map(|naa| format!("naa {naa}"))) {
                if let Some(other) = identities.insert(identity.clone(), place.clone()) {
                    found.push(format!("{place}: {identity} is used by {other} already"));
                }
            }
        }
    }
}

/// Requires each address and each tag to be unique.
fn check_groups(iscsi: &IscsiConfig, found: &mut Vec<String>) {
    let has_first = !iscsi.listen.is_empty() || !iscsi.iser_listen.is_empty();
    if !has_first && !iscsi.groups.is_empty() {
        found.push("iscsi.group without iscsi.listen: name the first group's portals".into());
    }
    let mut tags = HashSet::from([iscsi.portal_group]);
    let mut addresses: HashSet<_> = iscsi.listen.iter().collect();
    let mut over_rdma: HashSet<_> = iscsi.iser_listen.iter().collect();
    for group in &iscsi.groups {
        let place = format!("iscsi.group {}", group.tag);
        if group.tag == 0 || !tags.insert(group.tag) {
            found.push(format!("{place}: tag must be between 1 and 65535, each once"));
        }
        if group.listen.is_empty() && group.iser_listen.is_empty() {
            found.push(format!("{place}: listen is empty"));
        }
        let again = group.listen.iter().filter(|address| !addresses.insert(address));
        let again: Vec<_> =
            again.chain(group.iser_listen.iter().filter(|a| !over_rdma.insert(a))).collect();
        for address in again {
            found.push(format!("{place}: {address} is used already"));
        }
    }
}

/// Returns the problems of one logical unit.
pub(crate) fn lun_problems(target: &str, lun: &LunConfig) -> Vec<String> {
    let mut found = Vec::new();
    check_lun(target, lun, &mut found);
    found
}

/// Returns the problems of one initiator's rule.
pub(crate) fn initiator_problems(target: &str, initiator: &InitiatorConfig) -> Vec<String> {
    let mut found = Vec::new();
    check_initiator(target, initiator, None, &mut found);
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
    if let Some(alias) = &target.alias
        && (alias.is_empty() || alias.len() > 255 || alias.chars().any(char::is_control))
    {
        found.push(format!("target {name}: alias must be 1 to 255 bytes of printable text"));
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
            found.push(format!("target {name}: lun {} is listed twice", lun.number));
        }
    }
    for volumes in &target.volumes {
        check_volumes(name, volumes, found);
    }
    let mut names: Vec<&NamePattern> = Vec::new();
    for initiator in &target.initiators {
        // The numbers that zvols get are only known when they are found.
        let known = target.volumes.is_empty().then_some(&numbers);
        check_initiator(name, initiator, known, found);
        // A rule with `clients` may be followed by one for the same name from
        // other networks.
        if let Some(before) = names.iter().find(|before| before.covers(&initiator.name)) {
            found.push(format!(
                "target {name} initiator {}: never reached, {before} before it matches first",
                initiator.name
            ));
        }
        if initiator.clients.is_empty() {
            names.push(&initiator.name);
        }
    }
}

fn check_volumes(target: &str, volumes: &VolumesConfig, found: &mut Vec<String>) {
    let mut wrong =
        |text: String| found.push(format!("target {target} volumes {}: {text}", volumes.dataset));
    if let Some(problem) = pattern_problem(&volumes.dataset) {
        wrong(format!("dataset: {problem}"));
    }
    if volumes.first_number > MAX_LUN {
        wrong(format!("first_number must be at most {MAX_LUN}"));
    }
    if !matches!(volumes.block_bytes, 512 | 4096) {
        wrong(format!("block_bytes = {}: must be 512 or 4096", volumes.block_bytes));
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
    numbers: Option<&HashSet<u16>>,
    found: &mut Vec<String>,
) {
    let place = format!("target {target} initiator {}", initiator.name);
    if initiator.name.is_broad() && initiator.chap.is_none() && initiator.clients.is_empty() {
        found.push(format!(
            "{place}: matches nearly every initiator; add chap or clients, name at least the \
             authority (\"iqn.2026-11.org.example:*\"), or say allow_any_initiator = true on the \
             target"
        ));
    }
    if initiator.mutual_chap.is_some() && initiator.chap.is_none() {
        found.push(format!("{place}: mutual_chap needs chap as well"));
    }
    for (key, chap) in [("chap", &initiator.chap), ("mutual_chap", &initiator.mutual_chap)] {
        if let Some(chap) = chap {
            check_chap(&format!("{place}: {key}"), chap, found);
        }
    }
    for lun in initiator.luns.iter().flatten() {
        if numbers.is_some_and(|numbers| !numbers.contains(lun)) {
            found.push(format!("{place}: luns lists {lun}, which the target does not have"));
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn problems(text: &str) -> String {
        let whole = format!("[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n{text}");
        crate::parse(&whole, Path::new("x")).unwrap_err().to_string()
    }

    #[test]
    fn two_disks_never_look_like_one() {
        let naa = "naa = \"6025a470000000000000000000000001\"";
        let lun = |number: u16, path: &str, more: &str| {
            format!("[[target.lun]]\nnumber = {number}\npath = \"{path}\"\n{more}\n")
        };
        let target = "[[target]]\nname = \"iqn.2026-11.test:a\"\n";
        let two = |first: &str, second: &str| {
            problems(&format!("{target}{}{}", lun(0, "/a", first), lun(1, "/b", second)))
        };
        assert!(two(naa, naa).contains("lun 1: naa 6025a470000000000000000000000001 is used by"));
        assert!(two("serial = \"x\"", "serial = \"x\"").contains("serial x is used by"));
        let same = problems(&format!("{target}{}{}", lun(0, "/a", ""), lun(0, "/a", "")));
        assert!(same.contains("listed twice") && same.contains("path /a is"), "{same}");
    }

    #[test]
    fn groups_are_kept_apart() {
        let group = |tag: u16, port: u16| {
            format!("[[iscsi.group]]\ntag = {tag}\nlisten = [\"127.0.0.1:{port}\"]\n")
        };
        assert!(problems(&group(1, 3261)).contains("iscsi.group 1: tag"));
        assert!(problems(&group(2, 3260)).contains("127.0.0.1:3260 is used already"));
        assert!(problems(&(group(2, 1) + &group(2, 2))).contains("iscsi.group 2: tag"));
    }

    #[test]
    fn a_target_is_open_only_when_that_is_said() {
        let rule = |more: &str| {
            format!(
                "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n[[target]]\nname = \"iqn.2026-11.test:a\"\n\
                 [[target.initiator]]\nname = \"iqn.*\"\n{more}"
            )
        };
        let read = |text: &str| crate::parse(text, Path::new("x"));
        assert!(read(&rule("")).unwrap_err().to_string().contains("matches nearly every"));
        assert!(read(&rule("clients = [\"10.0.0.0/8\"]\n")).is_ok());
        assert!(read(&rule("chap = { user = \"u\", secret_file = \"/s\" }\n")).is_ok());
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = "max_sessions = 0\nthin_warning_percent = 91\n\
            discovery_chap = { user = \"\", secret_file = \"s\" }\n\
            [[target]]\nname = \"disk\"\nalias = \"\"\nmax_connections = 33\n\
            error_recovery_level = 3\n\
            [[target.lun]]\nnumber = 20000\npath = \"a\"\nblock_bytes = 1024\nsize = 100\n\
            [[target.initiator]]\nname = \"iqn.2026-11.test:x\"\nluns = [3]\n\
            mutual_chap = { user = \"u\", secret_file = \"/s\" }\n";
        let said = problems(text);
        for part in [
            "max_sessions = 0",
            "thin_warning_percent = 91",
            "discovery_chap: user",
            "secret_file must be absolute",
            "iSCSI name",
            "alias must",
            "max_connections = 33",
            "error_recovery_level = 3",
            "number must be at most",
            "path = \"a\": must be absolute",
            "block_bytes = 1024",
            "size = 100",
            "luns lists 3",
            "mutual_chap needs chap",
        ] {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    }
}
