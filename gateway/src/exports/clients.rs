//! Client entries of exports as rules of the protocol. A host name is replaced
//! by its addresses.

use super::hosts::HostTable;
use std::sync::Arc;
use zgate_config::{
    AccessMode, CertificateRequirement, Cidr, ClientIdentity, ClientMatch, ClientTransport,
    ExportClient, Fingerprint, SquashMode,
};
use zgate_nfs::namespace::{
    CertificateRule, ClientRule, Flavor, IdMap, IdRange, IdView, IdentitySource, Squash,
};
use zgate_nfs::runtime::Protection;

/// Returns the rules of client entries, in their order. An entry whose host name
/// has no address matches nobody; as nobody knows which addresses it was to
/// match, the entries after it grant no more than it does.
pub(crate) fn rules(clients: &[ExportClient], hosts: &HostTable) -> Vec<ClientRule> {
    let mut unknown: Vec<ClientRule> = Vec::new();
    let mut rules = Vec::new();
    for client in clients {
        let networks = match &client.matches {
            ClientMatch::Everyone => Some(Vec::new()),
            ClientMatch::Network(Cidr(network)) => Some(vec![*network]),
            // Without networks a rule would match everyone.
            ClientMatch::Host(name) => {
                hosts.networks(name).filter(|networks| !networks.is_empty()).map(<[_]>::to_vec)
            }
        };
        match networks {
            Some(networks) => {
                let rule = ClientRule { networks, ..grant(client) };
                rules.push(unknown.iter().fold(rule, narrowed));
            }
            None => unknown.push(grant(client)),
        }
    }
    rules
}

/// Returns what an entry grants; the networks are to be set.
fn grant(client: &ExportClient) -> ClientRule {
    ClientRule {
        networks: Vec::new(),
        writable: client.access == AccessMode::Rw,
        squash: match client.squash {
            SquashMode::None => Squash::None,
            SquashMode::Root => Squash::Root,
            SquashMode::All => Squash::All,
        },
        anon_uid: client.anon_uid,
        anon_gid: client.anon_gid,
        flavors: client.security.iter().filter_map(|name| Flavor::by_name(name)).collect(),
        protection: match client.transport {
            ClientTransport::Any => Protection::Plain,
            ClientTransport::Tls => Protection::Tls,
            ClientTransport::Mtls => Protection::MutualTls,
        },
        certificates: certificate_rule(&client.certificate).into_iter().collect(),
        identity: match client.identity {
            ClientIdentity::Call => IdentitySource::Credential,
            ClientIdentity::San => IdentitySource::Certificate,
        },
        ids: id_view(client).map(Arc::new),
        server_groups: client.manage_groups,
    }
}

/// Returns the ids of an entry's clients; `None`: they are those of this machine.
fn id_view(client: &ExportClient) -> Option<IdView> {
    let map = |ranges: &[zgate_config::IdRange]| {
        let range = |range: &zgate_config::IdRange| IdRange {
            client: range.client_first,
            server: range.server_first,
            more: range.client_last - range.client_first,
        };
        IdMap::new(&ranges.iter().map(range).collect::<Vec<_>>())
    };
    let (users, groups) = (map(&client.map_uids), map(&client.map_gids));
    let is_mapped = !users.is_empty() || !groups.is_empty();
    let (anon_uid, anon_gid) = (client.anon_uid, client.anon_gid);
    is_mapped.then_some(IdView { users, groups, anon_uid, anon_gid })
}

fn certificate_rule(required: &CertificateRequirement) -> Option<CertificateRule> {
    let digests = |all: &[Fingerprint]| all.iter().map(|one| one.0).collect();
    let rule = || CertificateRule {
        authorities: digests(&required.authorities),
        names: required.names.iter().map(|name| name.as_str().into()).collect(),
        digests: digests(&required.fingerprints),
    };
    (!required.is_empty()).then(rule)
}

