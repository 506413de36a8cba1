//! iSCSI settings in the file: portals, targets, logical units and initiators.

use crate::rates::Rates;
use crate::schema::{ByteSize, Cidr};
use crate::text::as_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Port at which initiators expect targets (IANA, `iscsi-target`).
pub const ISCSI_PORT: u16 = 3260;

const fn yes() -> bool {
    true
}

/// CHAP name and the file that holds the secret; the secret itself never stands
/// in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChapConfig {
    /// CHAP name.
    pub user: String,
    /// File that holds the secret on one line.
    pub secret_file: PathBuf,
}

/// A further portal group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortalGroupConfig {
    /// Portal group tag.
    pub tag: u16,
    /// Addresses of its portals.
    #[serde(default, deserialize_with = "crate::text::list")]
    pub listen: Vec<SocketAddr>,
    /// Addresses of its portals over RDMA (iSER).
    #[serde(
        default,
        deserialize_with = "crate::text::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub iser_listen: Vec<SocketAddr>,
}

/// `[iscsi]`: the portals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IscsiConfig {
    /// Addresses of the portals of the first portal group.
    #[serde(deserialize_with = "crate::text::list")]
    pub listen: Vec<SocketAddr>,
    /// Addresses of its portals over RDMA (iSER). RDMA ports are separate from
    /// TCP ports: both may be 3260.
    #[serde(deserialize_with = "crate::text::list", skip_serializing_if = "Vec::is_empty")]
    pub iser_listen: Vec<SocketAddr>,
    /// Portal group tag of the first group.
    pub portal_group: u16,
    /// Initiators are warned when less than this part of the space behind a
    /// thin LUN is left, in percent; 0: never.
    pub thin_warning_percent: u8,
    /// The portal groups are those of two machines, of which one serves: a group
    /// without an address of this machine is in standby.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asymmetric: bool,
    /// Answers initiators for the machine that serves, without storage.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// Further portal groups.
    #[serde(rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<PortalGroupConfig>,
    /// CHAP credentials that a discovery session must present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery_chap: Option<ChapConfig>,
    /// Most sessions in total, three quarters of them from one host.
    pub max_sessions: usize,
}

impl IscsiConfig {
    /// Returns all TCP addresses of all portal groups.
    pub fn tcp_listen(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(self.groups.iter().flat_map(|group| &group.listen))
    }

    /// Returns all RDMA addresses of all portal groups.
    pub fn iser_listen(&self) -> impl Iterator<Item = &SocketAddr> {
        self.iser_listen.iter().chain(self.groups.iter().flat_map(|group| &group.iser_listen))
    }
}

impl Default for IscsiConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            iser_listen: Vec::new(),
            portal_group: 1,
            thin_warning_percent: 10,
            asymmetric: false,
            standby: false,
            groups: Vec::new(),
            discovery_chap: None,
            max_sessions: 256,
        }
    }
}

/// Use of the page cache by I/O. For files of an export see
/// `ExportConfig::direct_io`; for a LUN the values mean:
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectChoice {
    /// Bypass for devices that support it, page cache for files.
    #[default]
    Auto,
    /// Bypass; the LUN does not start if its store cannot do it.
    Always,
    /// Page cache.
    Never,
}

const fn sector() -> u32 {
    512
}

/// One logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LunConfig {
    /// Logical unit number.
    pub number: u16,
    /// A zvol, another block device, or a file.
    pub path: PathBuf,
    /// Size of the file, which is created if it is missing or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Refuses every modification.
    #[serde(default)]
    pub read_only: bool,
    /// Lets initiators eject and load the medium.
    #[serde(default)]
    pub removable: bool,
    /// Logical block size: 512 or 4096.
    #[serde(default = "sector")]
    pub block_bytes: u32,
    /// Physical block size in bytes, if it must differ from the store's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_block_bytes: Option<u32>,
    /// Unit serial number; derived from target and LUN when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// NAA identifier, 16 or 32 hexadecimal digits; derived when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naa: Option<NaaId>,
    /// Write cache at start; absent: off with `iscsi.asymmetric`, else the store's
    /// own setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Lets UNMAP free space where the store can.
    #[serde(default = "yes")]
    pub thin: bool,
    /// "auto", "always" or "never".
    #[serde(default)]
    pub direct: DirectChoice,
    /// Most reads and writes per second; further ones wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u64>,
    /// Most bytes per second that they move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_max: Option<ByteSize>,
}

