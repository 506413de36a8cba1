//! Kerberos settings in the file (RFC 2203).

use crate::problem::{Findings, Place};
use crate::schema::Config;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Flavours of Kerberos in `security`.
const FLAVORS: [&str; 3] = ["krb5", "krb5i", "krb5p"];

fn default_keytab() -> PathBuf {
    PathBuf::from("/etc/krb5.keytab")
}

/// `[kerberos]`: NFS clients may prove who their users are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KerberosConfig {
    /// File with the server's keys.
    #[serde(default = "default_keytab")]
    pub keytab: PathBuf,
    /// Principal whose keys are used, such as "nfs/host.example.org"; absent:
    /// all keys of service `nfs` in the keytab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Local users by principal ("alice@EXAMPLE.ORG"), where the rules of
    /// krb5.conf do not name the right one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, String>,
}

/// Adds the problems of the Kerberos settings, and of exports that accept it
/// though it is not configured.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let place = |key| Place::root("kerberos").key(key);
    if let Some(kerberos) = &config.kerberos {
        if !kerberos.keytab.is_absolute() {
            found.add(place("keytab"), "not an absolute path", "begin it with /");
        }
        if kerberos.principal.as_ref().is_some_and(|principal| !principal.contains('/')) {
            let next = "write service and host, for example \"nfs/host.example.org\"";
            found.add(place("principal"), "not the principal of a service", next);
        }
        for (principal, user) in &kerberos.users {
            if !principal.contains('@') {
                let problem = format!("\"{principal}\" has no realm");
                found.add(place("users"), problem, "write it as in a ticket: name@REALM");
            }
            if user.is_empty() {
                let problem = format!("\"{principal}\" has no user");
                found.add(place("users"), problem, "name a local user");
            }
        }
        return;
    }
    for (index, export) in config.exports.iter().enumerate() {
        let place = Place::root("export").item(index);
        for (index, client) in export.clients.iter().enumerate() {
            let place = place.key("clients").item(index).key("security");
            for (index, flavor) in client.security.iter().enumerate() {
                if FLAVORS.contains(&flavor.as_str()) {
                    let next = "add [kerberos], or leave the flavour out";
                    let problem = "it needs Kerberos, which is not configured";
                    found.absent(place.item(index), problem, next);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    fn export(flavor: &str) -> String {
        format!(
            "[[export]]\npath = \"/a\"\npseudo = \"/a\"\n\
             clients = [{{ match = \"*\", security = [\"{flavor}\"] }}]\n"
        )
    }

    #[test]
    fn an_export_accepts_only_what_is_configured() {
        let said =
            |text: &str| parse(text, Path::new("zgate.toml")).err().map(|error| error.to_string());
        for flavor in super::FLAVORS {
            assert!(said(&export(flavor)).unwrap().contains("[kerberos]"));
            assert_eq!(said(&format!("[kerberos]\n{}", export(flavor))), None);
        }
        assert_eq!(said(&export("sys")), None);
        assert!(said(&export("krb4")).unwrap().contains("krb5p"));
        let relative = said("[kerberos]\nkeytab = \"krb5.keytab\"\n").unwrap();
        assert!(relative.contains("kerberos.keytab"), "{relative}");
        let user = said("[kerberos]\nprincipal = \"alice\"\n").unwrap();
        assert!(user.contains("nfs/host"), "{user}");
        let map = "[kerberos]\nusers = { \"alice\" = \"alice\", \"b@R\" = \"\" }\n";
        let map = said(map).unwrap();
        assert!(map.contains("has no realm") && map.contains("has no user"), "{map}");
    }

    #[test]
    fn defaults_and_reloads() {
        let with = |text: &str| parse(text, Path::new("x")).unwrap();
        let (old, new) = (with(""), with("[kerberos]\nusers = { \"a@R\" = \"a\" }\n"));
        let kerberos = new.kerberos.clone().unwrap();
        assert_eq!(kerberos.keytab, Path::new("/etc/krb5.keytab"));
        assert_eq!(kerberos.users["a@R"], "a");
        let changes = crate::diff(&old, &new);
        assert!(!changes.is_empty());
        assert!(changes.iter().all(|change| change.effect == crate::Effect::Live), "{changes:?}");
        assert_eq!(crate::after_reload(&old, new.clone()).kerberos, new.kerberos);
        let entries = crate::changed_entries(&old, &new);
        assert!(entries.iter().any(|change| change.entry == "kerberos"), "{entries:?}");
    }
}
