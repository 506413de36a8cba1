//! Random walks of three clients of three minor versions through one tree,
//! compared with the model after every step. In a second kind of walk the
//! clients take callbacks: whatever is delegated is recalled, given back and
//! tried again, and must come to the same.

use super::config;
use super::model::{CLIENTS, Kind, Model, SPAN};
use crate::rig::{Client, Heard, Locked, Opened, Ops, Rig, Wish, mode};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, HashMap};
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::open::{Delegated, How};
use zgate_nfs::v4::op::readdir::{self, Readdir};
use zgate_nfs::v4::op::renew::{self, Renew};
use zgate_nfs::v4::wire::{Bitmap, LockType, Stateid, Status};
use zgate_store::file_store::NewNode;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CHANGE: u32 = 3;

/// A step; indices choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Make { dir: Index, name: usize, link: bool },
    Open { dir: Index, name: usize, create: u8, access: u32, deny: u32 },
    Close { file: Index },
    Write { file: Index, at: usize, byte: u8 },
    Truncate { file: Index, size: usize },
    Read { file: Index },
    Remove { dir: Index, name: usize },
    Rename { from: Index, old: usize, to: Index, new: usize },
    Link { node: Index, dir: Index, name: usize },
    Lock { file: Index, write: bool, from: usize, len: usize },
    Unlock { file: Index, from: usize, len: usize },
    Test { file: Index, write: bool, from: usize, len: usize },
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let (index, name) = (any::<Index>, || 0..NAMES.len());
    let range = || (0..SPAN, 1..SPAN);
    let one = prop_oneof![
        2 => (index(), name(), any::<bool>()).prop_map(|(dir, name, link)| Step::Make { dir, name, link }),
        6 => (index(), name(), 0..3_u8, 1..4_u32, prop_oneof![3 => Just(0), 1 => 1..4_u32])
            .prop_map(|(dir, name, create, access, deny)| Step::Open { dir, name, create, access, deny }),
        2 => index().prop_map(|file| Step::Close { file }),
        3 => (index(), 0..SPAN, any::<u8>()).prop_map(|(file, at, byte)| Step::Write { file, at, byte }),
        1 => (index(), 0..2 * SPAN).prop_map(|(file, size)| Step::Truncate { file, size }),
        1 => index().prop_map(|file| Step::Read { file }),
        2 => (index(), name()).prop_map(|(dir, name)| Step::Remove { dir, name }),
        2 => (index(), name(), index(), name())
            .prop_map(|(from, old, to, new)| Step::Rename { from, old, to, new }),
        1 => (index(), index(), name()).prop_map(|(node, dir, name)| Step::Link { node, dir, name }),
        3 => (index(), any::<bool>(), range())
            .prop_map(|(file, write, (from, len))| Step::Lock { file, write, from, len }),
        2 => (index(), range()).prop_map(|(file, (from, len))| Step::Unlock { file, from, len }),
        1 => (index(), any::<bool>(), range())
            .prop_map(|(file, write, (from, len))| Step::Test { file, write, from, len }),
    ];
    (0..CLIENTS, one)
}

/// The server, the model, and what ties them together.
struct Walk {
    clients: Vec<Client>,
    checker: Client,
    model: Model,
    /// The handle of each node.
    fhs: Vec<Fh>,
    changes: HashMap<usize, u64>,
    opened: HashMap<(usize, usize), Opened>,
    locked: HashMap<(usize, usize), Locked>,
    /// Delegations by client and file: the stateid, and whether it is for
    /// writing.
    delegated: BTreeMap<(usize, usize), (Stateid, bool)>,
}

type Outcome = Result<(), TestCaseError>;

/// Compares with the model. A request that has to wait for a recall is no
/// verdict yet: the step is rejected, undone and tried again.
fn expect(what: &str, status: Status, allowed: &[Status]) -> Outcome {
    if status == Status::Delay {
        return Err(TestCaseError::reject("recall"));
    }
    prop_assert!(allowed.contains(&status), "{what}: {status:?}, the model says {allowed:?}");
    Ok(())
}