impl LunConfig {
    /// Limits on its reads and writes.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates {
            iops_max: self.iops_max,
            bytes_per_second_max: self.bytes_per_second_max.map(|size| size.0),
        }
    }
}

/// Zvols found by name: each becomes a logical unit of the target, with a
/// number that it keeps and an identity derived from the zvol's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumesConfig {
    /// A zvol, or a pattern that matches many: `*` matches within one level, a
    /// `**` at the end matches one level or more.
    pub dataset: String,
    /// Lowest number that is assigned.
    #[serde(default)]
    pub first_number: u16,
    /// Refuses every modification.
    #[serde(default)]
    pub read_only: bool,
    /// Logical block size: 512 or 4096.
    #[serde(default = "sector")]
    pub block_bytes: u32,
    /// Physical block size in bytes, if it must differ from the store's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_block_bytes: Option<u32>,
    /// Write cache at start; absent: off with `iscsi.asymmetric`, else the store's
    /// own setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Lets UNMAP free space where the store can.
    #[serde(default = "yes")]
    pub thin: bool,
    /// "auto", "always" or "never".
    #[serde(default)]
    pub direct: DirectChoice,
    /// Most reads and writes per second; further ones wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u64>,
    /// Most bytes per second that they move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_max: Option<ByteSize>,
}

impl VolumesConfig {
    /// Limits on the reads and writes of each.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates {
            iops_max: self.iops_max,
            bytes_per_second_max: self.bytes_per_second_max.map(|size| size.0),
        }
    }

    /// Builds the logical unit of one zvol.
    #[must_use]
    pub fn unit(&self, number: u16, path: PathBuf, serial: String, naa: NaaId) -> LunConfig {
        LunConfig {
            number,
            path,
            size: None,
            read_only: self.read_only,
            removable: false,
            block_bytes: self.block_bytes,
            physical_block_bytes: self.physical_block_bytes,
            serial: Some(serial),
            naa: Some(naa),
            write_cache: self.write_cache,
            thin: self.thin,
            direct: self.direct,
            iops_max: self.iops_max,
            bytes_per_second_max: self.bytes_per_second_max,
        }
    }
}

/// An NAA identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NaaId {
    /// Eight bytes, first digit 2, 3 or 5.
    Short([u8; 8]),
    /// Sixteen bytes, first digit 6.
    Long([u8; 16]),
}

impl FromStr for NaaId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not an NAA identifier: 32 hexadecimal digits that start with 6, or \
                 16 that start with 2, 3 or 5"
            )
        };
        let digits = text.strip_prefix("naa.").unwrap_or(text);
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        match (digits.len(), digits.bytes().next()) {
            (32, Some(b'6')) => {
                let value = u128::from_str_radix(digits, 16).map_err(|_| wrong())?;
                Ok(Self::Long(value.to_be_bytes()))
            }
            (16, Some(b'2' | b'3' | b'5')) => {
                let value = u64::from_str_radix(digits, 16).map_err(|_| wrong())?;
                Ok(Self::Short(value.to_be_bytes()))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for NaaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Initiators that a rule applies to: one name, or all names with the same
/// beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    /// The name or its beginning, in lower case.
    pub text: String,
    /// Set if `text` is only the beginning of the name.
    pub prefix: bool,
}

impl NamePattern {
    /// Returns whether the pattern matches this initiator.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        if self.prefix { name.starts_with(&self.text) } else { name == self.text }
    }

    /// Returns whether the pattern matches everybody or nearly everybody: it
    /// ends before a naming authority.
    #[must_use]
    pub fn is_broad(&self) -> bool {
        let least = if self.text.starts_with("iqn.") { "iqn.2026-11.".len() } else { 10 };
        self.prefix && self.text.len() <= least
    }

    /// Returns whether the pattern matches every name that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        if self.prefix { other.text.starts_with(&self.text) } else { self == other }
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, prefix) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        if name.contains('*') {
            return Err(format!("\"{text}\": * is only allowed at the end"));
        }
        let name = name.to_lowercase();
        let begins = |kind: &&str| name.starts_with(*kind) || (prefix && kind.starts_with(&name));
        if !["iqn.", "eui.", "naa."].iter().any(begins) {
            return Err(format!(
                "\"{text}\" is not an initiator's name: it must begin with iqn., eui. or naa."
            ));
        }
        Ok(Self { text: name, prefix })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.prefix { "*" } else { "" })
    }
}

