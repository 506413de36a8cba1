//! Who may enter an export, and under which identity.

use super::export::Export;
use crate::runtime::Peer;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_rpc::Credential;
use zgate_store::Caller;

/// Which identities are replaced by the anonymous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None.
    None,
    /// User 0 and group 0.
    Root,
    /// Everyone.
    All,
}

/// Leading bits of an IPv6 address that say it is an IPv4 address (RFC 4291
/// §2.5.5.2).
const MAPPED_PREFIX_BITS: u8 = 96;

/// A network or a single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its address.
    pub address: IpAddr,
    /// Leading bits that must agree.
    pub prefix_bits: u8,
}

impl Network {
    /// Whether `address` lies in it. IPv4-mapped IPv6 addresses count as IPv4,
    /// and so does a mapped network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let mapped_bits = match (self.address, self.address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(_)) => MAPPED_PREFIX_BITS,
            _ => 0,
        };
        let network = match self.prefix_bits.checked_sub(mapped_bits) {
            Some(bits) => IpNet::new(self.address.to_canonical(), bits),
            // Wider than all IPv4 addresses: a network of IPv6 addresses.
            None => IpNet::new(self.address, self.prefix_bits),
        };
        network.is_ok_and(|network| network.contains(&address.to_canonical()))
    }
}

/// What one set of clients may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// Which clients; empty matches everyone.
    pub networks: Vec<Network>,
    /// May modify.
    pub writable: bool,
    /// Identity mapping.
    pub squash: Squash,
    /// Anonymous user.
    pub anon_uid: u32,
    /// Anonymous group.
    pub anon_gid: u32,
    /// AUTH_SYS is accepted.
    pub sys: bool,
    /// AUTH_NONE is accepted (always anonymous).
    pub none: bool,
}

impl ClientRule {
    /// Whether the rule is about the host.
    fn matches(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address))
    }

    /// Everyone may read and write as themselves; for tests and the demo.
    #[must_use]
    pub fn open_to_all() -> Self {
        Self {
            networks: Vec::new(),
            writable: true,
            squash: Squash::None,
            anon_uid: 65_534,
            anon_gid: 65_534,
            sys: true,
            none: true,
        }
    }
}

/// A granted entrance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The identity to act under.
    pub who: Caller,
    /// Whether modifications are allowed.
    pub writable: bool,
}

/// Why a client may not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No rule names this client or transport: to it the export does not exist.
    NotListed,
    /// The flavour is not accepted here (NFS4ERR_WRONGSEC).
    WrongFlavor,
    /// The call comes from a port that any user of the host may open.
    UnprivilegedPort,
}

/// Ports below are the host's own: programs need privilege to call from one.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

impl Export {
    /// The first rule that names the client, over a transport the export is
    /// offered on.
    fn rule_for(&self, peer: &Peer) -> Option<&ClientRule> {
        if if peer.rdma { !self.rdma } else { !self.tcp } {
            return None;
        }
        self.clients.iter().find(|rule| rule.matches(peer.address))
    }

    /// Whether any rule names the host, over whatever transport.
    #[must_use]
    pub fn names_host(&self, address: IpAddr) -> bool {
        self.clients.iter().any(|rule| rule.matches(address))
    }

    /// Whether any rule names the client, whatever its port and flavour.
    #[must_use]
    pub fn names(&self, peer: &Peer) -> bool {
        self.rule_for(peer).is_some()
    }

    /// Decides whether and how `peer` with `credential` enters.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enter(&self, peer: &Peer, credential: &Credential) -> Result<Entry, Refusal> {
        let rule = self.rule_for(peer).ok_or(Refusal::NotListed)?;
        if self.reserved_port_only && !peer.rdma && peer.port >= FIRST_UNPRIVILEGED_PORT {
            return Err(Refusal::UnprivilegedPort);
        }
        let anonymous = || Caller { uid: rule.anon_uid, gid: rule.anon_gid, groups: Arc::from([]) };
        let who = match credential {
            Credential::None if rule.none => anonymous(),
            Credential::Sys(sys) if rule.sys => match rule.squash {
                Squash::All => anonymous(),
                Squash::Root => squash_root(sys, rule),
                Squash::None => {
                    Caller { uid: sys.uid, gid: sys.gid, groups: Arc::from(sys.groups.as_slice()) }
                }
            },
            Credential::None | Credential::Sys(_) => return Err(Refusal::WrongFlavor),
        };
        Ok(Entry { who, writable: rule.writable && !self.read_only })
    }
}

fn squash_root(sys: &zgate_rpc::AuthSys, rule: &ClientRule) -> Caller {
    let group = |gid: u32| if gid == 0 { rule.anon_gid } else { gid };
    Caller {
        uid: if sys.uid == 0 { rule.anon_uid } else { sys.uid },
        gid: if sys.uid == 0 { rule.anon_gid } else { group(sys.gid) },
        groups: sys.groups.iter().map(|&gid| group(gid)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_match_by_prefix() {
        let net = Network { address: "10.1.0.0".parse().unwrap(), prefix_bits: 16 };
        assert!(net.contains("10.1.200.3".parse().unwrap()));
        assert!(net.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!net.contains("10.2.0.1".parse().unwrap()));
        assert!(!net.contains("fe80::1".parse().unwrap()));
        let mapped = Network { address: "::ffff:10.1.0.0".parse().unwrap(), prefix_bits: 112 };
        assert!(mapped.contains("10.1.2.3".parse().unwrap()));
        assert!(!mapped.contains("10.2.0.1".parse().unwrap()));
        let wide = Network { address: "::ffff:10.1.0.0".parse().unwrap(), prefix_bits: 8 };
        assert!(!wide.contains("10.1.2.3".parse().unwrap()));
        let all = Network { address: "0.0.0.0".parse().unwrap(), prefix_bits: 0 };
        assert!(all.contains("1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn root_is_squashed_with_its_groups() {
        let sys = zgate_rpc::AuthSys { uid: 5, gid: 0, groups: vec![0, 7], ..Default::default() };
        let who = squash_root(&sys, &ClientRule::open_to_all());
        assert_eq!((who.uid, who.gid), (5, 65_534));
        assert_eq!(&*who.groups, &[65_534, 7]);
    }
}
