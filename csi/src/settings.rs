//! The controller's settings: gateways, their credentials and zones.

use crate::limits::{MAX_GATEWAYS, MAX_PARENTS, MAX_PLACE_BYTES};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Zone of a node or a gateway for which none is named.
pub const DEFAULT_ZONE: &str = "default";

/// Settings of the driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Party that all volumes of this driver belong to: one per cluster.
    pub owner: String,
    /// The gateways, in the order of preference.
    #[serde(rename = "gateway")]
    pub gateways: Vec<GatewaySettings>,
}

/// One gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySettings {
    /// Name, part of the ids of its volumes. It stays for good.
    pub name: String,
    /// Address of its API: `https://host:port`, or `unix:` and the path of the
    /// API's socket.
    pub url: String,
    /// Address that nodes use where the gateway listens on all; by default the
    /// host of the URL.
    #[serde(default)]
    pub address: Option<String>,
    /// File with the token of the role `admin`.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// File with the certificates that the gateway's is verified with.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// File with the driver's own certificates, for mTLS.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    /// File with the key of that certificate.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// Zones whose nodes reach it.
    #[serde(default = "default_zones")]
    pub zones: Vec<String>,
    /// Datasets below which volumes are made, in the order of preference.
    pub parents: Vec<String>,
}

fn default_zones() -> Vec<String> {
    vec![DEFAULT_ZONE.to_owned()]
}

/// A fault of the settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("settings {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is no TOML, or has an unknown key.
    #[error("settings: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value breaks a rule.
    #[error("settings: {0}")]
    Rule(String),
    /// The text of a file has a fault.
    #[error("settings {path}: {fault}")]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        fault: String,
    },
}

impl Settings {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file, the fault and the key that has it.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|error| {
            let fault = match error {
                SettingsError::Syntax(fault) => fault.to_string(),
                SettingsError::Rule(fault) => fault,
                known => return known,
            };
            SettingsError::File { path: path.to_owned(), fault }
        })
    }

    /// Parses and checks a text.
    ///
    /// # Errors
    /// The fault and the key that has it.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let settings: Self = toml::from_str(text)?;
        settings.check().map_err(SettingsError::Rule)?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        check_name("owner", &self.owner)?;
        if self.gateways.is_empty() || self.gateways.len() > MAX_GATEWAYS {
            return Err(format!("name 1 to {MAX_GATEWAYS} gateways, as [[gateway]]"));
        }
        let names: BTreeSet<_> = self.gateways.iter().map(|gateway| &gateway.name).collect();
        if names.len() < self.gateways.len() {
            return Err("two gateways have the same name; ids of volumes begin with it".to_owned());
        }
        self.gateways.iter().try_for_each(GatewaySettings::check)
    }
}

impl GatewaySettings {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        check_name("gateway name", name)?;
        if self.parents.is_empty() || self.parents.len() > MAX_PARENTS {
            return Err(format!("gateway {name}: name 1 to {MAX_PARENTS} parents"));
        }
        for parent in &self.parents {
            if name.len() + 1 + parent.len() > MAX_PLACE_BYTES {
                return Err(format!(
                    "gateway {name}: `{name}:{parent}` is longer than {MAX_PLACE_BYTES} bytes, and \
                     ids of volumes would be longer than CSI allows; choose a shorter name"
                ));
            }
        }
        for zone in &self.zones {
            check_name("zone", zone)?;
        }
        let is_local = self.url.starts_with("unix:/");
        if !is_local && !self.url.starts_with("https://") {
            return Err(format!(
                "gateway {name}: url is neither https://host:port nor unix:/path; a token is never \
                 sent without TLS"
            ));
        }
        if is_local && self.address.is_none() {
            return Err(format!("gateway {name}: nodes need `address` beside a Unix socket"));
        }
        if !is_local && self.ca_file.is_none() {
            return Err(format!("gateway {name}: `ca_file` is missing; it verifies the gateway"));
        }
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return Err(format!("gateway {name}: certificate_file and key_file go together"));
        }
        if !is_local && self.token_file.is_none() && self.key_file.is_none() {
            return Err(format!(
                "gateway {name}: name a token_file, or certificate_file and key_file"
            ));
        }
        Ok(())
    }

    /// Address that nodes use where the gateway listens on all.
    #[must_use]
    pub fn node_address(&self) -> &str {
        self.address.as_deref().unwrap_or_else(|| {
            let rest = self.url.trim_start_matches("https://");
            let authority = rest.split('/').next().unwrap_or(rest);
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            host.trim_start_matches('[').trim_end_matches(']')
        })
    }
}

/// Checks a word that becomes part of ids, labels and ZFS properties.
fn check_name(key: &str, name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= 63 && name.chars().all(allowed) {
        return Ok(());
    }
    Err(format!("{key} {name:?}: use letters, digits, - _ and ., at most 63"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        owner = "cluster-a"
        [[gateway]]
        name = "a"
        url = "https://10.0.0.1:9049"
        ca_file = "/etc/ca.pem"
        token_file = "/etc/token"
        parents = ["zfast/k8s"]
    "#;

    #[test]
    fn a_host_is_taken_from_the_url() {
        let settings = Settings::parse(GOOD).unwrap();
        assert_eq!(settings.gateways[0].node_address(), "10.0.0.1");
        assert_eq!(settings.gateways[0].zones, [DEFAULT_ZONE]);
        let v6 = GOOD.replace("10.0.0.1:", "[fd00::1]:");
        assert_eq!(Settings::parse(&v6).unwrap().gateways[0].node_address(), "fd00::1");
    }

    #[test]
    fn a_fault_of_a_file_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.toml");
        let said = || Settings::read(&file).unwrap_err().to_string();
        let name = format!("settings {}: ", file.display());
        assert!(said().starts_with(&name), "{}", said());
        for (before, after, says) in
            [("https:", "http:", "neither https"), ("owner", "ownr", "ownr")]
        {
            std::fs::write(&file, GOOD.replacen(before, after, 1)).unwrap();
            assert!(said().starts_with(&name) && said().contains(says), "{}", said());
        }
    }

    #[test]
    fn each_rule_names_its_key() {
        let rules = [
            ("https:", "http:", "neither https"),
            ("ca_file = \"/etc/ca.pem\"", "", "ca_file"),
            ("token_file = \"/etc/token\"", "", "token_file"),
            ("[\"zfast/k8s\"]", "[]", "parents"),
            ("zfast/k8s", "zfast/a-name-that-is-far-longer-than-ids-of-csi-allow", "shorter"),
            ("cluster-a", "cluster a", "owner"),
            ("name = \"a\"", "name = \"a:b\"", "gateway name"),
            ("name = \"a\"", "name = \"a\"\nkey_file = \"/k\"", "certificate_file"),
            ("owner", "ownr", "ownr"),
        ];
        for (before, after, says) in rules {
            let error = Settings::parse(&GOOD.replacen(before, after, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{after}: {error}");
        }
    }
}