as_text! {
    NaaId: "an identifier of 32 hexadecimal digits that starts with 6, or of 16 with 2, 3 or 5",
    NamePattern: "an initiator's name, or its beginning and *, such as \"iqn.2026-11.org.example:*\""
}

/// An initiator that may use a target, and its rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitiatorConfig {
    /// The initiator's name, or the beginning of a name and a `*`.
    pub name: NamePattern,
    /// Networks it may connect from; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Cidr>,
    /// CHAP credentials the initiator must present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapConfig>,
    /// CHAP credentials the target presents to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapConfig>,
    /// LUNs visible to it; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub luns: Option<Vec<u16>>,
    /// Refuses it every modification of data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

const fn four() -> u32 {
    4
}

const fn two() -> u32 {
    2
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// iSCSI name of the target.
    pub name: String,
    /// Alias for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Admits initiators that no rule names.
    #[serde(default)]
    pub allow_any_initiator: bool,
    /// Most connections of one session.
    #[serde(default = "four")]
    pub max_connections: u32,
    /// Highest error recovery level: 0, 1 or 2.
    #[serde(default = "two")]
    pub error_recovery_level: u32,
    /// Its logical units.
    #[serde(default, rename = "lun", skip_serializing_if = "Vec::is_empty")]
    pub luns: Vec<LunConfig>,
    /// Zvols that become logical units when they are found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumesConfig>,
    /// Rules for initiators; the first match applies.
    #[serde(default, rename = "initiator", skip_serializing_if = "Vec::is_empty")]
    pub initiators: Vec<InitiatorConfig>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_exactly_or_by_their_beginning() {
        let exact: NamePattern = "iqn.2026-01.test:A".parse().unwrap();
        assert!(exact.matches("iqn.2026-01.test:a") && !exact.matches("iqn.2026-01.test:ab"));
        let start: NamePattern = "iqn.2026-01.test:*".parse().unwrap();
        assert!(start.covers(&exact) && start.covers(&start) && !exact.covers(&start));
        assert!(start.matches("iqn.2026-01.test:ab") && !start.matches("iqn.2026-01.tes"));
        for wrong in ["iqn.a*b", "joe", "j*", "", "iqx.*"] {
            assert!(wrong.parse::<NamePattern>().is_err(), "{wrong}");
        }
        for broad in ["*", "i*", "iqn.*", "iqn.2026-11.*", "naa.*"] {
            assert!(broad.parse::<NamePattern>().unwrap().is_broad(), "{broad}");
        }
        for right in ["iqn.1993-08.org.debian:01:*", "naa.52004567BA64678D", "eui.02004567a*"] {
            assert!(!right.parse::<NamePattern>().unwrap().is_broad(), "{right}");
        }
    }

    #[test]
    fn naa_identifiers_are_checked() {
        let long = "6025a470000000000000000000000001";
        assert_eq!(long.parse::<NaaId>().unwrap().to_string(), long);
        assert!("naa.5000000000000001".parse::<NaaId>().is_ok());
        for wrong in ["6025", "5025a470000000000000000000000001", "x", ""] {
            assert!(wrong.parse::<NaaId>().is_err(), "{wrong}");
        }
    }
}
