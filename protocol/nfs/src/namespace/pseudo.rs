//! The pseudo file system: directories that join the exports under one root.

use super::absent::AbsentExport;
use super::export::{Export, ExportId};
use super::policy::ClientRule;
use crate::runtime::Peer;
use ahash::HashMap;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Number of a pseudo directory; derived from its path, so that handles
/// survive restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PseudoId(pub u32);

/// The root of the pseudo file system.
pub const ROOT: PseudoId = PseudoId(1);

/// Child of a pseudo directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// Another pseudo directory.
    Directory(PseudoId),
    /// The root of an export.
    Export(ExportId),
}

#[derive(Debug, Default)]
struct Directory {
    parent: Option<PseudoId>,
    children: BTreeMap<String, Child>,
}

/// All exports and the tree that joins them. Immutable: a reload builds a new
/// one.
#[derive(Debug)]
pub struct Namespace {
    exports: HashMap<ExportId, Arc<Export>>,
    /// Exports whose trees cannot be opened now.
    absent: HashMap<ExportId, AbsentExport>,
    /// The pseudo directory that contains an export (`None`: the export is the
    /// root).
    covered: HashMap<ExportId, PseudoId>,
    directories: HashMap<PseudoId, Directory>,
    /// An export with the pseudo path `/`.
    root_export: Option<ExportId>,
    /// Client rules of configured exports that are absent now.
    absent_clients: Vec<ClientRule>,
    /// Set while there may be exports that are not known yet.
    incomplete: bool,
    /// Number of reloads; a part of the `change` of every pseudo directory.
    pub generation: u64,
}

/// Two exports that cannot both exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {0}: its pseudo path lies inside or equals that of another export")]
pub struct PathConflict(pub String);

/// A number for a path: FNV-1a folded to 31 bits, above the reserved ones.
fn number_of(path: &str) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in path.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    (((hash >> 32) ^ hash) as u32 & 0x7fff_ffff).max(16)
}

impl ExportId {
    /// The default number of an export with this pseudo path.
    #[must_use]
    pub fn from_pseudo_path(path: &str) -> Self {
        Self(number_of(path))
    }
}

impl Namespace {
    /// Joins `exports` under one root.
    ///
    /// # Errors
    /// [`PathConflict`] when one export's pseudo path is a prefix of another's.
    pub fn new(exports: Vec<Arc<Export>>, generation: u64) -> Result<Self, PathConflict> {
        let mut namespace = Self {
            exports: HashMap::default(),
            absent: HashMap::default(),
            covered: HashMap::default(),
            directories: HashMap::from_iter([(ROOT, Directory::default())]),
            root_export: None,
            absent_clients: Vec::new(),
            incomplete: false,
            generation,
        };
        for export in exports {
            namespace.place(export.id, &export.pseudo_path)?;
            if namespace.exports.insert(export.id, Arc::clone(&export)).is_some() {
                return Err(PathConflict(export.pseudo_path.clone()));
            }
        }
        namespace.check_root()?;
        Ok(namespace)
    }

    /// Adds exports whose trees cannot be opened now. Their places are kept, but
    /// lookups do not find them.
    ///
    /// # Errors
    /// [`PathConflict`] as for any other export.
    pub fn with_absent(mut self, absent: Vec<AbsentExport>) -> Result<Self, PathConflict> {
        for export in absent {
            self.place(export.id, &export.pseudo_path)?;
            let conflict = PathConflict(export.pseudo_path.clone());
            let taken = self.exports.contains_key(&export.id);
            if taken || self.absent.insert(export.id, export).is_some() {
                return Err(conflict);
            }
        }
        self.check_root()?;
        Ok(self)
    }

    fn check_root(&self) -> Result<(), PathConflict> {
        if self.root_export.is_some() && self.exports.len() + self.absent.len() > 1 {
            return Err(PathConflict("/".to_owned()));
        }
        Ok(())
    }

