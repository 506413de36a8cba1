//! The server, the model, and steps executed on both sides.

use super::model::{CLIENTS, Kind, Model};
use super::step::Step;
use std::collections::{BTreeMap, HashMap};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::op::open::{Delegated, How};
use zgate_nfs_wire::v4::op::{Renew, Write, renew};
use zgate_nfs_wire::v4::{LockType, StableHow, Stateid, Status};
use zgate_store::file_store::NewNode;
use zgate_test_harness::nfs::{Client, Harness, Locked, OpenRequest, Opened, Ops, mode};

/// A request that must wait for a recall: the step is undone, and retried once
/// all delegations are returned.
#[derive(Debug)]
pub(super) struct Recalled;

/// Nodes that must have changed.
pub(super) type Outcome<T = Vec<usize>> = Result<T, Recalled>;

/// Server, model, and the relations between them.
pub(super) struct Walk {
    pub(super) clients: Vec<Client>,
    pub(super) checker: Client,
    pub(super) model: Model,
    /// The handle of each node.
    pub(super) fhs: Vec<Fh>,
    pub(super) changes: HashMap<usize, u64>,
    opened: HashMap<(usize, usize), Opened>,
    locked: HashMap<(usize, usize), Locked>,
    /// Delegations by client and file: the stateid, and true for a write
    /// delegation.
    pub(super) delegated: BTreeMap<(usize, usize), (Stateid, bool)>,
}

/// Compares with the model.
pub(super) fn expect(what: &str, status: Status, allowed: &[Status]) -> Outcome<()> {
    if status == Status::Delay {
        return Err(Recalled);
    }
    assert!(allowed.contains(&status), "{what}: {status:?}, the model says {allowed:?}");
    Ok(())
}

pub(super) fn status<T>(result: &Result<T, Status>) -> Status {
    result.as_ref().err().copied().unwrap_or(Status::Ok)
}