/// Restricts a rule to what another one grants.
fn narrowed(rule: ClientRule, limit: &ClientRule) -> ClientRule {
    let strictness = |squash| match squash {
        Squash::None => 0,
        Squash::Root => 1,
        Squash::All => 2,
    };
    // Two maps cannot both hold: whoever that concerns is nobody.
    let is_ambiguous = limit.ids.is_some() && limit.ids != rule.ids;
    let squash = if is_ambiguous { Squash::All } else { limit.squash };
    let is_stricter = strictness(squash) > strictness(rule.squash);
    let anonymous = |own: u32, limited: u32| if is_stricter || own == 0 { limited } else { own };
    ClientRule {
        writable: rule.writable && limit.writable,
        squash: if is_stricter { squash } else { rule.squash },
        anon_uid: anonymous(rule.anon_uid, limit.anon_uid),
        anon_gid: anonymous(rule.anon_gid, limit.anon_gid),
        flavors: rule.flavors.and(&limit.flavors),
        protection: rule.protection.max(limit.protection),
        certificates: rule.certificates.iter().chain(&limit.certificates).cloned().collect(),
        identity: match limit.identity {
            IdentitySource::Certificate => limit.identity,
            IdentitySource::Credential => rule.identity,
        },
        server_groups: rule.server_groups || limit.server_groups,
        ..rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_client() -> ExportClient {
        ExportClient {
            matches: ClientMatch::Everyone,
            access: AccessMode::Rw,
            squash: SquashMode::Root,
            anon_uid: 1,
            anon_gid: 1,
            security: vec!["sys".into()],
            transport: ClientTransport::Any,
            certificate: CertificateRequirement::default(),
            identity: ClientIdentity::Call,
            map_uids: Vec::new(),
            map_gids: Vec::new(),
            manage_groups: false,
        }
    }

    fn host(name: &str) -> ExportClient {
        ExportClient { matches: ClientMatch::Host(name.into()), ..a_client() }
    }

    #[test]
    fn a_host_without_an_address_matches_nobody_and_never_everyone() {
        let nothing = HostTable::default();
        assert_eq!(rules(&[host("gone")], &nothing), []);
        let empty = HostTable::of([("gone", Vec::new())]);
        assert_eq!(rules(&[host("gone")], &empty), []);
        let known =
            HostTable::of([("gone", vec!["10.0.0.7".parse::<std::net::IpAddr>().unwrap().into()])]);
        let found = rules(&[host("gone")], &known);
        assert!(found[0].matches([10, 0, 0, 7].into()) && !found[0].matches([10, 0, 0, 8].into()));
    }

    #[test]
    fn entries_after_an_unknown_host_grant_no_more_than_its_own() {
        let wide = ExportClient { squash: SquashMode::None, anon_uid: 0, ..a_client() };
        let guest =
            ExportClient { access: AccessMode::Ro, squash: SquashMode::All, ..host("guest") };
        let clients = [wide.clone(), guest, wide.clone()];
        let found = rules(&clients, &HostTable::default());
        let flavors = |rule: &ClientRule| rule.flavors.iter().collect::<Vec<_>>();
        let granted = |rule: &ClientRule| (rule.writable, rule.squash, rule.anon_uid);
        assert_eq!(granted(&found[0]), (true, Squash::None, 0), "before it");
        assert_eq!(granted(&found[1]), (false, Squash::All, 1), "after it");
        assert!(found[1].networks.is_empty() && flavors(&found[1]) == [Flavor::Sys]);
        // One that grants as much changes nothing.
        let equal = ExportClient { squash: SquashMode::None, ..host("equal") };
        let strict = a_client();
        let found = rules(&[equal, strict.clone()], &HostTable::default());
        assert_eq!(found, rules(&[strict], &HostTable::default()));
        let other = ExportClient { security: vec!["none".into()], ..host("other") };
        let found = rules(&[other, wide], &HostTable::default());
        assert_eq!(flavors(&found[0]), []);
        let protected = ExportClient { transport: ClientTransport::Mtls, ..host("protected") };
        let found = rules(&[protected, a_client()], &HostTable::default());
        assert_eq!(found[0].protection, Protection::MutualTls);
        let certificate = |byte: u8| CertificateRequirement {
            fingerprints: vec![Fingerprint([byte; 32])],
            ..CertificateRequirement::default()
        };
        let identity = ClientIdentity::San;
        let named = ExportClient { certificate: certificate(1), identity, ..host("named") };
        let known = ExportClient { certificate: certificate(2), ..a_client() };
        let found = rules(&[named, known], &HostTable::default());
        assert_eq!(found[0].certificates.len(), 2);
        assert_eq!(found[0].identity, IdentitySource::Certificate);
    }

    /// An interface and an export that name the same network select the same
    /// clients.
    #[test]
    fn a_network_means_the_same_to_interfaces_and_exports() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.200.3", "10.2.0.1"),
            ("10.1.9.9/16", "::ffff:10.1.200.3", "::ffff:10.2.0.1"),
            ("::ffff:10.1.0.0/112", "10.1.200.3", "10.2.0.1"),
            ("::ffff:10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("::ffff:0:0/96", "192.0.2.1", "2001:db8::1"),
            ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("::ffff:10.1.0.0/8", "::ffef:0:1", "10.1.2.3"),
            ("::ffff:0:0/90", "::fffe:0:1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("2001:db8::7", "2001:db8::7", "2001:db8::8"),
        ] {
            let cidr: zgate_config::Cidr = network.parse().unwrap();
            let rule = ExportClient { matches: network.parse().unwrap(), ..a_client() };
            let rule = rules(&[rule], &HostTable::default()).remove(0);
            for (address, expected) in [(inside, true), (outside, false)] {
                let address = address.parse().unwrap();
                assert_eq!(cidr.contains(address), expected, "{network} {address}: interface");
                assert_eq!(rule.matches(address), expected, "{network} {address}: export");
            }
        }
    }
}
