//! Access rules of an export, and the identity under which a client acts.

use super::certificate::CertificateRule;
use super::export::Export;
use super::flavor::{Flavor, Flavors};
use super::ids::IdView;
use crate::runtime::{Call, Peer, Protection, Refused, UserGroups};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use zgate_rpc::auth::GssUser;
use zgate_rpc::{AuthSys, Credential};
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

/// Source of the identity of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentitySource {
    /// The credential of the call.
    #[default]
    Credential,
    /// The certificate of the client: all calls are of the user that it names.
    Certificate,
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
    /// Flavours that are accepted; AUTH_NONE is always anonymous.
    pub flavors: Flavors,
    /// Least protection of the connection.
    pub protection: Protection,
    /// Requirements for the client's certificate; all must be met.
    pub certificates: Vec<CertificateRule>,
    /// Source of the identity, before it is mapped.
    pub identity: IdentitySource,
    /// Ids as the clients see them; `None`: they are those of the server.
    pub ids: Option<Arc<IdView>>,
    /// Groups of AUTH_SYS callers are those that the server knows
    /// ([`Call::groups`]).
    pub server_groups: bool,
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
            flavors: [Flavor::Sys, Flavor::None].into_iter().collect(),
            protection: Protection::Plain,
            certificates: Vec::new(),
            identity: IdentitySource::default(),
            ids: None,
            server_groups: false,
        }
    }

    /// Checks the protection of a connection; returns the user of its
    /// certificate if all calls are of that user.
    fn check_connection<'p>(&self, peer: &'p Peer) -> Result<Option<&'p Caller>, Refusal> {
        if peer.protection < self.protection {
            return Err(Refusal::Unprotected(self.protection));
        }
        let met = |rule: &CertificateRule| {
            peer.certificate.as_ref().is_some_and(|certificate| rule.admits(certificate))
        };
        if !self.certificates.iter().all(met) {
            return Err(Refusal::WrongCertificate);
        }
        match self.identity {
            IdentitySource::Credential => Ok(None),
            IdentitySource::Certificate => {
                match peer.certificate.as_ref().map(|one| one.user.get()) {
                    Some(Some(Some(user))) => Ok(Some(user.as_ref())),
                    // It is asked again: the client is not refused for good.
                    Some(None) => Err(Refusal::UnknownGroups),
                    Some(Some(None)) | None => Err(Refusal::UnknownUser),
                }
            }
        }
    }

    /// Maps a user of this machine, named by a certificate or a principal.
    fn map_user(&self, user: &Caller) -> Caller {
        match self.squash {
            Squash::All => self.anonymous(),
            Squash::Root if user.uid == 0 => self.anonymous(),
            Squash::Root => {
                let group = |gid: u32| if gid == 0 { self.anon_gid } else { gid };
                let groups = user.groups.iter().map(|&gid| group(gid)).collect();
                Caller { uid: user.uid, gid: group(user.gid), groups }
            }
            Squash::None => user.clone(),
        }
    }

    /// Maps a user as the client states it, before the server's groups are known.
    fn map_stated(&self, sys: &AuthSys) -> Caller {
        let stated = match self.squash {
            Squash::All => return self.anonymous(),
            Squash::Root if sys.uid == 0 => return self.anonymous(),
            Squash::Root if self.ids.is_none() => return squash_root(sys, self),
            Squash::Root | Squash::None => {
                Caller { uid: sys.uid, gid: sys.gid, groups: Arc::from(sys.groups.as_slice()) }
            }
        };
        match &self.ids {
            None => stated,
            // Group 0 of the clients is not root's unless the map says so, and a map
            // does not make root.
            Some(ids) => self.map_user(&ids.caller(&stated)),
        }
    }

    /// Returns the user whose groups the server must know before a call with this
    /// credential is carried out.
    #[must_use]
    pub fn user_with_server_groups(&self, sys: &AuthSys) -> Option<u32> {
        let is_anonymous = |uid: u32| uid == self.anon_uid;
        self.server_groups.then(|| self.map_stated(sys).uid).filter(|&uid| !is_anonymous(uid))
    }

    /// Maps a caller with AUTH_SYS.
    fn map_sys(&self, sys: &AuthSys, known: &[UserGroups]) -> Result<Caller, Refusal> {
        let mapped = self.map_stated(sys);
        if !self.server_groups {
            return Ok(mapped);
        }
        if mapped.uid == self.anon_uid {
            return Ok(Caller { groups: Arc::from([]), ..mapped });
        }
        let own = known.iter().find(|user| user.uid == mapped.uid).ok_or(Refusal::UnknownGroups)?;
        let groups = Caller { groups: Arc::clone(&own.groups), ..mapped };
        Ok(self.map_user(&groups))
    }

    /// Maps a caller with RPCSEC_GSS. One that is not known yet is nobody only where
    /// all are: it would act, and make files, as somebody else.
    fn map_gss(&self, user: &GssUser) -> Result<Caller, Refusal> {
        match user {
            GssUser::NotYetKnown if self.squash != Squash::All => Err(Refusal::UnknownGroups),
            GssUser::NotYetKnown | GssUser::Nobody => Ok(self.anonymous()),
            GssUser::User(user) => Ok(self.map_user(user)),
        }
    }

    fn anonymous(&self) -> Caller {
        Caller { uid: self.anon_uid, gid: self.anon_gid, groups: Arc::from([]) }
    }
}

