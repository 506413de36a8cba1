//! Access rules of an export, and the identity under which a client acts.

use super::export::Export;
use crate::runtime::{Call, Peer, Protection, Refused};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_rpc::Credential;
use zgate_store::Caller;

/// Identities that are replaced by the anonymous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None.
    None,
    /// User 0 and group 0.
    Root,
    /// Everyone.
    All,
}

/// Access of one set of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The clients; empty matches everyone. IPv4-mapped IPv6 addresses are
    /// compared as IPv4 addresses, so a network of them is stored as the IPv4
    /// network.
    pub networks: Vec<IpNet>,
    /// Modifications are allowed.
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
    /// Least protection of the connection.
    pub protection: Protection,
}

impl ClientRule {
    /// True for a host that the rule names.
    #[must_use]
    pub fn matches(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&address))
    }

    /// Read and write access for everyone under their own identity; for tests
    /// and the demo.
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
            protection: Protection::Plain,
        }
    }
}

/// Granted access to an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The identity of the caller.
    pub who: Caller,
    /// True if modifications are allowed.
    pub writable: bool,
}

/// Reason why access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No rule names this client or transport: the export is invisible to it.
    NotListed,
    /// The flavour is not accepted (NFS4ERR_WRONGSEC).
    WrongFlavor,
    /// The connection is not protected as required (NFS4ERR_WRONGSEC).
    Unprotected(Protection),
    /// The call comes from an unprivileged port.
    UnprivilegedPort,
}

impl Refusal {
    /// Returns the reason, for people.
    fn reason(self) -> &'static str {
        match self {
            Self::NotListed => "no client entry of the export names this host or its transport",
            Self::WrongFlavor => "its client entry does not accept this security flavour",
            Self::Unprotected(Protection::MutualTls) => {
                "its client entry requires TLS with a client certificate"
            }
            Self::Unprotected(_) => "its client entry requires TLS",
            Self::UnprivilegedPort => "the export requires a reserved port",
        }
    }
}

/// Lowest unprivileged port: programs need privileges to call from a port
/// below.
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

    /// True if any rule names the host, over any transport.
    #[must_use]
    pub fn names_host(&self, address: IpAddr) -> bool {
        self.clients.iter().any(|rule| rule.matches(address))
    }

    /// True if any rule names the client, regardless of port and flavour.
    #[must_use]
    pub fn names(&self, peer: &Peer) -> bool {
        self.rule_for(peer).is_some()
    }

    /// Decides about the access of a call, and notes in it a refusal.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn admit(&self, call: &Call) -> Result<Entry, Refusal> {
        let decided = self.enter(&call.peer, &call.credential);
        if let Err(refusal) = decided {
            let (export, reason) = (Some(self.id.0), refusal.reason());
            call.refused.set(Refused { export, reason });
        }
        decided
    }

    /// Decides about the access of `peer` with `credential`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enter(&self, peer: &Peer, credential: &Credential) -> Result<Entry, Refusal> {
        let rule = self.rule_for(peer).ok_or(Refusal::NotListed)?;
        if self.reserved_port_only && !peer.rdma && peer.port >= FIRST_UNPRIVILEGED_PORT {
            return Err(Refusal::UnprivilegedPort);
        }
        if peer.protection < rule.protection {
            return Err(Refusal::Unprotected(rule.protection));
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
        let within = |network: &str, address: &str| {
            let networks = vec![network.parse().unwrap()];
            ClientRule { networks, ..ClientRule::open_to_all() }.matches(address.parse().unwrap())
        };
        assert!(within("10.1.0.0/16", "10.1.200.3"));
        assert!(within("10.1.0.0/16", "::ffff:10.1.2.3"));
        assert!(!within("10.1.0.0/16", "10.2.0.1"));
        assert!(!within("10.1.0.0/16", "fe80::1"));
        assert!(within("0.0.0.0/0", "1.2.3.4"));
    }

    #[test]
    fn a_connection_is_protected_as_the_first_rule_requires() {
        use crate::v3::proc::rig::{a_call, an_export};
        const LEVELS: [Protection; 3] = [Protection::Plain, Protection::Tls, Protection::MutualTls];
        for required in LEVELS {
            let mut export = an_export();
            export.clients[0].protection = required;
            for given in LEVELS {
                let mut call = a_call();
                call.peer.protection = given;
                let expected = if given >= required { None } else { Some(required) };
                let refused = export.admit(&call).err();
                assert_eq!(refused, expected.map(Refusal::Unprotected), "{required:?} {given:?}");
                let reason = call.refused.take().map(|refused| refused.reason);
                assert_eq!(reason.is_some_and(|text| text.contains("TLS")), expected.is_some());
            }
        }
    }

    #[test]
    fn root_is_squashed_with_its_groups() {
        let sys = zgate_rpc::AuthSys { uid: 5, gid: 0, groups: vec![0, 7], ..Default::default() };
        let who = squash_root(&sys, &ClientRule::open_to_all());
        assert_eq!((who.uid, who.gid), (5, 65_534));
        assert_eq!(&*who.groups, &[65_534, 7]);
    }
}
