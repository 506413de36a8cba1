//! Names of datasets and ids of CSI. A name follows from the request alone: after
//! a lost reply or a restart, the same request finds the same dataset.

use crate::limits::{
    MAX_ACCESS_NAME_BYTES, MAX_NODE_ID_BYTES, MAX_SNAPSHOT_NAME_BYTES, MAX_VOLUME_NAME_BYTES,
};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Beginning of the names of snapshots that belong to a group.
const GROUP: &str = "group-";
/// Bytes of the hash in a shortened name.
const HASH_BYTES: usize = 10;

/// Returns the dataset's name for the name of a request: the same, if ZFS and the
/// length allow it, or its beginning and a hash.
#[must_use]
pub fn volume_name(asked: &str) -> String {
    shortened(asked, MAX_VOLUME_NAME_BYTES)
}

/// Returns the snapshot's name for the name of a request.
#[must_use]
pub fn snapshot_name(asked: &str) -> String {
    if asked.starts_with(GROUP) {
        hashed("s", asked)
    } else {
        shortened(asked, MAX_SNAPSHOT_NAME_BYTES)
    }
}

/// Returns the name of a group's snapshots for the name of a request.
#[must_use]
pub fn group_name(asked: &str) -> String {
    hashed("group", asked)
}

/// Returns whether a snapshot of this name belongs to a group.
#[must_use]
pub fn is_of_group(snapshot: &str) -> bool {
    snapshot.starts_with(GROUP)
}

fn allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

fn shortened(asked: &str, max_bytes: usize) -> String {
    let starts_well = asked.starts_with(|first: char| first.is_ascii_alphanumeric());
    // Names with a hash are not taken over: another request's could be the same.
    let hash_like = asked.len() > 2 * HASH_BYTES && asked.starts_with("h-");
    if starts_well && !hash_like && asked.len() <= max_bytes && asked.chars().all(allowed) {
        return asked.to_owned();
    }
    hashed("h", asked)
}

fn hashed(prefix: &str, asked: &str) -> String {
    let digest = Sha256::digest(asked.as_bytes());
    let hex: String = digest[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}-{hex}")
}

/// Id of a volume: `gateway:dataset`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId {
    /// Name of the gateway in the settings.
    pub gateway: String,
    /// Id of the volume at the gateway: its dataset.
    pub dataset: String,
}

impl VolumeId {
    /// Creates an id.
    pub fn new(gateway: impl Into<String>, dataset: impl Into<String>) -> Self {
        Self { gateway: gateway.into(), dataset: dataset.into() }
    }

    /// Parses an id. None: the driver has given no such id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (gateway, dataset) = text.split_once(':')?;
        let well = !gateway.is_empty() && dataset.contains('/') && !dataset.contains('@');
        well.then(|| Self::new(gateway, dataset))
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.gateway, self.dataset)
    }
}

/// Id of a snapshot: `gateway:dataset@name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId {
    /// The volume that it is of.
    pub volume: VolumeId,
    /// Name of the snapshot.
    pub name: String,
}

impl SnapshotId {
    /// Parses an id. None: the driver has given no such id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (volume, name) = text.split_once('@')?;
        let volume = VolumeId::parse(volume)?;
        (!name.is_empty()).then(|| Self { volume, name: name.to_owned() })
    }

    /// Id at the gateway.
    #[must_use]
    pub fn at_gateway(&self) -> String {
        format!("{}@{}", self.volume.dataset, self.name)
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.name)
    }
}

/// Id of a group of snapshots: `gateway:name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupId {
    /// Name of the gateway in the settings.
    pub gateway: String,
    /// Name that each snapshot of the group has.
    pub name: String,
}

impl GroupId {
    /// Parses an id. None: the driver has given no such id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (gateway, name) = text.split_once(':')?;
        let well = !gateway.is_empty() && is_of_group(name) && name.chars().all(allowed);
        well.then(|| Self { gateway: gateway.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.gateway, self.name)
    }
}

/// A node's name, addresses and initiator. Its id carries all three, so that the
/// controller needs no other source for them: `name;address,address;initiator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Addresses that it connects from.
    pub addresses: Vec<IpAddr>,
    /// Its iSCSI initiator name.
    pub initiator: Option<String>,
}

impl FromStr for Node {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(';');
        let (Some(name), Some(addresses), Some(initiator), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let addresses: Result<Vec<IpAddr>, _> = addresses.split(',').map(str::parse).collect();
        let node = Self {
            name: name.to_owned(),
            addresses: addresses.map_err(drop)?,
            initiator: Some(initiator.to_owned()).filter(|name| !name.is_empty()),
        };
        node.is_valid().then_some(node).ok_or(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let initiator = self.initiator.as_deref().unwrap_or_default();
        write!(f, "{};{};{initiator}", self.name, addresses.join(","))
    }
}

/// Characters of a node's id that a gateway's name of a node may not have, and the
/// letter that stands for each after `_`.
const ESCAPES: [(char, char); 4] = [('_', '_'), (';', 's'), (',', 'k'), (':', 'c')];
/// End of a node's name at the gateway if the node may only read.
const READ_ONLY: &str = "_r";
/// End of a node's name at the gateway if the node may write.
const READ_WRITE: &str = "_w";

/// Returns whether a text is an iSCSI name (RFC 7143 section 4.2.7) in small letters. The
/// underscore, which real names have with that of a host, is taken, as the gateway does.
#[must_use]
pub fn is_initiator(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:_".contains(c);
    let is_form = ["iqn.", "eui.", "naa."].iter().any(|form| text.starts_with(form));
    is_form && text.chars().all(allowed)
}

impl Node {
    /// Returns whether the id is one that CSI and the gateway accept.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !self.name.is_empty()
            && self.name.chars().all(plain)
            && self.initiator.as_deref().is_none_or(is_initiator)
            && !self.addresses.is_empty()
            && self.to_string().len() <= MAX_NODE_ID_BYTES
            && self.access_name(true).len() <= MAX_ACCESS_NAME_BYTES
    }