/// Granted access to an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The identity of the caller.
    pub who: Caller,
    /// True if modifications are allowed.
    pub writable: bool,
    /// Ids as the client sees them; `None`: they are those of the server.
    pub ids: Option<Arc<IdView>>,
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
    /// The certificate is not one of those required (NFS4ERR_WRONGSEC).
    WrongCertificate,
    /// The certificate names no user that the server knows (NFS4ERR_WRONGSEC).
    UnknownUser,
    /// The call comes from an unprivileged port.
    UnprivilegedPort,
    /// The name service has not told the groups of the user yet, or who a principal
    /// or the user of a certificate is: the client has to try again.
    UnknownGroups,
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
            Self::WrongCertificate => "its client entry requires another client certificate",
            Self::UnknownUser => {
                "its client entry takes the user from the client certificate, which names no user \
                 of this machine in the domain tls.user_domain"
            }
            Self::UnprivilegedPort => "the export requires a reserved port",
            Self::UnknownGroups => {
                "the name service does not tell the user or its groups: check nsswitch.conf and \
                 the directory service"
            }
        }
    }
}

/// Lowest unprivileged port: programs need privileges to call from a port
/// below.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

impl Export {
    /// The first rule that names the client, over a transport the export is
    /// offered on.
    #[must_use]
    pub fn rule_for(&self, peer: &Peer) -> Option<&ClientRule> {
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
        let groups = call.groups.as_deref().unwrap_or_default();
        let decided = self.decide(&call.peer, &call.credential, groups);
        if let Err(refusal) = decided {
            let (export, reason) = (Some(self.id.0), refusal.reason());
            call.refused.set(Refused { export, reason });
        }
        decided
    }

    /// Decides about the access of `peer` with `credential`; `groups`: those of
    /// users that the server knows.
    fn decide(
        &self,
        peer: &Peer,
        credential: &Credential,
        groups: &[UserGroups],
    ) -> Result<Entry, Refusal> {
        let rule = self.rule_open_to(peer)?;
        let user = rule.check_connection(peer)?;
        let mut entry = self.entry(rule, credential, groups)?;
        if let Some(user) = user {
            entry.who = rule.map_user(user);
        }
        Ok(entry)
    }

    /// Admits a host that the rules name as the anonymous user, who may only read,
    /// whatever its credential and the protection of its connection are.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enter_unprotected(&self, peer: &Peer) -> Result<Entry, Refusal> {
        let rule = self.rule_open_to(peer)?;
        // Nobody can be admitted by a rule without flavours.
        rule.flavors.iter().next().ok_or(Refusal::WrongFlavor)?;
        Ok(Entry { who: rule.anonymous(), writable: false, ids: rule.ids.clone() })
    }

    fn rule_open_to(&self, peer: &Peer) -> Result<&ClientRule, Refusal> {
        let rule = self.rule_for(peer).ok_or(Refusal::NotListed)?;
        if self.reserved_port_only && !peer.rdma && peer.port >= FIRST_UNPRIVILEGED_PORT {
            return Err(Refusal::UnprivilegedPort);
        }
        Ok(rule)
    }

    fn entry(
        &self,
        rule: &ClientRule,
        credential: &Credential,
        groups: &[UserGroups],
    ) -> Result<Entry, Refusal> {
        if !rule.flavors.accepts(Flavor::of(credential)) {
            return Err(Refusal::WrongFlavor);
        }
        let who = match credential {
            Credential::None => rule.anonymous(),
            Credential::Sys(sys) => rule.map_sys(sys, groups)?,
            Credential::Gss(caller) => rule.map_gss(&caller.identity.user)?,
        };
        let ids = rule.ids.clone();
        Ok(Entry { who, writable: rule.writable && !self.read_only, ids })
    }
}

