//! Differences between two configurations by entry: exports and their rules,
//! targets, their logical units and rules, and single keys of the other tables.

use crate::diff::{Effect, effect_of};
use crate::schema::{Cidr, ClientMatch, Config};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use toml::Value;

/// Change of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryEvent {
    /// It is new.
    Added,
    /// It no longer exists.
    Removed,
    /// Some of its keys differ.
    Changed,
}

impl fmt::Display for EntryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        })
    }
}

/// One entry that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryChange {
    /// Its kind and name, for example `export /models`.
    pub entry: String,
    /// Its change.
    pub event: EntryEvent,
    /// Content of an added entry; keys that differ, with the old and the new
    /// value, of a changed one: those that take effect at the same time.
    pub detail: String,
    /// Time at which the change takes effect.
    pub effect: Effect,
}

/// Keys of one entry.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// Prefix of its keys in [`crate::diff()`].
    prefix: String,
    /// The key that says most about an added entry.
    content: &'static str,
    keys: BTreeMap<String, String>,
}

/// All entries of a configuration, by name.
#[derive(Default)]
struct Entries(BTreeMap<String, Entry>);

/// Shows a value as in a sentence: without quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Names the clients of a rule; a single host without its prefix length.
fn host(matches: &ClientMatch) -> String {
    match matches {
        ClientMatch::Network(Cidr(net)) if net.prefix_len() == net.max_prefix_len() => {
            net.addr().to_string()
        }
        other => other.to_string(),
    }
}

impl Entries {
    /// Adds an entry; one of the same name gets a number.
    fn add(&mut self, name: &str, prefix: &str, content: &'static str, fields: impl Serialize) {
        let Ok(Value::Table(table)) = Value::try_from(fields) else { return };
        let keys = table.iter().map(|(key, value)| (key.clone(), shown(value))).collect();
        let twins = self.0.keys().filter(|known| **known == name || is_twin(known, name)).count();
        let name = if twins == 0 { name.to_owned() } else { format!("{name} #{}", twins + 1) };
        self.0.insert(name, Entry { prefix: prefix.to_owned(), content, keys });
    }

    fn of(config: &Config) -> Self {
        let mut entries = Self::default();
        let tables = [
            ("server", Value::try_from(&config.server)),
            ("rdma", Value::try_from(&config.rdma)),
            ("iscsi", Value::try_from(&config.iscsi)),
            ("api", Value::try_from(&config.api)),
        ];
        for (name, table) in tables {
            if let Ok(table) = table {
                entries.add(name, name, "", table);
            }
        }
        if let Some(tls) = &config.tls {
            entries.add("tls", "tls", "certificate", tls);
        }
        if let Some(kerberos) = &config.kerberos {
            entries.add("kerberos", "kerberos", "keytab", kerberos);
        }
        for parent in &config.volumes.parents {
            let name = format!("volumes parent {}", parent.dataset);
            entries.add(&name, &name, "dataset", parent);
        }
        for interface in &config.interfaces {
            let name = format!("interface {}", interface.address);
            entries.add(&name, &name, "role", interface);
        }
        for export in &config.exports {
            let name = format!("export {}", export.pseudo);
            let mut bare = export.clone();
            let rules = std::mem::take(&mut bare.clients);
            let content = if bare.path.is_some() { "path" } else { "dataset" };
            entries.add(&name, &name, content, &bare);
            entries.order(&name, rules.iter().map(|rule| host(&rule.matches)));
            for rule in &rules {
                let rule_name = format!("rule {} of {name}", host(&rule.matches));
                entries.add(&rule_name, &name, "access", rule);
            }
        }
        for target in &config.targets {
            let name = format!("target {}", target.name);
            let mut bare = target.clone();
            let luns = std::mem::take(&mut bare.luns);
            let volumes = std::mem::take(&mut bare.volumes);
            let rules = std::mem::take(&mut bare.initiators);
            entries.add(&name, &name, "", &bare);
            entries.order(&name, rules.iter().map(|rule| rule.name.to_string()));
            for lun in &luns {
                entries.add(&format!("LUN {} of {name}", lun.number), &name, "path", lun);
            }
            for zvols in &volumes {
                entries.add(&format!("zvols {} of {name}", zvols.dataset), &name, "", zvols);
            }
            for rule in &rules {
                entries.add(&format!("rule {} of {name}", rule.name), &name, "luns", rule);
            }
        }
        for schedule in &config.snapshots {
            let name = format!("snapshots of {}", schedule.dataset);
            entries.add(&name, &format!("snapshot {}", schedule.dataset), "", schedule);
        }
        entries
    }

