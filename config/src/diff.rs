//! What a reload would change, and when it takes effect.

use crate::schema::Config;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once, by `zgate reload` or SIGHUP.
    Live,
    /// After a restart.
    Restart,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::Restart => "restart",
        })
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Which key.
    pub key: String,
    /// Before; empty: it was not there.
    pub old: String,
    /// After; empty: it is gone.
    pub new: String,
    /// When it takes effect.
    pub effect: Effect,
}

fn flatten(config: &Config) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    let mut add = |prefix: &str, value: Result<toml::Value, toml::ser::Error>| {
        if let Ok(toml::Value::Table(table)) = value {
            for (key, value) in table {
                flat.insert(format!("{prefix}.{key}"), value.to_string());
            }
        }
    };
    add("server", toml::Value::try_from(&config.server));
    for export in &config.exports {
        add(&format!("export {}", export.pseudo), toml::Value::try_from(export));
    }
    for schedule in &config.snapshots {
        add(&format!("snapshot {}", schedule.dataset), toml::Value::try_from(schedule));
    }
    add("iscsi", toml::Value::try_from(&config.iscsi));
    for target in &config.targets {
        let name = format!("target {}", target.name);
        let mut bare = target.clone();
        for lun in std::mem::take(&mut bare.luns) {
            add(&format!("{name} lun {}", lun.number), toml::Value::try_from(&lun));
        }
        add(&name, toml::Value::try_from(&bare));
    }
    flat
}

fn effect_of(key: &str) -> Effect {
    // Secrets and who may ask are read again with everything about targets.
    if key == "iscsi.discovery_chap" {
        return Effect::Live;
    }
    if key.starts_with("server.") || key.starts_with("iscsi.") {
        Effect::Restart
    } else {
        Effect::Live
    }
}

/// All differences, by key.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let (old, new) = (flatten(old), flatten(new));
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    let value = |map: &BTreeMap<String, String>, key| map.get(key).cloned().unwrap_or_default();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| Change {
            key: key.clone(),
            old: value(&old, key),
            new: value(&new, key),
            effect: effect_of(key),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_and_labelled() {
        let old = Config::default();
        let mut new = old.clone();
        new.server.lease_seconds = 20;
        let text = "pseudo = \"/a\"\npath = \"/tank/a\"\n";
        new.exports.push(toml::from_str(text).unwrap());
        let changes = diff(&old, &new);
        let lease = changes.iter().find(|c| c.key == "server.lease_seconds").unwrap();
        assert_eq!((lease.old.as_str(), lease.new.as_str()), ("90", "20"));
        assert_eq!(lease.effect, Effect::Restart);
        let path = changes.iter().find(|c| c.key == "export /a.path").unwrap();
        assert_eq!((path.old.as_str(), path.effect), ("", Effect::Live));
        new.iscsi.max_sessions = 9;
        new.iscsi.discovery_chap =
            Some(toml::from_str("user = \"u\"\nsecret_file = \"/s\"\n").unwrap());
        let effect = |key: &str| {
            let changes = diff(&old, &new);
            changes.into_iter().find(|change| change.key == key).unwrap().effect
        };
        assert_eq!(effect("iscsi.max_sessions"), Effect::Restart);
        assert_eq!(effect("iscsi.discovery_chap"), Effect::Live);
        assert!(diff(&new, &new).is_empty());
    }
}
