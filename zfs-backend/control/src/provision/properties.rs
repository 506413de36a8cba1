//! Properties allowed in a layout: names and values (zpoolprops(7),
//! zfsprops(7)). All others are refused, so that a typing error is found before
//! `apply` runs.

use super::layout::{Setting, Settings};
use super::size::zfs_size;

/// Rule for valid values.
#[derive(Clone, Copy, Debug)]
enum Rule {
    OneOf(&'static [&'static str]),
    PowerOfTwo(u64, u64),
    /// A power of two within the bounds, or 0.
    PowerOfTwoOrZero(u64, u64),
    Number(u64, u64),
    /// A size, or `none`.
    Size,
    Compression,
    /// `/...`, `none` or `legacy`.
    Mountpoint,
    /// `file:///...`, because nobody is prompted while a plan is applied.
    KeyFile,
    Text,
}

/// Kind of object that has a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Pool,
    FileSystem,
    Volume,
}

use Owner::{FileSystem, Pool, Volume};

const SWITCH: Rule = Rule::OneOf(&["on", "off"]);
const CACHING: Rule = Rule::OneOf(&["all", "metadata", "none"]);
const BOTH: &[Owner] = &[FileSystem, Volume];
const FILES: &[Owner] = &[FileSystem];
const POOL: &[Owner] = &[Pool];