fn status<T>(result: &Result<T, Status>) -> Status {
    result.as_ref().err().copied().unwrap_or(Status::Ok)
}

impl Walk {
    fn new(callbacks: bool) -> Self {
        let rig = Rig::new();
        let client = |n: usize| {
            let client = rig.stranger(&format!("c{n}"), n as u8);
            client.introduce(callbacks);
            client
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in &clients {
            client.cache.set(true);
            client.run(Ops::new().root()).ok();
        }
        let checker = rig.client("checker", 2);
        let fhs = vec![checker.export()];
        let (changes, opened, locked) = Default::default();
        let delegated = BTreeMap::new();
        Self { clients, checker, model: Model::new(), fhs, changes, opened, locked, delegated }
    }

    /// Runs a step until nobody has to be waited for.
    fn take(&mut self, c: usize, step: &Step) -> Result<Vec<usize>, TestCaseError> {
        for _ in 0..=CLIENTS {
            let before = (self.model.clone(), self.opened.clone(), self.locked.clone());
            match self.run(c, step) {
                Err(TestCaseError::Reject(_)) => {
                    // Sequence numbers of stateids may not have moved.
                    (self.model, self.opened, self.locked) = before;
                    self.give_back()?;
                }
                other => return other,
            }
        }
        Err(TestCaseError::fail(format!("{step:?} has to wait though all was given back")))
    }

    /// Every client returns what was recalled.
    fn give_back(&mut self) -> Outcome {
        let mut returned = 0;
        for (c, client) in self.clients.iter().enumerate() {
            for heard in client.heard() {
                let Heard::Recall { stateid, fh, .. } = heard else { continue };
                let file = self.fhs.iter().position(|known| *known == fh).unwrap();
                if self.delegated.get(&(c, file)).is_some_and(|held| held.0 == stateid) {
                    prop_assert_eq!(client.delegreturn(&fh, stateid), Ok(()));
                    self.delegated.remove(&(c, file));
                    returned += 1;
                }
            }
        }
        prop_assert!(returned > 0, "a wait for nobody");
        Ok(())
    }

    /// Time passes, everybody shows life.
    fn breathe(&self) {
        self.clients[0].rig.pass_seconds(2);
        for client in &self.clients {
            let ops = match client.minor {
                0 => Ops::new().op::<Renew>(&renew::Args { clientid: client.id.get() }),
                _ => Ops::new().root(),
            };
            client.run(ops).ok();
        }
    }

    /// Nobody uses a file in a way that a delegation of another forbids
    /// (RFC 8881 §10.4).
    fn check_delegations(&self) -> Outcome {
        for ((c, file), (_, write)) in &self.delegated {
            let opens = self.model.nodes[*file].opens.iter().enumerate();
            for (other, open) in opens.filter(|(other, _)| other != c) {
                let access = open.map_or(0, |open| open.access);
                let collides = if *write { access != 0 } else { access & 2 != 0 };
                prop_assert!(!collides, "client {} opened what {} was delegated", other, c);
            }
            for ((other, also), (_, writes)) in &self.delegated {
                let collides = also == file && other != c && (*write || *writes);
                prop_assert!(!collides, "two delegations of one file, one for writing");
            }
        }
        Ok(())
    }

    fn is_delegated(&self, file: usize) -> bool {
        self.delegated.keys().any(|(_, of)| *of == file)
    }

    fn dir(&self, index: &Index) -> usize {
        *index.get(&self.model.dirs())
    }

    /// A file this client has open.
    fn held(&self, client: usize, index: &Index) -> Option<usize> {
        let mut files: Vec<_> =
            self.opened.keys().filter(|(of, _)| *of == client).map(|(_, file)| *file).collect();
        files.sort_unstable();
        (!files.is_empty()).then(|| *index.get(&files))
    }

    /// Runs a step on both sides; answers the nodes that must have changed.
    fn run(&mut self, c: usize, step: &Step) -> Result<Vec<usize>, TestCaseError> {
        match step {
            Step::Make { dir, name, link } => self.make(c, self.dir(dir), NAMES[*name], *link),
            Step::Open { dir, name, create, access, deny } => {
                self.open(c, self.dir(dir), NAMES[*name], *create, (*access, *deny))
            }
            Step::Remove { dir, name } => {
                let (dir, name) = (self.dir(dir), NAMES[*name]);
                let got = self.clients[c].remove(&self.fhs[dir], name);
                let (expected, changed) = self.model.remove(dir, name);
                expect("REMOVE", status(&got), &[expected])?;
                Ok(changed)
            }
            Step::Rename { from, old, to, new } => {
                let (from, to) = (self.dir(from), self.dir(to));
                let (old, new) = (NAMES[*old], NAMES[*new]);
                let ops = Ops::new().at(&self.fhs[from]).save().at(&self.fhs[to]).rename(old, new);
                let got = self.clients[c].run(ops).status;
                let (expected, changed) = self.model.rename(from, old, to, new);
                expect("RENAME", got, &expected)?;
                Ok(changed)
            }
            Step::Link { node, dir, name } => {
                let candidates: Vec<usize> = (0..self.model.nodes.len())
                    .filter(|n| !self.model.nodes[*n].is_dir() && self.model.nodes[*n].nlink > 0)
                    .collect();
                if candidates.is_empty() {
                    return Ok(Vec::new());
                }
                let (node, dir, name) = (*node.get(&candidates), self.dir(dir), NAMES[*name]);
                let ops = Ops::new().at(&self.fhs[node]).save().at(&self.fhs[dir]).link(name);
                let got = self.clients[c].run(ops).status;
                let (expected, changed) = self.model.link(node, dir, name);
                expect("LINK", got, &[expected])?;
                Ok(changed)
            }
            Step::Close { file }
            | Step::Write { file, .. }
            | Step::Truncate { file, .. }
            | Step::Read { file }
            | Step::Lock { file, .. }
            | Step::Unlock { file, .. }
            | Step::Test { file, .. } => match self.held(c, file) {
                Some(file) => self.on_open(c, file, step),
                None => Ok(Vec::new()),
            },
        }
    }

    fn make(
        &mut self,
        c: usize,
        dir: usize,
        name: &'static str,
        link: bool,
    ) -> Result<Vec<usize>, TestCaseError> {
        let kind = if link { NewNode::Symlink(b"x".to_vec()) } else { NewNode::Directory };
        let got = self.clients[c].make(&self.fhs[dir], name, kind);
        if self.model.find(dir, name).is_some() {
            expect("CREATE", status(&got), &[Status::Exist])?;
            return Ok(Vec::new());
        }
        expect("CREATE", status(&got), &[Status::Ok])?;
        let kind = if link { Kind::Link } else { Kind::Dir(BTreeMap::new()) };
        let node = self.model.add(dir, name, kind);
        self.fhs.push(got.unwrap());
        Ok(vec![dir, node])
    }

    fn open(
        &mut self,
        c: usize,
        dir: usize,
        name: &'static str,
        create: u8,
        (access, deny): (u32, u32),
    ) -> Result<Vec<usize>, TestCaseError> {
        let how = match create {
            0 => How::NoCreate,
            1 => How::Unchecked(mode(0o600)),
            _ => How::Guarded(mode(0o600)),
        };
        let wish = Wish::name(&self.fhs[dir], name).access(access).deny(deny).how(how);
        let got = self.clients[c].open(&wish);
        let found = self.model.find(dir, name);
        let expected = match found {
            None if create == 0 => vec![Status::Noent],
            None => vec![Status::Ok],
            Some(_) if create == 2 => vec![Status::Exist],
            Some(node) => match self.model.nodes[node].kind {
                Kind::Dir(_) => vec![Status::Isdir, Status::Exist],
                Kind::Link => vec![Status::Symlink, Status::Exist],
                Kind::File(_) if self.model.open_conflict(node, access, deny) => {
                    vec![Status::ShareDenied]
                }
                Kind::File(_) => vec![Status::Ok],
            },
        };
        expect("OPEN", status(&got), &expected)?;
        let Ok(opened) = got else { return Ok(Vec::new()) };
        let (node, changed) = match found {
            Some(node) => (node, Vec::new()),
            None => {
                let node = self.model.add(dir, name, Kind::File(Vec::new()));
                self.fhs.push(opened.fh.clone());
                (node, vec![dir, node])
            }
        };
        prop_assert_eq!(&opened.fh, &self.fhs[node]);
        self.model.open(c, node, access, deny);
        match opened.delegated {
            Delegated::Read { stateid, .. } => {
                prop_assert!(self.delegated.insert((c, node), (stateid, false)).is_none());
            }
            Delegated::Write { stateid, .. } => {
                prop_assert!(self.delegated.insert((c, node), (stateid, true)).is_none());
            }
            _ => {}
        }
        self.opened.insert((c, node), opened);
        Ok(changed)
    }

    fn on_open(&mut self, c: usize, file: usize, step: &Step) -> Result<Vec<usize>, TestCaseError> {
        let opened = self.opened[&(c, file)].clone();
        let share = self.model.nodes[file].opens[c].unwrap();
        let client = &self.clients[c];
        let Kind::File(data) = &mut self.model.nodes[file].kind else { panic!("a file") };
        let may_write = if share.access & 2 != 0 { Status::Ok } else { Status::Openmode };
        match step {
            Step::Close { .. } => {
                expect("CLOSE", status(&client.close(&opened)), &[Status::Ok])?;
                self.opened.remove(&(c, file));
                self.locked.remove(&(c, file));
                self.model.close(c, file);
            }
            Step::Write { at, byte, .. } => {
                let got = client.write(&opened.fh, opened.stateid, *at as u64, &[*byte; 3]);
                expect("WRITE", status(&got), &[may_write])?;
                if may_write == Status::Ok {
                    if data.len() < at + 3 {
                        data.resize(at + 3, 0);
                    }
                    data[*at..at + 3].fill(*byte);
                    return Ok(vec![file]);
                }
            }
            Step::Truncate { size, .. } => {
                let got = client.truncate(&opened.fh, opened.stateid, *size as u64);
                expect("SETATTR", status(&got), &[may_write])?;
                if may_write == Status::Ok {
                    data.resize(*size, 0);
                    return Ok(vec![file]);
                }
            }
            Step::Read { .. } => {
                let got = client.read(&opened.fh, opened.stateid, 1, 8);
                expect("READ", status(&got), &[Status::Ok])?;
                let (eof, bytes) = got.unwrap();
                let end = data.len().min(9);
                prop_assert_eq!(&bytes[..], &data[end.min(1)..end]);
                prop_assert_eq!(eof, data.len() <= 9);
            }
            _ => self.on_locks(c, file, step, &opened)?,
        }
        Ok(Vec::new())
    }

    fn on_locks(&mut self, c: usize, file: usize, step: &Step, opened: &Opened) -> Outcome {
        let client = &self.clients[c];
        let node = &mut self.model.nodes[file];
        let share = node.opens[c].unwrap();
        let bounds = |from: usize, len: usize| (from, (from + len).min(SPAN));
        let wire = |from: usize, to: usize| (from as u64, (to - from) as u64);
        match step {
            Step::Lock { write, from, len, .. } => {
                let (from, to) = bounds(*from, *len);
                let kind = if *write { LockType::Write } else { LockType::Read };
                let needed = if *write { 2 } else { 1 };
                let expected = if share.access & needed == 0 {
                    Status::Openmode
                } else if node.locked(c, *write, from, to) {
                    Status::Denied
                } else {
                    Status::Ok
                };
                let got = match self.locked.get_mut(&(c, file)) {
                    Some(locked) => status(&client.lock_more(locked, kind, wire(from, to))),
                    None => {
                        let got = client.lock(opened, "locker", kind, wire(from, to));
                        let status = status(&got);
                        if let Ok(locked) = got {
                            self.locked.insert((c, file), locked);
                        }
                        status
                    }
                };
                expect("LOCK", got, &[expected])?;
                if expected == Status::Ok {
                    node.locks[c][from..to].fill(if *write { 2 } else { 1 });
                }
            }
            Step::Unlock { from, len, .. } => {
                let (from, to) = bounds(*from, *len);
                let Some(locked) = self.locked.get_mut(&(c, file)) else { return Ok(()) };
                expect("LOCKU", status(&client.unlock(locked, wire(from, to))), &[Status::Ok])?;
                node.locks[c][from..to].fill(0);
            }
            Step::Test { write, from, len, .. } => {
                let (from, to) = bounds(*from, *len);
                let kind = if *write { LockType::Write } else { LockType::Read };
                let denied = node.locked(c, *write, from, to);
                let expected = if denied { Status::Denied } else { Status::Ok };
                let got = client.lockt(&opened.fh, "locker", kind, wire(from, to));
                expect("LOCKT", status(&got), &[expected])?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The last request of a client with a session, sent again.
    fn repeat(&self, c: usize) -> Outcome {
        if self.clients[c].minor > 0 {
            let (before, again) = self.clients[c].repeat();
            prop_assert_eq!(before, again, "a retry gets another answer");
        }
        Ok(())
    }

    /// Compares the whole tree with the model.
    fn check(&mut self, changed: &[usize]) -> Outcome {
        for node in 0..self.model.nodes.len() {
            let fh = &self.fhs[node];
            let of = &self.model.nodes[node];
            prop_assert!(of.is_sound(), "conflicting locks or opens coexist");
            if !of.exists() && self.is_delegated(node) {
                continue;
            }
            if !of.exists() {
                let gone = self.checker.run(Ops::new().at(fh).getattr(&[CHANGE])).status;
                prop_assert_eq!(gone as u32, Status::Stale as u32);
                continue;
            }
            let change = self.checker.number(fh, CHANGE);
            if let Some(before) = self.changes.insert(node, change) {
                prop_assert!(change >= before, "the change attribute goes backwards");
                prop_assert!(change > before || !changed.contains(&node), "a change unseen");
            }
            prop_assert_eq!(self.checker.number(fh, 35), of.nlink, "links of {}", node);
            match &of.kind {
                Kind::Dir(entries) => {
                    let names: Vec<_> = entries.keys().map(|name| (*name).to_owned()).collect();
                    prop_assert_eq!(list(&self.checker, fh), names);
                }
                Kind::File(data) => {
                    prop_assert_eq!(self.checker.number(fh, 4), data.len() as u64);
                    if self.is_delegated(node) {
                        // Reading would have it recalled.
                        continue;
                    }
                    let read = self.checker.read(fh, Stateid::ANONYMOUS, 0, 100);
                    match read {
                        Ok((_, bytes)) => prop_assert_eq!(&bytes[..], &data[..]),
                        Err(status) => expect("READ", status, &[Status::Locked])?,
                    }
                    prop_assert_eq!(read_denied(&self.checker, fh), of.denies(1));
                }
                Kind::Link => {}
            }
        }
        Ok(())
    }
}

fn read_denied(checker: &Client, fh: &Fh) -> bool {
    checker.read(fh, Stateid::ANONYMOUS, 0, 1).is_err()
}

fn list(checker: &Client, dir: &Fh) -> Vec<String> {
    let args = readdir::Args {
        cookie: 0,
        verifier: [0; 8],
        dircount: 0,
        maxcount: 4096,
        want: Bitmap::default(),
    };
    let res = checker.run(Ops::new().at(dir).op::<Readdir>(&args)).ok().get::<Readdir>();
    assert!(res.eof);
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let mut names: Vec<_> = res.entries.iter().map(|entry| text(&entry.name.0)).collect();
    names.sort();
    names
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn three_clients_and_the_model_agree(steps in prop::collection::vec(step(), 1..60)) {
        let mut walk = Walk::new(false);
        for (c, step) in &steps {
            let changed = walk.take(*c, step)?;
            walk.repeat(*c)?;
            walk.check(&changed)?;
        }
    }

    #[test]
    fn clients_with_delegations_and_the_model_agree(steps in prop::collection::vec(step(), 1..60)) {
        let mut walk = Walk::new(true);
        for (c, step) in &steps {
            let changed = walk.take(*c, step)?;
            walk.repeat(*c)?;
            walk.check(&changed)?;
            walk.check_delegations()?;
            walk.breathe();
        }
    }
}
