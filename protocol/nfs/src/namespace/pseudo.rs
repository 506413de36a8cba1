//! The pseudo file system: directories that join the exports under one root.

use super::export::{Export, ExportId};
use super::policy::ClientRule;
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
    /// The pseudo directory that contains an export (`None`: the export is the
    /// root).
    covered: HashMap<ExportId, PseudoId>,
    directories: HashMap<PseudoId, Directory>,
    /// An export with the pseudo path `/`.
    root_export: Option<ExportId>,
    /// Client rules of configured exports that are absent now.
    absent_clients: Vec<ClientRule>,
    /// Number of reloads; the `change` of every pseudo directory.
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
            covered: HashMap::default(),
            directories: HashMap::from_iter([(ROOT, Directory::default())]),
            root_export: None,
            absent_clients: Vec::new(),
            generation,
        };
        for export in exports {
            namespace.add(export)?;
        }
        if namespace.root_export.is_some() && namespace.exports.len() > 1 {
            return Err(PathConflict("/".to_owned()));
        }
        Ok(namespace)
    }

    fn add(&mut self, export: Arc<Export>) -> Result<(), PathConflict> {
        let conflict = || PathConflict(export.pseudo_path.clone());
        let id = export.id;
        let components: Vec<&str> =
            export.pseudo_path.split('/').filter(|part| !part.is_empty()).collect();
        let Some((last, parents)) = components.split_last() else {
            self.root_export = Some(id);
            self.exports.insert(id, export);
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
        if self.exports.insert(id, Arc::clone(&export)).is_some() {
            return Err(conflict());
        }
        Ok(())
    }

    /// An export by number.
    #[must_use]
    pub fn export(&self, id: ExportId) -> Option<&Arc<Export>> {
        self.exports.get(&id)
    }

    /// All exports.
    pub fn exports(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.exports.values()
    }

    /// True if any export offered over NFSv4 names this client.
    #[must_use]
    pub fn names(&self, peer: &crate::runtime::Peer) -> bool {
        self.exports.values().any(|export| export.versions.v4.contains(&true) && export.names(peer))
    }

    /// Counts the hosts of these client rules as named by an export: their
    /// exports are configured, but absent for now. Otherwise such a client
    /// would be refused as unknown instead of being told that its file handle
    /// is stale.
    #[must_use]
    pub fn with_absent_clients(self, absent_clients: Vec<ClientRule>) -> Self {
        Self { absent_clients, ..self }
    }

    /// True if any export names the host, regardless of protocol version,
    /// transport, port and flavour. A host that none names may connect, but has
    /// no access. IPv4-mapped IPv6 addresses count as IPv4.
    #[must_use]
    pub fn names_host(&self, address: IpAddr) -> bool {
        self.exports.values().any(|export| export.names_host(address))
            || self.absent_clients.iter().any(|rule| rule.matches(address))
    }

    /// True if a pseudo directory leads to any export that names this client.
    /// Other directories are hidden from the client.
    #[must_use]
    pub fn leads_somewhere(&self, id: PseudoId, peer: &crate::runtime::Peer) -> bool {
        let Some(directory) = self.directories.get(&id) else { return false };
        directory.children.values().any(|child| match child {
            Child::Directory(id) => self.leads_somewhere(*id, peer),
            Child::Export(id) => self.exports.get(id).is_some_and(|export| export.names(peer)),
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

    /// A child of a pseudo directory.
    #[must_use]
    pub fn child(&self, id: PseudoId, name: &str) -> Option<Child> {
        self.directories.get(&id)?.children.get(name).copied()
    }

    /// The children of a pseudo directory by name.
    #[must_use]
    pub fn children(&self, id: PseudoId) -> Vec<(String, Child)> {
        self.directories.get(&id).map_or_else(Vec::new, |dir| {
            dir.children.iter().map(|(name, child)| (name.clone(), *child)).collect()
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
}