    /// Gives an export its place in the tree.
    fn place(&mut self, id: ExportId, pseudo_path: &str) -> Result<(), PathConflict> {
        let conflict = || PathConflict(pseudo_path.to_owned());
        let components: Vec<&str> =
            pseudo_path.split('/').filter(|part| !part.is_empty()).collect();
        let Some((last, parents)) = components.split_last() else {
            self.root_export = Some(id);
            return Ok(());
        };
        let mut at = ROOT;
        let mut path = String::new();
        for part in parents {
            path.push('/');
            path.push_str(part);
            let next = PseudoId(number_of(&path));
            let here = self.directories.entry(at).or_default();
            match here.children.get(*part) {
                Some(Child::Directory(id)) => at = *id,
                Some(Child::Export(_)) => return Err(conflict()),
                None => {
                    here.children.insert((*part).to_owned(), Child::Directory(next));
                    self.directories
                        .insert(next, Directory { parent: Some(at), children: BTreeMap::new() });
                    at = next;
                }
            }
        }
        let here = self.directories.entry(at).or_default();
        if here.children.insert((*last).to_owned(), Child::Export(id)).is_some() {
            return Err(conflict());
        }
        self.covered.insert(id, at);
        Ok(())
    }

    /// An export by number.
    #[must_use]
    pub fn export(&self, id: ExportId) -> Option<&Arc<Export>> {
        self.exports.get(&id)
    }

    /// The export at this pseudo path.
    #[must_use]
    pub fn export_at(&self, pseudo_path: &str) -> Option<&Arc<Export>> {
        self.exports.values().find(|export| export.pseudo_path == pseudo_path)
    }

    /// True if the export is configured, but its tree cannot be opened now.
    #[must_use]
    pub fn is_absent(&self, id: ExportId) -> bool {
        self.absent.contains_key(&id)
    }

    /// The export, if it is configured for this client, but its tree cannot be
    /// opened now: the client is to retry.
    #[must_use]
    pub fn away(&self, id: ExportId, peer: &Peer) -> Option<&AbsentExport> {
        self.absent.get(&id).filter(|export| export.names(peer))
    }

    /// The same for an export that is the whole tree.
    #[must_use]
    pub fn root_away(&self, peer: &Peer) -> Option<&AbsentExport> {
        self.away(self.root_export?, peer)
    }

    /// All exports that are present.
    pub fn exports(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.exports.values()
    }

    /// True if any export offered over NFSv4 names this client.
    #[must_use]
    pub fn names(&self, peer: &Peer) -> bool {
        let absent = self.absent.values();
        self.exports.values().any(|export| export.versions.v4.contains(&true) && export.names(peer))
            || absent
                .filter(|export| export.versions.v4.contains(&true))
                .any(|export| export.names(peer))
    }

    /// Counts the hosts of these client rules as named by an export: their
    /// exports are configured, but absent for now. Otherwise such a client
    /// would be refused as unknown instead of being told that its file handle
    /// is stale.
    #[must_use]
    pub fn with_absent_clients(self, absent_clients: Vec<ClientRule>) -> Self {
        Self { absent_clients, ..self }
    }

    /// Says whether there may be exports that are not known yet, because a pool has
    /// not told its datasets. Until it has, nobody can say that a file handle is
    /// stale, or that no export names a host: clients take both for final.
    #[must_use]
    pub fn with_incomplete(self, incomplete: bool) -> Self {
        Self { incomplete, ..self }
    }

    /// True while there may be exports that are not known yet.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// True if the number may be that of an export that is not known yet: the client
    /// is to retry.
    #[must_use]
    pub fn may_appear(&self, id: ExportId) -> bool {
        self.incomplete && !self.exports.contains_key(&id) && !self.absent.contains_key(&id)
    }

    /// True if any export names the host, regardless of protocol version,
    /// transport, port and flavour, or one that is not known yet may name it. A host
    /// that none names may connect, but has no access. IPv4-mapped IPv6 addresses
    /// count as IPv4.
    #[must_use]
    pub fn names_host(&self, address: IpAddr) -> bool {
        self.incomplete
            || self.exports.values().any(|export| export.names_host(address))
            || self.absent.values().any(|export| export.names_host(address))
            || self.absent_clients.iter().any(|rule| rule.matches(address))
    }

