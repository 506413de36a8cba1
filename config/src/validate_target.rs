//! Rules between the values of iSCSI targets.

use crate::problem::{Findings, Place};
use crate::schema::Config;
use crate::target::{
    ChapConfig, ISCSI_PORT, InitiatorConfig, IscsiConfig, LunConfig, NamePattern, TargetConfig,
    VolumesConfig,
};
use crate::validate::check_pattern;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Largest LUN (SAM-5 flat space addressing).
const MAX_LUN: u16 = 0x3fff;
/// Longest iSCSI name in bytes (RFC 7143 §4.2.7.2).
const MAX_NAME_BYTES: usize = 223;

/// Adds the problems of portals and targets.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let (iscsi, place) = (&config.iscsi, |key| Place::root("iscsi").key(key));
    found.range(place("portal_group"), iscsi.portal_group, 1, u16::MAX);
    found.range(place("max_sessions"), iscsi.max_sessions, 1, 65_000);
    found.range(place("thin_warning_percent"), iscsi.thin_warning_percent, 0, 90);
    if let Some(chap) = &iscsi.discovery_chap {
        check_chap(chap, &place("discovery_chap"), found);
    }
    check_groups(iscsi, found);
    check_standby(config, found);
    if iscsi.tcp_listen().chain(iscsi.iser_listen()).next().is_none() && !config.targets.is_empty()
    {
        let next = format!("name it, for example [iscsi] listen = [\"0.0.0.0:{ISCSI_PORT}\"]");
        found.absent(Place::root("target").item(0), "targets need a portal: iscsi.listen", &next);
    }
    let mut names = HashSet::new();
    let mut paths: HashMap<&Path, String> = HashMap::new();
    let mut identities: HashMap<String, String> = HashMap::new();
    for (index, target) in config.targets.iter().enumerate() {
        let place = Place::root("target").item(index);
        check_target(target, &place, found);
        if !names.insert(target.name.to_lowercase()) {
            found.add(place.key("name"), "a target before has it already", "choose another");
        }
        for (index, lun) in target.luns.iter().enumerate() {
            let place = place.key("lun").item(index);
            let owner = format!("target {} lun {}", target.name, lun.number);
            let next = "give each LUN its own";
            if let Some(other) = paths.insert(&lun.path, owner.clone()) {
                found.add(place.key("path"), format!("{other} has it already"), next);
            }
            // Initiators would take the two for one disk with two paths.
            let serial = lun.serial.clone().map(|serial| ("serial", serial));
            let naa = lun.naa.map(|naa| ("naa", naa.to_string()));
            for (key, value) in serial.into_iter().chain(naa) {
                if let Some(other) = identities.insert(format!("{key} {value}"), owner.clone()) {
                    found.add(place.key(key), format!("{other} has it already"), next);
                }
            }
        }
    }
}

/// Requires of a gateway in standby that it serves nothing else.
fn check_standby(config: &Config, found: &mut Findings) {
    let place = |key| Place::root("iscsi").key(key);
    if config.iscsi.asymmetric && config.iscsi.groups.is_empty() {
        let next = "add [[iscsi.group]] with the other machine's addresses";
        found.absent(place("asymmetric"), "it has one portal group", next);
    }
    if !config.iscsi.standby {
        return;
    }
    if !config.iscsi.asymmetric {
        found.add(place("standby"), "without iscsi.asymmetric", "set iscsi.asymmetric = true");
    }
    if !config.exports.is_empty() {
        let next = "keep exports in the configuration of the gateway that serves";
        found.add(Place::root("export").item(0), "a gateway in standby has no storage", next);
    }
    for (index, target) in config.targets.iter().enumerate() {
        for (number, lun) in target.luns.iter().enumerate().filter(|(_, lun)| lun.size.is_none()) {
            let place = Place::root("target").item(index).key("lun").item(number);
            let problem = format!("in standby the size of LUN {} is not known", lun.number);
            found.absent(place, &problem, "add size, that of the disk");
        }
    }
}

/// Requires each tag to be unique.
fn check_groups(iscsi: &IscsiConfig, found: &mut Findings) {
    let has_first = !iscsi.listen.is_empty() || !iscsi.iser_listen.is_empty();
    let mut tags = HashSet::from([iscsi.portal_group]);
    for (index, group) in iscsi.groups.iter().enumerate() {
        let place = Place::root("iscsi").key("group").item(index);
        if !has_first {
            let next = "name the portals of the first group in iscsi.listen";
            found.absent(place.clone(), "a further group without a first one", next);
        }
        found.range(place.key("tag"), group.tag, 1, u16::MAX);
        if !tags.insert(group.tag) {
            found.add(place.key("tag"), "a group before has it already", "choose another");
        }
        if group.listen.is_empty() && group.iser_listen.is_empty() {
            found.absent(place.clone(), "it has no portal", "add listen = [\"ADDRESS:PORT\"]");
        }
    }
}

