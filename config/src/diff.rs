//! Differences between two configurations, and when each takes effect.

use crate::schema::Config;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Time at which a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once, by `zgate reload` or SIGHUP.
    Live,
    /// At once for clients that connect, mount or log in from then on;
    /// established connections keep the old value.
    NewConnections,
    /// After a restart.
    Restart,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::NewConnections => "new connections",
            Self::Restart => "restart",
        })
    }
}

/// One difference between two configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Key that differs.
    pub key: String,
    /// Old value; empty if the key was absent.
    pub old: String,
    /// New value; empty if the key was removed.
    pub new: String,
    /// Time at which the change takes effect.
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
    add("rdma", toml::Value::try_from(&config.rdma));
    if let Some(tls) = &config.tls {
        add("tls", toml::Value::try_from(tls));
    }
    if let Some(kerberos) = &config.kerberos {
        add("kerberos", toml::Value::try_from(kerberos));
    }
    add("api", toml::Value::try_from(&config.api));
    for parent in &config.volumes.parents {
        add(&format!("volumes parent {}", parent.dataset), toml::Value::try_from(parent));
    }
    for interface in &config.interfaces {
        add(&format!("interface {}", interface.address), toml::Value::try_from(interface));
    }
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

pub(crate) fn effect_of(key: &str) -> Effect {
    // CHAP secrets and initiator rules are read again whenever a target
    // changes; the times for following datasets are read again with the
    // exports; the directory of further files with the main file, as is the
    // token of the status address.
    const LIVE: [&str; 6] = [
        "iscsi.discovery_chap",
        "server.rescan_seconds",
        "server.away_seconds",
        "server.conf_dir",
        "server.id_domain",
        "server.status_token_file",
    ];
    if LIVE.contains(&key) {
        return Effect::Live;
    }
    if ["server.", "rdma.", "interface ", "iscsi.", "api.listen", "api.socket"]
        .iter()
        .any(|table| key.starts_with(table))
    {
        return Effect::Restart;
    }
    // Values that a client learns once, when it mounts (FSINFO, maxread) or
    // logs in.
    const SETTLED_ONCE: [(&str, &str); 4] = [
        ("export ", ".max_transfer"),
        ("target ", ".alias"),
        ("target ", ".max_connections"),
        ("target ", ".error_recovery_level"),
    ];
    let settled = |(begin, end): &(&str, &str)| key.starts_with(begin) && key.ends_with(end);
    if SETTLED_ONCE.iter().any(settled) { Effect::NewConnections } else { Effect::Live }
}

/// Returns the configuration in force after a reload of `new`: keys that need a
/// restart keep their running value and are reported as different until the
/// restart.
#[must_use]
pub fn after_reload(running: &Config, new: Config) -> Config {
    let discovery_chap = new.iscsi.discovery_chap.clone();
    Config {
        server: crate::ServerConfig {
            rescan_seconds: new.server.rescan_seconds,
            away_seconds: new.server.away_seconds,
            conf_dir: new.server.conf_dir,
            id_domain: new.server.id_domain,
            status_token_file: new.server.status_token_file,
            ..running.server.clone()
        },
        rdma: running.rdma.clone(),
        api: crate::ApiConfig {
            socket: running.api.socket.clone(),
            listen: running.api.listen.clone(),
            ..new.api
        },
        interfaces: running.interfaces.clone(),
        iscsi: crate::IscsiConfig { discovery_chap, ..running.iscsi.clone() },
        ..new
    }
}

/// Lists all differences, by key.
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
        let running = after_reload(&old, new.clone());
        let pending = diff(&running, &new);
        assert!(pending.iter().any(|c| c.key == "server.lease_seconds"));
        assert!(pending.iter().all(|c| c.effect == Effect::Restart), "{pending:?}");
    }

    #[test]
    fn each_key_of_an_export_has_its_moment() {
        let text = "pseudo = \"/a\"\npath = \"/tank/a\"\n";
        let mut old = Config::default();
        old.exports.push(toml::from_str(text).unwrap());
        let mut new = old.clone();
        new.exports[0].max_transfer = crate::ByteSize(2 << 20);
        new.exports[0].sync_names = false;
        new.exports[0].delegated_times = true;
        new.exports[0].require_reserved_port = true;
        new.exports[0].read_only = true;
        let changes = diff(&old, &new);
        let effects: Vec<_> = changes.iter().map(|c| (c.key.as_str(), c.effect)).collect();
        let expected = [
            ("export /a.delegated_times", Effect::Live),
            ("export /a.max_transfer", Effect::NewConnections),
            ("export /a.read_only", Effect::Live),
            ("export /a.require_reserved_port", Effect::Live),
            ("export /a.sync_names", Effect::Live),
        ];
        assert_eq!(effects, expected);
        assert_eq!(Effect::NewConnections.to_string(), "new connections");
    }
}