    /// Returns the node's name at the gateway. It has the id in it and the mode, so
    /// that a list of volumes says which node has which access.
    #[must_use]
    pub fn access_name(&self, read_only: bool) -> String {
        let mut name = String::new();
        for character in self.to_string().chars() {
            match ESCAPES.iter().find(|(plain, _)| *plain == character) {
                Some((_, letter)) => name.extend(['_', *letter]),
                None => name.push(character),
            }
        }
        name + if read_only { READ_ONLY } else { READ_WRITE }
    }

    /// Parses a node's name at the gateway: the node, and true if it may only read.
    #[must_use]
    pub fn from_access_name(name: &str) -> Option<(Self, bool)> {
        let text = Self::id_in_access_name(name)?;
        Some((text.parse().ok()?, name.ends_with(READ_ONLY)))
    }

    /// Returns the name of the node in its name at the gateway, and true if it may only read;
    /// also where the id is none any more.
    #[must_use]
    pub fn holder(name: &str) -> Option<(String, bool)> {
        let id = Self::id_in_access_name(name)?;
        let (node, _) = id.split_once(';')?;
        Some((node.to_owned(), name.ends_with(READ_ONLY)))
    }

    /// Returns the id in a node's name at the gateway. It may be one that is none any more: what
    /// is valid has changed since the access was given.
    #[must_use]
    fn id_in_access_name(name: &str) -> Option<String> {
        let escaped = name.strip_suffix(READ_ONLY).or_else(|| name.strip_suffix(READ_WRITE))?;
        let mut text = String::new();
        let mut rest = escaped.chars();
        while let Some(character) = rest.next() {
            if character != '_' {
                text.push(character);
                continue;
            }
            let letter = rest.next()?;
            text.push(ESCAPES.iter().find(|(_, escape)| *escape == letter)?.0);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_ID_BYTES, MAX_PLACE_BYTES};

    #[test]
    fn a_claims_name_stays_and_others_are_hashed() {
        let claim = "pvc-0a1b2c3d-0000-1111-2222-333344445555";
        assert_eq!(volume_name(claim), claim);
        for odd in
            ["", "-a", "a b", "ä", "a/b", "a@b", &"x".repeat(41), "h-00112233445566778899aabb"]
        {
            let name = volume_name(odd);
            assert!(name.len() <= MAX_VOLUME_NAME_BYTES && name.chars().all(allowed), "{name}");
            assert_ne!(name, odd);
            assert_eq!(name, volume_name(odd));
        }
        assert_ne!(volume_name(&"x".repeat(41)), volume_name(&"x".repeat(42)));
        assert!(!is_of_group(&snapshot_name("group-1")) && is_of_group(&group_name("1")));
    }

    #[test]
    fn ids_fit_into_what_csi_allows() {
        let place = "g".repeat(MAX_PLACE_BYTES);
        let snapshot = SnapshotId {
            volume: VolumeId::new("", format!("{place}/{}", "v".repeat(MAX_VOLUME_NAME_BYTES))),
            name: "s".repeat(MAX_SNAPSHOT_NAME_BYTES),
        };
        // The colon is part of the place.
        assert_eq!(snapshot.to_string().len() - 1, MAX_ID_BYTES);
        assert!(group_name("x").len() <= MAX_SNAPSHOT_NAME_BYTES);
    }

    #[test]
    fn ids_read_back() {
        let id = SnapshotId::parse("a:tank/k8s/v@s").unwrap();
        assert_eq!(id.to_string(), "a:tank/k8s/v@s");
        assert_eq!(id.at_gateway(), "tank/k8s/v@s");
        for wrong in ["fake-vol-id", "a:tank", ":t/a", "a:t/a@s"] {
            assert_eq!(VolumeId::parse(wrong), None, "{wrong}");
        }
        assert!(SnapshotId::parse("a:t/a@").is_none() && GroupId::parse("a:b").is_none());
    }

    #[test]
    fn a_node_reads_back_from_its_id_and_from_the_gateway() {
        let text = "n-1.example;10.0.0.1,fd00::1;iqn.2026-11.org.example:n_1";
        let node: Node = text.parse().unwrap();
        assert_eq!(node.to_string(), text);
        for read_only in [true, false] {
            let name = node.access_name(read_only);
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c))
            );
            assert_eq!(Node::from_access_name(&name), Some((node.clone(), read_only)));
        }
        for wrong in ["fake-node-id", "n;;", "N;10.0.0.1;", "n;10.0.0.1;;"] {
            assert!(wrong.parse::<Node>().is_err(), "{wrong}");
        }
        for wrong in ["joe", "iqn", "iqn.a b", "iqn.a/b", "iqn.A", "iqn.\u{e4}"] {
            assert!(format!("n;10.0.0.1;{wrong}").parse::<Node>().is_err(), "{wrong}");
        }
        let former = "n_s10.0.0.1_sjoe_w";
        assert_eq!(Node::id_in_access_name(former).as_deref(), Some("n;10.0.0.1;joe"));
        assert_eq!(Node::from_access_name(former), None);
        assert_eq!(Node::holder(former), Some(("n".to_owned(), false)));
        assert_eq!(Node::from_access_name("n"), None);
        assert_eq!(Node::from_access_name("n_x_w"), None);
    }
}