fn lines(name: &str, check: impl FnOnce(&mut Findings)) -> Vec<String> {
    let mut found = Findings { problems: Vec::new(), complete: true };
    check(&mut found);
    let line = |problem: &crate::Problem| {
        let key = problem.place.to_string();
        let separator = if key.is_empty() { "" } else { ": " };
        format!("{name}: {key}{separator}{}; {}", problem.problem, problem.next_step)
    };
    found.problems.iter().map(line).collect()
}

/// Checks one logical unit of a target against the rules of the file, for a LUN
/// that arrives by a live command. Returns the problems; empty if there are
/// none.
#[must_use]
pub fn lun_problems(target: &str, lun: &LunConfig) -> Vec<String> {
    let name = format!("target {target} lun {}", lun.number);
    lines(&name, |found| check_lun(lun, &Place::default(), found))
}

/// Checks one initiator's rule in the same way, except for the LUNs it names.
#[must_use]
pub fn initiator_problems(target: &str, initiator: &InitiatorConfig) -> Vec<String> {
    let name = format!("target {target} initiator {}", initiator.name);
    lines(&name, |found| check_initiator(initiator, None, &Place::default(), found))
}

fn check_target(target: &TargetConfig, place: &Place, found: &mut Findings) {
    let name = &target.name;
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    let kind = ["iqn.", "eui.", "naa."].iter().any(|kind| name.to_lowercase().starts_with(kind));
    if !kind || name.len() <= 4 || name.len() > MAX_NAME_BYTES || !name.chars().all(legal) {
        let next = "write one, for example \"iqn.2026-11.org.example:vm\"";
        found.add(place.key("name"), format!("\"{name}\" is not an iSCSI name"), next);
    }
    if let Some(alias) = &target.alias
        && (alias.is_empty() || alias.len() > 255 || alias.chars().any(char::is_control))
    {
        let next = "write 1 to 255 bytes of printable text";
        found.add(place.key("alias"), "it cannot be shown", next);
    }
    found.range(place.key("max_connections"), target.max_connections, 1, 32);
    found.range(place.key("error_recovery_level"), target.error_recovery_level, 0, 2);
    let mut numbers = HashSet::new();
    for (index, lun) in target.luns.iter().enumerate() {
        let place = place.key("lun").item(index);
        check_lun(lun, &place, found);
        if !numbers.insert(lun.number) {
            let next = "give each LUN its own number";
            found.add(place.key("number"), format!("lun {} is listed twice", lun.number), next);
        }
    }
    for (index, volumes) in target.volumes.iter().enumerate() {
        check_volumes(volumes, &place.key("volumes").item(index), found);
    }
    let mut names: Vec<&NamePattern> = Vec::new();
    for (index, initiator) in target.initiators.iter().enumerate() {
        let place = place.key("initiator").item(index);
        // The numbers that zvols get are only known when they are found.
        let known = target.volumes.is_empty().then_some(&numbers);
        check_initiator(initiator, known, &place, found);
        // A rule with `clients` may be followed by one for the same name from
        // other networks.
        if let Some(before) = names.iter().find(|before| before.covers(&initiator.name)) {
            let problem = format!("never reached: {before} before it matches first");
            found.add(place.key("name"), problem, "put it before that rule, or remove it");
        }
        if initiator.clients.is_empty() {
            names.push(&initiator.name);
        }
    }
}

fn check_block_bytes(bytes: u32, place: &Place, found: &mut Findings) {
    if !matches!(bytes, 512 | 4096) {
        let problem = format!("{bytes} is not a size of blocks");
        found.add(place.key("block_bytes"), problem, "write 512 or 4096");
    }
}

fn check_volumes(volumes: &VolumesConfig, place: &Place, found: &mut Findings) {
    check_pattern(&volumes.dataset, place.key("dataset"), found);
    found.range(place.key("first_number"), volumes.first_number, 0, MAX_LUN);
    check_block_bytes(volumes.block_bytes, place, found);
    volumes.rates().check(place, found);
}