    /// Records the order of an entry's rules: the first match applies.
    fn order(&mut self, name: &str, rules: impl Iterator<Item = String>) {
        if let Some(entry) = self.0.get_mut(name) {
            entry.keys.insert(ORDER.to_owned(), rules.collect::<Vec<_>>().join(" "));
        }
    }
}

/// Name under which the order of rules is compared.
const ORDER: &str = "order of rules";

fn is_twin(known: &str, name: &str) -> bool {
    let rest = known.strip_prefix(name).and_then(|rest| rest.strip_prefix(" #"));
    rest.is_some_and(|number| number.parse::<usize>().is_ok())
}

impl Entry {
    fn effect(&self, keys: &BTreeSet<&str>) -> Effect {
        let effects = keys.iter().map(|key| effect_of(&format!("{}.{key}", self.prefix)));
        let rank = |effect: &Effect| match effect {
            Effect::Live => 0,
            Effect::NewConnections => 1,
            Effect::Restart => 2,
        };
        effects.max_by_key(rank).unwrap_or(Effect::Live)
    }

    /// Returns the change to another state of the entry.
    fn change_to(&self, new: &Self, name: &str) -> Vec<EntryChange> {
        let all: BTreeSet<&str> =
            self.keys.keys().chain(new.keys.keys()).map(String::as_str).collect();
        let value = |entry: &Self, key: &str| {
            entry
                .keys
                .get(key)
                .filter(|value| !value.is_empty())
                .map_or("none", String::as_str)
                .to_owned()
        };
        let differs = |key: &&&str| self.keys.get(**key) != new.keys.get(**key);
        let mut keys: BTreeSet<&str> = all.iter().filter(differs).copied().collect();
        // Rules that were added or removed have entries of their own.
        let sorted = |entry: &Self| {
            let mut rules: Vec<_> = value(entry, ORDER).split(' ').map(str::to_owned).collect();
            rules.sort();
            rules
        };
        if keys.contains(ORDER) && sorted(self) != sorted(new) {
            keys.remove(ORDER);
        }
        let line = |key: &&str| format!("{key} {} -> {}", value(self, key), value(new, key));
        let changed = |entry: String, keys: &BTreeSet<&str>| EntryChange {
            entry,
            event: EntryEvent::Changed,
            detail: keys.iter().map(line).collect::<Vec<_>>().join(", "),
            effect: new.effect(keys),
        };
        if keys.is_empty() {
            return Vec::new();
        }
        // The tables of the process have no common topic: one line for each key.
        if ["server", "rdma", "iscsi"].contains(&name) {
            let one = |key: &str| changed(name.to_owned(), &BTreeSet::from([key]));
            return keys.iter().map(|key| one(key)).collect();
        }
        // What takes effect at once is not said to wait for the rest.
        let of = |effect: Effect| {
            let is_then = |key: &&str| new.effect(&BTreeSet::from([*key])) == effect;
            keys.iter().copied().filter(is_then).collect::<BTreeSet<&str>>()
        };
        let groups = [Effect::Live, Effect::NewConnections, Effect::Restart].map(of);
        let groups = groups.iter().filter(|group| !group.is_empty());
        groups.map(|group| changed(name.to_owned(), group)).collect()
    }
}

