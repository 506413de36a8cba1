//! A model of a tree, its contents, opens and locks: expected answers, and
//! invariants after every step.

use std::collections::BTreeMap;
use zgate_nfs_wire::v4::Status;

/// Number of bytes of a file that are locked.
pub(super) const SPAN: usize = 12;
pub(super) const CLIENTS: usize = 3;

/// Type of a node.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    File(File),
    Dir(BTreeMap<&'static str, usize>),
    Link,
}

/// Contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pub(super) xattrs: BTreeMap<&'static str, Vec<u8>>,
}

impl File {
    /// Writes `data` at `at`; a gap before it is filled with zeros.
    pub(super) fn put(&mut self, at: u64, data: &[u8]) {
        let at = at as usize;
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }
}

/// One client's open of one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) access: u32,
    pub(super) deny: u32,
}

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) nlink: u64,
    pub(super) opens: [Option<Share>; CLIENTS],
    /// Per client and byte: 0 free, 1 shared, 2 exclusive.
    pub(super) locks: [[u8; SPAN]; CLIENTS],
}

impl Node {
    fn new(kind: Kind) -> Self {
        let nlink = if matches!(kind, Kind::Dir(_)) { 2 } else { 1 };
        Self { kind, nlink, opens: [None; CLIENTS], locks: [[0; SPAN]; CLIENTS] }
    }

    pub(super) fn denies(&self, access: u32) -> bool {
        self.opens.iter().flatten().any(|open| open.deny & access != 0)
    }

    pub(super) fn exists(&self) -> bool {
        self.nlink > 0 || self.opens.iter().any(Option::is_some)
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir(_))
    }

    /// Returns whether a lock would conflict.
    pub(super) fn locked(&self, client: usize, write: bool, from: usize, to: usize) -> bool {
        (0..CLIENTS).filter(|other| *other != client).any(|other| {
            self.locks[other][from..to].iter().any(|held| *held == 2 || write && *held == 1)
        })
    }

    /// True if no two locks or opens of different clients conflict.
    pub(super) fn is_sound(&self) -> bool {
        let bytes = (0..SPAN).all(|at| {
            let held = |kind| self.locks.iter().filter(|locks| locks[at] == kind).count();
            held(2) == 0 || held(2) == 1 && held(1) == 0
        });
        let opens: Vec<_> = self.opens.iter().flatten().collect();
        let shares = opens.iter().enumerate().all(|(at, one)| {
            opens
                .iter()
                .skip(at + 1)
                .all(|two| one.access & two.deny == 0 && one.deny & two.access == 0)
        });
        bytes && shares
    }
}

/// The whole model. Node 0 is the root.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) nodes: Vec<Node>,
}

impl Model {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::new(Kind::Dir(BTreeMap::new()))] }
    }

    pub(super) fn entries(&self, dir: usize) -> &BTreeMap<&'static str, usize> {
        match &self.nodes[dir].kind {
            Kind::Dir(entries) => entries,
            _ => panic!("no directory"),
        }
    }

    pub(super) fn file(&self, node: usize) -> &File {
        match &self.nodes[node].kind {
            Kind::File(file) => file,
            _ => panic!("no file"),
        }
    }

    pub(super) fn file_mut(&mut self, node: usize) -> &mut File {
        match &mut self.nodes[node].kind {
            Kind::File(file) => file,
            _ => panic!("no file"),
        }
    }

    fn entries_mut(&mut self, dir: usize) -> &mut BTreeMap<&'static str, usize> {
        match &mut self.nodes[dir].kind {
            Kind::Dir(entries) => entries,
            _ => panic!("no directory"),
        }
    }

    pub(super) fn find(&self, dir: usize, name: &str) -> Option<usize> {
        self.entries(dir).get(name).copied()
    }

    /// Existing directories.
    pub(super) fn dirs(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|n| self.nodes[*n].is_dir() && self.nodes[*n].exists())
            .collect()
    }

    pub(super) fn add(&mut self, dir: usize, name: &'static str, kind: Kind) -> usize {
        let node = self.nodes.len();
        if matches!(kind, Kind::Dir(_)) {
            self.nodes[dir].nlink += 1;
        }
        self.nodes.push(Node::new(kind));
        self.entries_mut(dir).insert(name, node);
        node
    }

    /// REMOVE: its status and the changed nodes.
    pub(super) fn remove(&mut self, dir: usize, name: &'static str) -> (Status, Vec<usize>) {
        let Some(node) = self.find(dir, name) else { return (Status::Noent, Vec::new()) };
        if self.nodes[node].is_dir() && !self.entries(node).is_empty() {
            return (Status::Notempty, Vec::new());
        }
        self.unlink(dir, name, node);
        (Status::Ok, vec![dir, node])
    }

    fn unlink(&mut self, dir: usize, name: &'static str, node: usize) {
        self.entries_mut(dir).remove(name);
        if self.nodes[node].is_dir() {
            self.nodes[node].nlink = 0;
            self.nodes[dir].nlink -= 1;
        } else {
            self.nodes[node].nlink -= 1;
        }
    }

    fn is_below(&self, node: usize, above: usize) -> bool {
        node == above
            || self.nodes[above].is_dir()
                && self.entries(above).values().any(|child| self.is_below(node, *child))
    }

    /// RENAME: its possible statuses and the changed nodes.
    pub(super) fn rename(
        &mut self,
        from: usize,
        old: &'static str,
        to: usize,
        new: &'static str,
    ) -> (Vec<Status>, Vec<usize>) {
        let Some(node) = self.find(from, old) else { return (vec![Status::Noent], Vec::new()) };
        let target = self.find(to, new);
        if target == Some(node) {
            return (vec![Status::Ok], Vec::new());
        }
        if self.nodes[node].is_dir() && self.is_below(to, node) {
            return (vec![Status::Inval, Status::Exist], Vec::new());
        }
        if let Some(target) = target {
            let (one, two) = (self.nodes[node].is_dir(), self.nodes[target].is_dir());
            if one != two || two && !self.entries(target).is_empty() {
                return (vec![Status::Exist], Vec::new());
            }
            self.unlink(to, new, target);
        }
        self.entries_mut(from).remove(old);
        self.entries_mut(to).insert(new, node);
        if self.nodes[node].is_dir() {
            self.nodes[from].nlink -= 1;
            self.nodes[to].nlink += 1;
        }
        (vec![Status::Ok], vec![from, to])
    }

    pub(super) fn link(
        &mut self,
        node: usize,
        dir: usize,
        name: &'static str,
    ) -> (Status, Vec<usize>) {
        if self.find(dir, name).is_some() {
            return (Status::Exist, Vec::new());
        }
        self.nodes[node].nlink += 1;
        self.entries_mut(dir).insert(name, node);
        (Status::Ok, vec![dir, node])
    }

    /// Returns whether this open is refused.
    pub(super) fn open_conflict(&self, node: usize, access: u32, deny: u32) -> bool {
        let opens = self.nodes[node].opens.iter().flatten();
        opens.into_iter().any(|open| open.access & deny != 0 || open.deny & access != 0)
    }

    pub(super) fn open(&mut self, client: usize, node: usize, access: u32, deny: u32) {
        let share = self.nodes[node].opens[client].get_or_insert(Share { access: 0, deny: 0 });
        share.access |= access;
        share.deny |= deny;
    }

    pub(super) fn close(&mut self, client: usize, node: usize) {
        self.nodes[node].opens[client] = None;
        self.nodes[node].locks[client] = [0; SPAN];
    }
}