impl Walk {
    pub(super) fn new(callbacks: bool) -> Self {
        let harness = Harness::new();
        let client = |n: usize| {
            let client = harness.stranger(&format!("c{n}"), n as u8);
            client.introduce(callbacks);
            client
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in &clients {
            client.cache.set(true);
            client.run(Ops::new().root()).ok();
        }
        let checker = harness.client("checker", 2);
        let fhs = vec![checker.export()];
        let (changes, opened, locked) = Default::default();
        let delegated = BTreeMap::new();
        Self { clients, checker, model: Model::new(), fhs, changes, opened, locked, delegated }
    }

    /// Runs a step until no recall is pending.
    pub(super) fn take(&mut self, c: usize, step: &Step) -> Vec<usize> {
        for _ in 0..=CLIENTS {
            let before = (self.model.clone(), self.opened.clone(), self.locked.clone());
            match self.run(c, step) {
                Err(Recalled) => {
                    // Sequence numbers of stateids may be unchanged.
                    (self.model, self.opened, self.locked) = before;
                    self.give_back();
                }
                Ok(changed) => return changed,
            }
        }
        panic!("{step:?} has to wait though all was given back")
    }

    /// All clients return recalled delegations.
    fn give_back(&mut self) {
        let mut returned = 0;
        for (c, client) in self.clients.iter().enumerate() {
            for callback in client.callbacks() {
                let CallbackOp::Recall { stateid, fh, .. } = callback else { continue };
                let file = self.fhs.iter().position(|known| *known == fh).unwrap();
                if self.delegated.get(&(c, file)).is_some_and(|held| held.0 == stateid) {
                    assert_eq!(client.delegreturn(&fh, stateid), Ok(()));
                    self.delegated.remove(&(c, file));
                    returned += 1;
                }
            }
        }
        assert!(returned > 0, "a wait for nobody");
    }

    /// Time passes, and all clients renew their leases.
    pub(super) fn breathe(&self) {
        self.clients[0].harness.pass_seconds(2);
        for client in &self.clients {
            let ops = match client.minor {
                0 => Ops::new().op::<Renew>(&renew::Args { clientid: client.id.get() }),
                _ => Ops::new().root(),
            };
            client.run(ops).ok();
        }
    }

    /// Repeats the last request of a client with a session.
    pub(super) fn repeat(&self, c: usize) {
        if self.clients[c].minor > 0 {
            let (before, again) = self.clients[c].repeat();
            assert_eq!(before, again, "a retry gets another answer");
        }
    }

    /// A file this client has open: its node, and the open.
    pub(super) fn held(&self, client: usize, index: super::step::Index) -> Option<(usize, Opened)> {
        let mut files: Vec<_> =
            self.opened.keys().filter(|(of, _)| *of == client).map(|(_, file)| *file).collect();
        files.sort_unstable();
        let file = (!files.is_empty()).then(|| index.of(&files))?;
        Some((file, self.opened[&(client, file)].clone()))
    }

    /// Expected status of an operation that needs this access.
    pub(super) fn may(&self, c: usize, file: usize, access: u32) -> Status {
        let open = self.model.nodes[file].opens[c].unwrap();
        if open.access & access == access { Status::Ok } else { Status::Openmode }
    }

    /// Runs a step on both sides.
    fn run(&mut self, c: usize, step: &Step) -> Outcome {
        match *step {
            Step::Make { dir, name, link } => self.make(c, dir.of(&self.model.dirs()), name, link),
            Step::Open { dir, name, create, access, deny } => {
                self.open(c, dir.of(&self.model.dirs()), name, create, (access, deny))
            }
            Step::Remove { dir, name } => {
                let dir = dir.of(&self.model.dirs());
                let got = self.clients[c].remove(&self.fhs[dir], name);
                let (expected, changed) = self.model.remove(dir, name);
                expect("REMOVE", status(&got), &[expected])?;
                Ok(changed)
            }
            Step::Rename { from, old, to, new } => {
                let (from, to) = (from.of(&self.model.dirs()), to.of(&self.model.dirs()));
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
                let (node, dir) = (node.of(&candidates), dir.of(&self.model.dirs()));
                let ops = Ops::new().at(&self.fhs[node]).save().at(&self.fhs[dir]).link(name);
                let got = self.clients[c].run(ops).status;
                let (expected, changed) = self.model.link(node, dir, name);
                expect("LINK", got, &[expected])?;
                Ok(changed)
            }
            Step::Close { file }
            | Step::Write { file, .. }
            | Step::Truncate { file, .. }
            | Step::Read { file } => match self.held(c, file) {
                Some((file, opened)) => self.on_open(c, file, step, &opened),
                None => Ok(Vec::new()),
            },
            Step::Lock { file, .. } | Step::Unlock { file, .. } | Step::Test { file, .. } => {
                if let Some((file, opened)) = self.held(c, file) {
                    self.on_locks(c, file, step, &opened)?;
                }
                Ok(Vec::new())
            }
            _ => self.on_space(step),
        }
    }

    fn make(&mut self, c: usize, dir: usize, name: &'static str, link: bool) -> Outcome {
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
    ) -> Outcome {
        let how = match create {
            0 => How::NoCreate,
            1 => How::Unchecked(mode(0o600)),
            _ => How::Guarded(mode(0o600)),
        };
        let request = OpenRequest::name(&self.fhs[dir], name).access(access).deny(deny).how(how);
        let got = self.clients[c].open(&request);
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
                let node = self.model.add(dir, name, Kind::File(Default::default()));
                self.fhs.push(opened.fh.clone());
                (node, vec![dir, node])
            }
        };
        assert_eq!(opened.fh, self.fhs[node], "an existing file is opened");
        self.model.open(c, node, access, deny);
        match opened.delegated {
            Delegated::Read { stateid, .. } => {
                assert!(self.delegated.insert((c, node), (stateid, false)).is_none());
            }
            Delegated::Write { stateid, .. } => {
                assert!(self.delegated.insert((c, node), (stateid, true)).is_none());
            }
            _ => {}
        }
        self.opened.insert((c, node), opened);
        Ok(changed)
    }

    fn on_open(&mut self, c: usize, file: usize, step: &Step, opened: &Opened) -> Outcome {
        let client = &self.clients[c];
        let may_write = self.may(c, file, 2);
        let size = self.model.file(file).bytes.len();
        match step {
            Step::Close { .. } => {
                expect("CLOSE", status(&client.close(opened)), &[Status::Ok])?;
                self.opened.remove(&(c, file));
                self.locked.remove(&(c, file));
                self.model.close(c, file);
            }
            Step::Write { at, len, byte, stable, .. } => {
                let (at, data) = (at.within(size), vec![*byte; *len]);
                let stable =
                    [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync][*stable];
                let ops = Ops::new().at(&opened.fh).write(opened.stateid, at, &data, stable);
                let reply = client.run(ops);
                expect("WRITE", reply.status, &[may_write])?;
                if may_write == Status::Ok {
                    assert_eq!(reply.get::<Write>().count as usize, data.len());
                    self.model.file_mut(file).put(at, &data);
                    return Ok(vec![file]);
                }
            }
            Step::Truncate { size: to, .. } => {
                let to = to.within(size);
                let got = client.truncate(&opened.fh, opened.stateid, to);
                expect("SETATTR", status(&got), &[may_write])?;
                if may_write == Status::Ok {
                    self.model.file_mut(file).bytes.resize(to as usize, 0);
                    return Ok(vec![file]);
                }
            }
            _ => {
                let got = client.read(&opened.fh, opened.stateid, 1, 8);
                expect("READ", status(&got), &[Status::Ok])?;
                let (eof, bytes) = got.unwrap();
                let data = &self.model.file(file).bytes;
                let end = data.len().min(9);
                assert_eq!(bytes[..], data[end.min(1)..end]);
                assert_eq!(eof, data.len() <= 9);
            }
        }
        Ok(Vec::new())
    }

    fn on_locks(&mut self, c: usize, file: usize, step: &Step, opened: &Opened) -> Outcome<()> {
        let client = &self.clients[c];
        let node = &mut self.model.nodes[file];
        let share = node.opens[c].unwrap();
        let wire = |(from, to): (usize, usize)| (from as u64, (to - from) as u64);
        let kind = |write| if write { LockType::Write } else { LockType::Read };
        match *step {
            Step::Lock { write, range, .. } => {
                let needed = if write { 2 } else { 1 };
                let expected = if share.access & needed == 0 {
                    Status::Openmode
                } else if node.locked(c, write, range.0, range.1) {
                    Status::Denied
                } else {
                    Status::Ok
                };
                let got = match self.locked.get_mut(&(c, file)) {
                    Some(locked) => status(&client.lock_more(locked, kind(write), wire(range))),
                    None => {
                        let got = client.lock(opened, "locker", kind(write), wire(range));
                        let status = status(&got);
                        if let Ok(locked) = got {
                            self.locked.insert((c, file), locked);
                        }
                        status
                    }
                };
                expect("LOCK", got, &[expected])?;
                if expected == Status::Ok {
                    node.locks[c][range.0..range.1].fill(if write { 2 } else { 1 });
                }
            }
            Step::Unlock { range, .. } => {
                let Some(locked) = self.locked.get_mut(&(c, file)) else { return Ok(()) };
                expect("LOCKU", status(&client.unlock(locked, wire(range))), &[Status::Ok])?;
                node.locks[c][range.0..range.1].fill(0);
            }
            Step::Test { write, range, .. } => {
                let denied = node.locked(c, write, range.0, range.1);
                let expected = if denied { Status::Denied } else { Status::Ok };
                let got = client.lockt(&opened.fh, "locker", kind(write), wire(range));
                expect("LOCKT", status(&got), &[expected])?;
            }
            _ => {}
        }
        Ok(())
    }
}