    /// The rules for a client that take the groups of users from the server, without
    /// repetition.
    #[must_use]
    pub fn rules_with_server_groups(&self, peer: &Peer) -> Vec<ClientRule> {
        let mut rules: Vec<ClientRule> = Vec::new();
        for rule in self.exports.values().filter_map(|export| export.rule_for(peer)) {
            if rule.server_groups && !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        rules
    }

    /// True if a pseudo directory leads to any export that names this client,
    /// present or absent: a client may hold the directory's handle. Other
    /// directories are hidden from the client.
    #[must_use]
    pub fn leads_somewhere(&self, id: PseudoId, peer: &Peer) -> bool {
        let Some(directory) = self.directories.get(&id) else { return false };
        directory.children.values().any(|child| match child {
            Child::Directory(id) => self.leads_somewhere(*id, peer),
            Child::Export(id) => {
                self.exports.get(id).is_some_and(|export| export.names(peer))
                    || self.away(*id, peer).is_some()
            }
        })
    }

    /// The object of the root file handle.
    #[must_use]
    pub fn root(&self) -> Child {
        self.root_export.map_or(Child::Directory(ROOT), Child::Export)
    }

    /// True if the directory exists (still).
    #[must_use]
    pub fn contains(&self, id: PseudoId) -> bool {
        self.directories.contains_key(&id)
    }

    fn is_present(&self, child: Child) -> bool {
        !matches!(child, Child::Export(id) if !self.exports.contains_key(&id))
    }

    /// A child of a pseudo directory; absent exports have none.
    #[must_use]
    pub fn child(&self, id: PseudoId, name: &str) -> Option<Child> {
        let child = self.directories.get(&id)?.children.get(name).copied();
        child.filter(|child| self.is_present(*child))
    }

    /// The children of a pseudo directory by name, without absent exports.
    #[must_use]
    pub fn children(&self, id: PseudoId) -> Vec<(String, Child)> {
        self.directories.get(&id).map_or_else(Vec::new, |dir| {
            let present = dir.children.iter().filter(|(_, child)| self.is_present(**child));
            present.map(|(name, child)| (name.clone(), *child)).collect()
        })
    }

    /// The parent of a pseudo directory; `None` at the root.
    #[must_use]
    pub fn parent(&self, id: PseudoId) -> Option<PseudoId> {
        self.directories.get(&id)?.parent
    }

    /// The pseudo directory that contains an export; `None` for an export at
    /// the root.
    #[must_use]
    pub fn parent_of_export(&self, id: ExportId) -> Option<PseudoId> {
        self.covered.get(&id).copied()
    }

    /// The file id by which the pseudo directory lists an export's root.
    #[must_use]
    pub fn mounted_on(id: ExportId) -> u64 {
        u64::from(id.0) | 1 << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_lead_only_to_what_names_the_client() {
        use crate::v3::proc::rig::{a_call, an_export};
        let at = |path: &str, networks| {
            let clients = vec![ClientRule { networks, ..ClientRule::open_to_all() }];
            let id = ExportId::from_pseudo_path(path);
            Arc::new(Export { id, pseudo_path: path.to_owned(), clients, ..an_export() })
        };
        let elsewhere = vec!["10.0.0.0/8".parse().unwrap()];
        let exports = vec![at("/a/b/open", Vec::new()), at("/secret/plan", elsewhere)];
        let namespace = Namespace::new(exports, 1).unwrap();
        let sees = |name: &str| match namespace.child(ROOT, name) {
            Some(Child::Directory(id)) => namespace.leads_somewhere(id, &a_call().peer),
            other => panic!("{other:?}"),
        };
        assert!(sees("a") && !sees("secret"));
        assert!(namespace.names(&a_call().peer));
    }

    #[test]
    fn a_host_is_named_by_any_export_and_transport() {
        use crate::v3::proc::rig::an_export;
        let networks = vec!["10.1.0.0/16".parse().unwrap()];
        let clients = vec![ClientRule { networks, ..ClientRule::open_to_all() }];
        let rdma_only = Export { clients, tcp: false, rdma: true, ..an_export() };
        let nobody = Export {
            id: ExportId(77),
            pseudo_path: "/closed".to_owned(),
            clients: Vec::new(),
            ..an_export()
        };
        let namespace = Namespace::new(vec![Arc::new(rdma_only), Arc::new(nobody)], 1).unwrap();
        let named = |address: &str| namespace.names_host(address.parse().unwrap());
        assert!(named("10.1.2.3") && named("::ffff:10.1.2.3"));
        assert!(!named("10.2.2.3") && !named("::ffff:10.2.2.3") && !named("fe80::1"));
        let none = Namespace::new(Vec::new(), 1).unwrap();
        assert!(!none.names_host([127, 0, 0, 1].into()));
        // Its export is configured, and will return.
        assert!(
            none.with_absent_clients(vec![ClientRule::open_to_all()])
                .names_host([127, 0, 0, 1].into())
        );
    }

    #[test]
    fn while_exports_may_be_unknown_no_number_and_no_host_is_refused_for_good() {
        use crate::v3::proc::rig::{a_call, an_export};
        let absent = AbsentExport {
            id: ExportId(77),
            pseudo_path: "/gone".to_owned(),
            clients: Vec::new(),
            versions: an_export().versions,
            tcp: true,
            rdma: true,
        };
        let namespace = Namespace::new(vec![Arc::new(an_export())], 1).unwrap();
        let namespace = namespace.with_absent(vec![absent]).unwrap().with_incomplete(true);
        assert!(namespace.may_appear(ExportId(78)));
        assert!(!namespace.may_appear(ExportId(77)) && !namespace.may_appear(an_export().id));
        let none = || Namespace::new(Vec::new(), 1).unwrap();
        let host = [192, 0, 2, 1].into();
        assert!(none().with_incomplete(true).names_host(host));
        assert!(!none().names_host(host) && !none().may_appear(ExportId(78)));
        // It is known by no export; whoever keeps state for it has to wait.
        assert!(!none().with_incomplete(true).names(&a_call().peer));
    }

    #[test]
    fn an_absent_export_has_a_place_and_clients_but_no_name() {
        use crate::v3::proc::rig::{a_call, an_export};
        let absent = |path: &str, networks| AbsentExport {
            id: ExportId::from_pseudo_path(path),
            pseudo_path: path.to_owned(),
            clients: vec![ClientRule { networks, ..ClientRule::open_to_all() }],
            versions: an_export().versions,
            tcp: true,
            rdma: false,
        };
        let elsewhere = vec!["10.0.0.0/8".parse().unwrap()];
        let one = absent("/a/gone", Vec::new());
        let namespace = Namespace::new(vec![Arc::new(an_export())], 1).unwrap();
        let others = absent("/b/others", elsewhere);
        let namespace = namespace.with_absent(vec![one.clone(), others.clone()]).unwrap();
        let peer = a_call().peer;
        let is_away = |id, peer: &Peer| namespace.away(id, peer).is_some();
        assert!(is_away(one.id, &peer) && !is_away(others.id, &peer));
        assert!(!is_away(an_export().id, &peer), "present");
        assert!(!is_away(one.id, &Peer { rdma: true, ..peer.clone() }), "not offered there");
        let Some(Child::Directory(a)) = namespace.child(ROOT, "a") else { panic!() };
        let Some(Child::Directory(b)) = namespace.child(ROOT, "b") else { panic!() };
        assert!(namespace.leads_somewhere(a, &peer) && !namespace.leads_somewhere(b, &peer));
        assert_eq!((namespace.child(a, "gone"), namespace.children(a)), (None, Vec::new()));
        // Its place is taken, as that of any other export.
        let inside = || Namespace::new(vec![Arc::new(an_export())], 1).unwrap();
        assert!(inside().with_absent(vec![absent("/export/x", Vec::new())]).is_err());
        assert!(inside().with_absent(vec![absent("/export", Vec::new())]).is_err());
        assert!(inside().with_absent(vec![absent("/", Vec::new())]).is_err());
        let alone = Namespace::new(Vec::new(), 1).unwrap();
        let alone = alone.with_absent(vec![absent("/", Vec::new())]).unwrap();
        assert!(alone.root_away(&peer).is_some() && alone.names(&peer));
        assert!(alone.names_host(peer.address));
    }
}
