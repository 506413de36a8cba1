//! Access of nodes, kept as properties of the volume: it moves with the pool,
//! and ends with the dataset.

use super::fault::{Fault, VolumeError};
use super::limits::{ACCESS, MAX_NODE_ADDRESSES, MAX_NODE_BYTES, MAX_NODES_PER_VOLUME};
use super::record::VolumeRecord;
use crate::tool::Tool;
use std::net::IpAddr;

/// Access of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Name of the node.
    pub node: String,
    /// Addresses that it connects from; empty: any.
    pub addresses: Vec<IpAddr>,
    /// Its initiator name.
    pub initiator: Option<String>,
    /// It may not modify the volume.
    pub read_only: bool,
}

impl Grant {
    /// Checks a node's name.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check_node(node: &str) -> Result<(), VolumeError> {
        // Names of properties have no capital letters.
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        let is_name = !node.is_empty() && node.len() <= MAX_NODE_BYTES && node.chars().all(allowed);
        if is_name {
            return Ok(());
        }
        Err(VolumeError::invalid(
            format!("node {node:?} is not a name"),
            "use small letters, digits, - _ and ., at most 200 bytes",
        ))
    }

    fn check(&self) -> Result<(), VolumeError> {
        Self::check_node(&self.node)?;
        if self.addresses.len() > MAX_NODE_ADDRESSES {
            return Err(VolumeError::invalid(
                format!("node {}: more than {MAX_NODE_ADDRESSES} addresses", self.node),
                "name those that it uses for storage",
            ));
        }
        // RFC 7143 section 4.2.7 has no underscore; names with that of a host have one.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:_".contains(c);
        let begins = |name: &str| ["iqn.", "eui.", "naa."].iter().any(|one| name.starts_with(one));
        match &self.initiator {
            Some(name) if !begins(name) || name.len() > 223 || !name.chars().all(plain) => {
                Err(VolumeError::invalid(
                    format!("node {}: {name:?} is not an initiator's name", self.node),
                    "give the InitiatorName of /etc/iscsi/initiatorname.iscsi",
                ))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn property(&self) -> String {
        format!("{ACCESS}{}", self.node)
    }

    pub(super) fn value(&self) -> String {
        let mode = if self.read_only { "ro" } else { "rw" };
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        format!("{mode};{};{}", addresses.join(","), self.initiator.as_deref().unwrap_or_default())
    }

    /// Reads a property; none if it was not written here.
    pub(super) fn parse(property: &str, value: &str) -> Option<Self> {
        let node = property.strip_prefix(ACCESS)?.to_owned();
        let mut parts = value.splitn(3, ';');
        let read_only = match parts.next()? {
            "ro" => true,
            "rw" => false,
            _ => return None,
        };
        let addresses = parts.next()?.split(',').filter(|text| !text.is_empty());
        let addresses = addresses.map(|text| text.parse().ok()).collect::<Option<_>>()?;
        let initiator = Some(parts.next()?).filter(|name| !name.is_empty()).map(str::to_owned);
        let grant = Self { node, addresses, initiator, read_only };
        grant.check().is_ok().then_some(grant)
    }
}

/// Gives a node access; it replaces what the node had.
///
/// # Errors
/// The part that is wrong, or the error of `zfs`.
pub fn grant(tool: &dyn Tool, volume: &VolumeRecord, wanted: &Grant) -> Result<(), VolumeError> {
    let mut wanted = wanted.clone();
    wanted.initiator = wanted.initiator.map(|name| name.to_lowercase());
    wanted.check()?;
    if volume.grants.contains(&wanted) {
        return Ok(());
    }
    let known = volume.grants.iter().any(|grant| grant.node == wanted.node);
    if !known && volume.grants.len() >= MAX_NODES_PER_VOLUME {
        return Err(VolumeError::new(
            Fault::InUse,
            format!("volume {}: {MAX_NODES_PER_VOLUME} nodes have access", volume.dataset),
            "withdraw the access of others first",
        ));
    }
    let property = format!("{}={}", wanted.property(), wanted.value());
    tool.run("zfs", &["set", &property, volume.dataset.as_str()])?;
    Ok(())
}

/// Withdraws the access of a node, also if it has none yet: a grant whose command timed
/// out may still wait for the pool. This command takes effect after it, and changes
/// nothing where nothing is set.
///
/// # Errors
/// The error of `zfs`.
pub fn withdraw(tool: &dyn Tool, volume: &VolumeRecord, node: &str) -> Result<(), VolumeError> {
    Grant::check_node(node)?;
    let property = format!("{ACCESS}{node}");
    tool.run("zfs", &["inherit", &property, volume.dataset.as_str()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_reads_back() {
        let grant = Grant {
            node: "node-1.example".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            initiator: Some("iqn.2026-11.org.example:n_1".to_owned()),
            read_only: true,
        };
        assert_eq!(grant.value(), "ro;10.0.0.1,fd00::1;iqn.2026-11.org.example:n_1");
        assert_eq!(Grant::parse(&grant.property(), &grant.value()), Some(grant.clone()));
        let bare = Grant { addresses: vec![], initiator: None, ..grant };
        assert_eq!(Grant::parse(&bare.property(), &bare.value()), Some(bare));
        for wrong in ["", "rx;;", "rw;10.0.0.0/8;", "rw", "rw;;joe", "rw;;iqn.a;b"] {
            assert_eq!(Grant::parse("zgate:access:n", wrong), None, "{wrong}");
        }
        assert_eq!(Grant::parse("zgate:access:N", "rw;;"), None);
    }
}