fn squash_root(sys: &AuthSys, rule: &ClientRule) -> Caller {
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
    use std::sync::OnceLock;
    use zgate_rpc::auth::{GssCaller, GssIdentity};
    use zgate_rpc::gss::Service;

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
    fn a_certificate_is_required_and_names_the_user() {
        use crate::runtime::PeerCertificate;
        use crate::v3::proc::rig::{a_call, an_export};
        let mut export = an_export();
        let rule = &mut export.clients[0];
        rule.protection = Protection::MutualTls;
        rule.certificates =
            vec![CertificateRule { digests: vec![[7; 32]], ..CertificateRule::default() }];
        let mut call = a_call();
        call.peer.protection = Protection::MutualTls;
        let admit = |export: &Export, call: &Call| export.admit(call).map(|entry| entry.who);
        assert_eq!(admit(&export, &call), Err(Refusal::WrongCertificate), "none");
        let shown = |digest: u8, user: Option<Caller>| {
            let user = OnceLock::from(user.map(Arc::new));
            Some(Arc::new(PeerCertificate { digest: [digest; 32], user, ..Default::default() }))
        };
        call.peer.certificate = shown(8, None);
        assert_eq!(admit(&export, &call), Err(Refusal::WrongCertificate));
        assert!(call.refused.take().unwrap().reason.contains("another client certificate"));
        call.peer.certificate = shown(7, None);
        let from_call = admit(&export, &call).unwrap();
        export.clients[0].identity = IdentitySource::Certificate;
        assert_eq!(admit(&export, &call), Err(Refusal::UnknownUser));
        assert!(call.refused.take().unwrap().reason.contains("tls.user_domain"));
        // Not told yet is not none.
        let asked = PeerCertificate { digest: [7; 32], ..Default::default() };
        call.peer.certificate = Some(Arc::new(asked));
        assert_eq!(admit(&export, &call), Err(Refusal::UnknownGroups));
        assert!(call.refused.take().unwrap().reason.contains("name service"));
        let alice = Caller { uid: 1001, gid: 1001, groups: Arc::from([0, 50]) };
        assert_ne!(from_call, alice);
        call.peer.certificate = shown(7, Some(alice.clone()));
        for squash in [Squash::None, Squash::Root, Squash::All] {
            export.clients[0].squash = squash;
            let nobody = export.clients[0].anonymous();
            let expected = match squash {
                Squash::None => alice.clone(),
                Squash::Root => Caller { groups: Arc::from([nobody.gid, 50]), ..alice.clone() },
                Squash::All => nobody,
            };
            assert_eq!(admit(&export, &call), Ok(expected), "{squash:?}");
        }
        // Nor does a certificate make root.
        export.clients[0].squash = Squash::Root;
        let root = Caller { uid: 0, gid: 0, groups: Arc::from([0]) };
        call.peer.certificate = shown(7, Some(root));
        assert_eq!(admit(&export, &call), Ok(export.clients[0].anonymous()));
        // The flavour must be accepted all the same.
        export.clients[0].flavors = [Flavor::None].into_iter().collect();
        assert_eq!(admit(&export, &call), Err(Refusal::WrongFlavor));
    }

    #[test]
    fn root_is_squashed_with_its_groups() {
        let sys = zgate_rpc::AuthSys { uid: 5, gid: 0, groups: vec![0, 7], ..Default::default() };
        let who = squash_root(&sys, &ClientRule::open_to_all());
        assert_eq!((who.uid, who.gid), (5, 65_534));
        assert_eq!(&*who.groups, &[65_534, 7]);
    }

    fn by_kerberos(service: Service, user: Option<Caller>) -> Credential {
        let identity = Arc::new(GssIdentity {
            principal: "someone@REALM".into(),
            acceptor: "nfs/server@R".into(),
            user: user.into(),
        });
        Credential::Gss(GssCaller { service, identity })
    }

    /// It is not taken for nobody.
    #[test]
    fn a_principal_that_is_not_known_yet_has_to_wait() {
        use crate::v3::proc::rig::{a_call, an_export};
        let identity = Arc::new(GssIdentity {
            principal: "someone@REALM".into(),
            acceptor: "nfs/server@R".into(),
            user: GssUser::NotYetKnown,
        });
        let credential = Credential::Gss(GssCaller { service: Service::Privacy, identity });
        let mut export = an_export();
        export.clients[0].flavors = [Flavor::Krb5p].into_iter().collect();
        for squash in [Squash::None, Squash::Root, Squash::All] {
            export.clients[0].squash = squash;
            let entered = export.decide(&a_call().peer, &credential, &[]).map(|entry| entry.who);
            let expected = match squash {
                Squash::All => Ok(export.clients[0].anonymous()),
                _ => Err(Refusal::UnknownGroups),
            };
            assert_eq!(entered, expected, "{squash:?}");
        }
    }

    /// Every pair of an accepted and a used flavour.
    #[test]
    fn a_flavour_is_accepted_only_where_it_is_named() {
        use crate::v3::proc::rig::{a_call, an_export};
        let user = Caller { uid: 1000, gid: 1000, groups: Arc::from([1000, 4000]) };
        let used = [
            Credential::None,
            Credential::Sys(zgate_rpc::AuthSys::default()),
            by_kerberos(Service::None, Some(user.clone())),
            by_kerberos(Service::Integrity, Some(user.clone())),
            by_kerberos(Service::Privacy, Some(user.clone())),
        ];
        for accepted in Flavor::ALL {
            let mut export = an_export();
            export.clients[0].flavors = [accepted].into_iter().collect();
            for credential in &used {
                let entered = export.decide(&a_call().peer, credential, &[]);
                let expected = Flavor::of(credential) == accepted;
                assert_eq!(entered.is_ok(), expected, "{accepted:?} {credential:?}");
                if !expected {
                    assert_eq!(entered, Err(Refusal::WrongFlavor));
                } else if matches!(credential, Credential::Gss(_)) {
                    assert_eq!(entered.map(|entry| entry.who), Ok(user.clone()));
                }
            }
        }
    }

    #[test]
    fn a_proven_user_is_squashed_like_a_stated_one() {
        use crate::v3::proc::rig::{a_call, an_export};
        let enter = |squash, user: Option<(u32, u32)>| {
            let mut export = an_export();
            export.clients[0].flavors = [Flavor::Krb5p].into_iter().collect();
            export.clients[0].squash = squash;
            let user = user.map(|(uid, gid)| Caller { uid, gid, groups: Arc::from([gid]) });
            let entry = export.decide(&a_call().peer, &by_kerberos(Service::Privacy, user), &[]);
            let who = entry.unwrap().who;
            (who.uid, who.gid)
        };
        const NOBODY: (u32, u32) = (65_534, 65_534);
        for squash in [Squash::None, Squash::Root, Squash::All] {
            assert_eq!(enter(squash, None), NOBODY, "a machine, {squash:?}");
        }
        assert_eq!(enter(Squash::None, Some((0, 0))), (0, 0));
        assert_eq!(enter(Squash::Root, Some((0, 0))), NOBODY);
        assert_eq!(enter(Squash::Root, Some((7, 7))), (7, 7));
        assert_eq!(enter(Squash::All, Some((7, 7))), NOBODY);
    }

    /// Each way in which root can call, through each kind of entry.
    #[test]
    fn root_is_squashed_in_every_combination() {
        use crate::namespace::ids::{IdMap, IdRange, IdView};
        use crate::runtime::PeerCertificate;
        use crate::v3::proc::rig::{a_call, an_export};
        let root = || Caller { uid: 0, gid: 0, groups: Arc::from([0]) };
        let same = || IdMap::new(&[IdRange { client: 0, server: 0, more: 10 }]);
        let view = IdView { users: same(), groups: same(), anon_uid: 65_534, anon_gid: 65_534 };
        let sys = AuthSys { groups: vec![0], ..AuthSys::default() };
        let services = [Service::None, Service::Integrity, Service::Privacy];
        let kerberos = services.map(|service| by_kerberos(service, Some(root())));
        let credentials = [vec![Credential::Sys(sys)], kerberos.to_vec()].concat();
        let certificate =
            PeerCertificate { user: OnceLock::from(Some(Arc::new(root()))), ..Default::default() };
        let certificate = Some(Arc::new(certificate));
        let mut combinations = 0;
        for bits in 0..1 << 6 {
            let is = |bit: u32| bits >> bit & 1 == 1;
            let protection = match bits >> 4 & 3 {
                0 => Protection::Plain,
                1 => Protection::Tls,
                2 => Protection::MutualTls,
                _ => continue,
            };
            let by_certificate = is(3);
            if by_certificate && protection != Protection::MutualTls {
                continue;
            }
            let mut export = an_export();
            let rule = &mut export.clients[0];
            rule.squash = if is(0) { Squash::All } else { Squash::Root };
            rule.ids = is(1).then(|| Arc::new(view.clone()));
            rule.server_groups = is(2);
            rule.flavors = Flavor::ALL.into_iter().collect();
            rule.protection = protection;
            if by_certificate {
                rule.identity = IdentitySource::Certificate;
            }
            for credential in &credentials {
                let mut call = a_call();
                call.credential = credential.clone();
                call.peer.protection = protection;
                call.peer.certificate = certificate.clone();
                call.groups = Some(Arc::from([UserGroups { uid: 0, groups: Arc::from([0]) }]));
                let who = export.admit(&call).unwrap().who;
                let found = (who.uid, who.gid, who.groups.contains(&0));
                assert_eq!(found, (65_534, 65_534, false), "{bits:06b} {credential:?}");
                combinations += 1;
            }
        }
        // Plain and TLS: 8 entries; mutual TLS: 16; four flavours each.
        assert_eq!(combinations, (8 + 8 + 16) * 4);
    }
}