/// Lists the entries that differ, by name.
#[must_use]
pub fn changed_entries(old: &Config, new: &Config) -> Vec<EntryChange> {
    let (old, new) = (Entries::of(old).0, Entries::of(new).0);
    let mut changes = Vec::new();
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let alone = |name: &str, entry: &Entry, event| EntryChange {
        entry: name.to_owned(),
        event,
        detail: entry.keys.get(entry.content).cloned().unwrap_or_default(),
        effect: entry.effect(&BTreeSet::from([""])),
    };
    for name in names {
        match (old.get(name), new.get(name)) {
            (Some(before), Some(after)) => changes.extend(before.change_to(after, name)),
            (None, Some(after)) => changes.push(alone(name, after, EntryEvent::Added)),
            (Some(before), None) => changes.push(alone(name, before, EntryEvent::Removed)),
            (None, None) => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(old: &str, new: &str) -> Vec<String> {
        let read = |text: &str| toml::from_str::<Config>(text).unwrap();
        let changes = changed_entries(&read(old), &read(new));
        let line = |one: EntryChange| {
            format!("{} {} ({}) {}", one.event, one.entry, one.detail, one.effect)
        };
        changes.into_iter().map(line).collect()
    }

    const ONE: &str = "[[export]]\npath = \"/tank/a\"\npseudo = \"/a\"\n";

    #[test]
    fn an_export_that_is_added_or_removed_is_one_line() {
        let two = format!("{ONE}[[export]]\ndataset = \"tank/b/*\"\npseudo = \"/b\"\n");
        assert_eq!(lines(ONE, &two), ["added export /b (tank/b/*) live"]);
        assert_eq!(lines(&two, ONE), ["removed export /b (tank/b/*) live"]);
        assert!(lines(&two, &two).is_empty());
    }

    #[test]
    fn keys_of_one_entry_and_time_are_on_one_line_and_rules_have_their_own() {
        let rule =
            |net: &str, access: &str| format!("{{ match = \"{net}\", access = \"{access}\" }}");
        let with = |rules: &[String]| format!("{ONE}clients = [{}]\n", rules.join(", "));
        let (a, b) = (rule("10.0.0.1", "ro"), rule("10.0.0.2", "rw"));
        let old = with(&[a.clone(), b.clone()]);
        assert_eq!(
            lines(&old, &with(&[b.clone(), a])),
            ["changed export /a (order of rules 10.0.0.1 10.0.0.2 -> 10.0.0.2 10.0.0.1) live"]
        );
        let new = with(&[rule("10.0.0.1", "rw"), rule("10.0.0.3", "ro")])
            + "read_only = true\nmax_transfer = \"2MiB\"\ndelegations = false\n";
        assert_eq!(
            lines(&old, &new),
            [
                "changed export /a (delegations true -> false, read_only false -> true) live",
                "changed export /a (max_transfer 1MiB -> 2MiB) new connections",
                "changed rule 10.0.0.1 of export /a (access ro -> rw) live",
                "removed rule 10.0.0.2 of export /a (rw) live",
                "added rule 10.0.0.3 of export /a (ro) live",
            ]
        );
    }

    #[test]
    fn what_the_api_has_at_once_does_not_wait_for_its_addresses() {
        let api = "[api]\nadmin_clients = [\"a\"]\nlisten = [\"127.0.0.1:9470\"]\n";
        let found = lines("", api);
        let [live, restart] = found.as_slice() else { panic!("{found:?}") };
        assert!(live.starts_with("changed api (admin_clients ") && live.ends_with(") live"));
        assert!(restart.starts_with("changed api (listen ") && restart.ends_with(") restart"));
    }

    #[test]
    fn units_and_keys_of_the_process_have_their_own_lines() {
        let target = "[[target]]\nname = \"iqn.2026-11.test:vm\"\nallow_any_initiator = true\n";
        let lun = "[[target.lun]]\nnumber = 3\npath = \"/srv/3.img\"\n";
        let server = "[server]\nlease_seconds = 20\ncores = 2\n";
        assert_eq!(
            lines(target, &format!("{server}{target}{lun}")),
            [
                "added LUN 3 of target iqn.2026-11.test:vm (/srv/3.img) live",
                "changed server (cores 0 -> 2) restart",
                "changed server (lease_seconds 90 -> 20) restart",
            ]
        );
    }
}