fn check_lun(lun: &LunConfig, place: &Place, found: &mut Findings) {
    found.range(place.key("number"), lun.number, 0, MAX_LUN);
    if !lun.path.is_absolute() {
        found.add(place.key("path"), "not an absolute path", "begin it with /");
    }
    check_block_bytes(lun.block_bytes, place, found);
    lun.rates().check(place, found);
    if let Some(physical) = lun.physical_block_bytes
        && (!physical.is_power_of_two() || !(lun.block_bytes..=1 << 20).contains(&physical))
    {
        let next = "write a power of two, at least block_bytes and at most 1048576";
        found.add(place.key("physical_block_bytes"), format!("{physical} does not fit"), next);
    }
    if let Some(size) = lun.size
        && (size.0 == 0 || !size.0.is_multiple_of(u64::from(lun.block_bytes.max(512))))
    {
        let next = "write a multiple of block_bytes that is not 0";
        found.add(place.key("size"), format!("{size} is no number of whole blocks"), next);
    }
    if let Some(serial) = &lun.serial
        && (serial.is_empty()
            || serial.len() > 64
            || !serial.bytes().all(|byte| (0x21..=0x7e).contains(&byte)))
    {
        let next = "write 1 to 64 printable ASCII characters without blanks";
        found.add(place.key("serial"), format!("\"{serial}\" is not a serial number"), next);
    }
}

fn check_initiator(
    initiator: &InitiatorConfig,
    numbers: Option<&HashSet<u16>>,
    place: &Place,
    found: &mut Findings,
) {
    if initiator.name.is_broad() && initiator.chap.is_none() && initiator.clients.is_empty() {
        let next = "add chap or clients, name at least the authority \
                    (\"iqn.2026-11.org.example:*\"), or say allow_any_initiator = true on the target";
        found.absent(place.key("name"), "it matches nearly every initiator", next);
    }
    if initiator.mutual_chap.is_some() && initiator.chap.is_none() {
        let next = "add chap, which the initiator must present";
        found.absent(place.key("mutual_chap"), "it needs chap as well", next);
    }
    for (key, chap) in [("chap", &initiator.chap), ("mutual_chap", &initiator.mutual_chap)] {
        if let Some(chap) = chap {
            check_chap(chap, &place.key(key), found);
        }
    }
    for (index, lun) in initiator.luns.iter().flatten().enumerate() {
        if numbers.is_some_and(|numbers| !numbers.contains(lun)) {
            let problem = format!("the target has no lun {lun}");
            let next = "add a [[target.lun]] with this number, or remove it here";
            found.absent(place.key("luns").item(index), &problem, next);
        }
    }
}

fn check_chap(chap: &ChapConfig, place: &Place, found: &mut Findings) {
    if chap.user.is_empty() || chap.user.len() > 255 {
        let problem = format!("a name of {} bytes", chap.user.len());
        found.add(place.key("user"), problem, "write 1 to 255 bytes");
    }
    if !chap.secret_file.is_absolute() {
        found.add(place.key("secret_file"), "not an absolute path", "begin it with /");
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
        assert!(two(naa, naa).contains("lun 1.naa: target iqn.2026-11.test:a lun 0 has it"));
        assert!(
            two("serial = \"x\"", "serial = \"x\"")
                .contains("lun 1.serial: target iqn.2026-11.test:a lun 0 has it")
        );
        let same = problems(&format!("{target}{}{}", lun(0, "/a", ""), lun(0, "/a", "")));
        assert!(same.contains("listed twice") && same.contains("lun 0.path: target"), "{same}");
    }

    #[test]
    fn groups_are_kept_apart() {
        let group = |tag: u16, port: u16| {
            format!("[[iscsi.group]]\ntag = {tag}\nlisten = [\"127.0.0.1:{port}\"]\n")
        };
        assert!(problems(&group(1, 3261)).contains("iscsi.group 1.tag"));
        assert!(
            problems(&group(2, 3260))
                .contains("127.0.0.1:3260 collides with 127.0.0.1:3260 of iscsi.listen")
        );
        assert!(problems(&(group(2, 1) + &group(2, 2))).contains("iscsi.group 2.tag"));
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
            "x:3:16: iscsi.max_sessions: 0",
            "x:4:24: iscsi.thin_warning_percent: 91",
            "x:5:27: iscsi.discovery_chap.user",
            "x:5:45: iscsi.discovery_chap.secret_file: not an absolute path",
            "x:7:8: target disk.name: \"disk\" is not an iSCSI name",
            "x:8:9: target disk.alias",
            "x:9:19: target disk.max_connections: 33",
            "x:10:24: target disk.error_recovery_level: 3",
            "x:12:10: target disk lun 20000.number: 20000",
            "x:13:8: target disk lun 20000.path: not an absolute path",
            "x:14:15: target disk lun 20000.block_bytes: 1024",
            "x:15:8: target disk lun 20000.size: 100",
            "x:18:9: target disk initiator iqn.2026-11.test:x.luns: the target has no lun 3",
            "x:19:15: target disk initiator iqn.2026-11.test:x.mutual_chap: it needs chap",
        ] {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    }
}