const TABLE: &[(&str, &[Owner], Rule)] = &[
    ("ashift", POOL, Rule::Number(9, 16)),
    ("autoexpand", POOL, SWITCH),
    ("autoreplace", POOL, SWITCH),
    ("autotrim", POOL, SWITCH),
    ("comment", POOL, Rule::Text),
    ("compatibility", POOL, Rule::Text),
    ("failmode", POOL, Rule::OneOf(&["wait", "continue", "panic"])),
    ("listsnapshots", POOL, SWITCH),
    ("multihost", POOL, SWITCH),
    ("acltype", FILES, Rule::OneOf(&["off", "noacl", "posix", "posixacl"])),
    ("atime", FILES, SWITCH),
    ("canmount", FILES, Rule::OneOf(&["on", "off", "noauto"])),
    ("casesensitivity", FILES, Rule::OneOf(&["sensitive", "insensitive", "mixed"])),
    (
        "checksum",
        BOTH,
        Rule::OneOf(&["on", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3"]),
    ),
    ("compression", BOTH, Rule::Compression),
    ("copies", BOTH, Rule::Number(1, 3)),
    ("devices", FILES, SWITCH),
    ("direct", FILES, Rule::OneOf(&["standard", "always", "disabled"])),
    ("dnodesize", FILES, Rule::OneOf(&["legacy", "auto", "1k", "2k", "4k", "8k", "16k"])),
    (
        "encryption",
        BOTH,
        Rule::OneOf(&[
            "off",
            "on",
            "aes-128-ccm",
            "aes-192-ccm",
            "aes-256-ccm",
            "aes-128-gcm",
            "aes-192-gcm",
            "aes-256-gcm",
        ]),
    ),
    ("exec", FILES, SWITCH),
    ("keyformat", BOTH, Rule::OneOf(&["raw", "hex", "passphrase"])),
    ("keylocation", BOTH, Rule::KeyFile),
    ("logbias", BOTH, Rule::OneOf(&["latency", "throughput"])),
    ("mountpoint", FILES, Rule::Mountpoint),
    ("normalization", FILES, Rule::OneOf(&["none", "formC", "formD", "formKC", "formKD"])),
    ("primarycache", BOTH, CACHING),
    ("quota", FILES, Rule::Size),
    ("readonly", BOTH, SWITCH),
    ("recordsize", FILES, Rule::PowerOfTwo(512, 16 << 20)),
    ("redundant_metadata", BOTH, Rule::OneOf(&["all", "most", "some", "none"])),
    ("refquota", FILES, Rule::Size),
    ("refreservation", BOTH, Rule::Size),
    ("relatime", FILES, SWITCH),
    ("reservation", BOTH, Rule::Size),
    ("secondarycache", BOTH, CACHING),
    ("setuid", FILES, SWITCH),
    ("snapdev", BOTH, Rule::OneOf(&["hidden", "visible"])),
    ("snapdir", FILES, Rule::OneOf(&["hidden", "visible", "disabled"])),
    ("special_small_blocks", FILES, Rule::PowerOfTwoOrZero(512, 1 << 20)),
    ("sync", BOTH, Rule::OneOf(&["standard", "always", "disabled"])),
    ("utf8only", FILES, SWITCH),
    ("volblocksize", &[Volume], Rule::PowerOfTwo(512, 16 << 20)),
    ("volmode", &[Volume], Rule::OneOf(&["default", "full", "dev", "none"])),
    ("xattr", FILES, Rule::OneOf(&["on", "off", "sa", "dir"])),
];

/// Collects the problems of the properties of `place`.
pub(super) fn problems(place: &str, owner: Owner, settings: &Settings, found: &mut Vec<String>) {
    for (name, value) in settings {
        let Some((_, owners, rule)) = TABLE.iter().find(|(known, ..)| known == name) else {
            found.push(format!("{place}: property {name} is unknown or not allowed in a layout"));
            continue;
        };
        if !owners.contains(&owner) {
            let of = match owner {
                Pool => "a pool",
                FileSystem => "a file system",
                Volume => "a volume",
            };
            found.push(format!("{place}: {of} has no property {name}"));
        } else if let Setting::Truth(truth) = value {
            let word = if *truth { "on" } else { "off" };
            found.push(format!("{place}: {name} = {truth}: write \"{word}\""));
        } else if let Err(right) = check(*rule, &value.to_string()) {
            found.push(format!("{place}: {name} = {value}: must be {right}"));
        }
    }
}

fn check(rule: Rule, value: &str) -> Result<(), String> {
    let need = |right: bool, text: String| if right { Ok(()) } else { Err(text) };
    let power = |least: u64, most: u64| {
        zfs_size(value).is_some_and(|size| size.is_power_of_two() && (least..=most).contains(&size))
    };
    match rule {
        Rule::OneOf(words) => need(words.contains(&value), words.join(", ")),
        Rule::PowerOfTwo(least, most) => {
            need(power(least, most), format!("a power of two, {least} to {most}"))
        }
        Rule::PowerOfTwoOrZero(least, most) => {
            let right = zfs_size(value) == Some(0) || power(least, most);
            need(right, format!("0 or a power of two, {least} to {most}"))
        }
        Rule::Number(least, most) => {
            let right = value.parse::<u64>().is_ok_and(|number| (least..=most).contains(&number));
            need(right, format!("{least} to {most}"))
        }
        Rule::Size => need(value == "none" || zfs_size(value).is_some(), "a size or none".into()),
        Rule::Compression => {
            let level = |prefix: &str, most: u64| {
                let level = value.strip_prefix(prefix).and_then(|level| level.parse::<u64>().ok());
                level.is_some_and(|level| (1..=most).contains(&level))
            };
            let plain = ["on", "off", "lz4", "lzjb", "zle", "gzip", "zstd", "zstd-fast"];
            let right = plain.contains(&value) || level("gzip-", 9) || level("zstd-", 19);
            need(right, "lz4, zstd, zstd-1 to zstd-19, gzip-1 to gzip-9, zle, on or off".into())
        }
        Rule::Mountpoint => need(
            value.starts_with('/') || value == "none" || value == "legacy",
            "an absolute path, none or legacy".into(),
        ),
        Rule::KeyFile => need(
            value.starts_with("file:///"),
            "file:///..., because nobody is prompted while a plan is applied".into(),
        ),
        Rule::Text => {
            let right = !value.is_empty() && value.chars().all(|c| (' '..='~').contains(&c));
            need(right, "printable ASCII".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(owner: Owner, name: &str, value: Setting) -> String {
        let mut found = Vec::new();
        problems("x", owner, &Settings::from([(name.to_owned(), value)]), &mut found);
        found.join("\n")
    }

    fn text(value: &str) -> Setting {
        Setting::Text(value.to_owned())
    }

    #[test]
    fn the_table_is_sorted_within_its_parts_and_has_no_doubles() {
        for (index, (name, owners, _)) in TABLE.iter().enumerate() {
            let before =
                TABLE[..index].iter().rev().find(|(_, o, _)| (*o == POOL) == (*owners == POOL));
            assert!(before.is_none_or(|(before, ..)| before < name), "{name}");
        }
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(said(FileSystem, "recordsize", text("1M")), "");
        assert_eq!(said(Pool, "ashift", Setting::Number(12)), "");
        assert_eq!(said(FileSystem, "compression", text("zstd-3")), "");
        assert_eq!(said(FileSystem, "special_small_blocks", Setting::Number(0)), "");
        assert!(said(FileSystem, "recordsize", text("100K")).contains("power of two"));
        assert!(said(FileSystem, "record_size", text("1M")).contains("unknown"));
        assert!(said(Volume, "recordsize", text("1M")).contains("a volume has no"));
        assert!(said(FileSystem, "atime", Setting::Truth(false)).contains("\"off\""));
        assert!(said(FileSystem, "compression", text("zstd-99")).contains("must be"));
        assert!(said(FileSystem, "keylocation", text("prompt")).contains("nobody is prompted"));
        assert!(said(FileSystem, "special_small_blocks", text("2M")).contains("must be"));
    }
}
