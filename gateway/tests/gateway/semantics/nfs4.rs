//! A client of NFSv4.2 that works in `/data`. It does not answer callbacks, so
//! it gets no delegations.

use super::document::Word;
use super::{Outcome, number, quoted};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use zgate_loader::ClientError;
use zgate_loader::compound::{Ops, Results};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::lock::{self, Locker};
use zgate_nfs_wire::v4::op::{
    Getxattr, Operation, allocate, clone, copy, copy_notify, create, deallocate, open, readdir,
    rename, seek, setattr, setxattr,
};
use zgate_nfs_wire::v4::{
    Bitmap, ChangeInfo, ClientId, Fattr, LockType, OpNum, StateOwner, Stateid, Status,
};
use zgate_rpc::{AuthSys, Credential};
use zgate_store::file_store::NewNode;
use zgate_test_harness::{Client, Gateway, Opened, mode_attr};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque};

const WANT_NO_DELEGATION: u32 = 0x0400;
/// Attribute numbers (RFC 8881 §5).
const CHANGE: u32 = 3;
const SIZE: u32 = 4;
const HIDDEN: u32 = 25;
const MODE: u32 = 33;
const OWNER: u32 = 36;
const READ_BYTES: u32 = 4096;

pub(super) struct NamedClient {
    name: &'static str,
    uid: u32,
    client: Option<Client>,
    opened: BTreeMap<Vec<u8>, Opened>,
    /// Handles by the names they had.
    remembered: BTreeMap<Vec<u8>, Fh>,
    changes: BTreeMap<Vec<u8>, u64>,
}

type Answer = Result<String, ClientError>;

impl NamedClient {
    /// A client that has sent RECLAIM_COMPLETE.
    pub(super) fn new(gateway: &Gateway, name: &'static str, uid: u32) -> Self {
        let (opened, remembered, changes) = Default::default();
        let mut actor = Self { name, uid, client: None, opened, remembered, changes };
        actor.reclaim_complete(gateway).unwrap();
        actor
    }

    /// Drops the session, after a restart of the server.
    pub(super) fn disconnect(&mut self) {
        self.client = None;
        self.opened.clear();
    }

    fn client(&mut self, gateway: &Gateway) -> &mut Client {
        let (name, uid) = (self.name, self.uid);
        self.client.get_or_insert_with(|| {
            let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let mut client = Client::connect_from(gateway, host, name, "data").unwrap();
            let sys = AuthSys { uid, gid: uid, ..AuthSys::default() };
            client.session.set_credential(&Credential::Sys(sys));
            client
        })
    }

    fn reclaim_complete(&mut self, gateway: &Gateway) -> Answer {
        let client = self.client(gateway);
        client.session.reclaim_complete(&mut client.connection).map(|_| String::new())
    }

    /// Executes a step; `None` if it is unknown.
    pub(super) fn act(&mut self, gateway: &Gateway, verb: &str, words: &[Word]) -> Option<Outcome> {
        self.client(gateway);
        let answer = match (verb, words) {
            ("reclaim-complete", []) => self.reclaim_complete(gateway),
            ("list", [dir]) => self.list(dir),
            ("lookup", [name]) => self.find(name).map(|_| String::new()),
            ("remember", [name]) => self.find(name).map(|fh| {
                self.remembered.insert(name.0.clone(), fh);
                String::new()
            }),
            ("read", [name]) => self.read(name),
            ("write", [name, text]) => self.write(name, &text.0),
            ("commit", [name]) => self.find(name).and_then(|fh| self.it().commit(&fh)).map(done),
            _ => return self.act_on_names(verb, words),
        };
        Some(named(answer))
    }

    fn act_on_names(&mut self, verb: &str, words: &[Word]) -> Option<Outcome> {
        let answer = match (verb, words) {
            ("mkdir", [name]) => self.mkdir(name),
            ("remove", [name]) => {
                self.in_directory(name, |fh, name| Ops::new().putfh(fh).remove(name)).map(done)
            }
            ("rename", [old, new]) => self.rename(old, new),
            ("link", [old, new]) => self.link(old, new),
            ("chmod", [name, mode]) => {
                let mode = u32::from_str_radix(std::str::from_utf8(&mode.0).ok()?, 8).ok()?;
                self.set(name, mode_attr(mode))
            }
            ("set-owner", [name, owner]) => self.set(name, attr(OWNER, |e| e.opaque(&owner.0))),
            ("set-hidden", [name]) => self.set(name, attr(HIDDEN, |e| e.u32(1))),
            ("truncate", [name, size]) => {
                let size = number(size)?;
                self.set(name, attr(SIZE, |e| e.u64(size)))
            }
            ("mode", [name]) => self.get(name, MODE, |d| format!("{:04o}", d.u32().unwrap())),
            ("size", [name]) => self.get(name, SIZE, |d| d.u64().unwrap().to_string()),
            ("owner", [name]) => self.get(name, OWNER, |d| quoted(d.opaque(1024).unwrap())),
            ("change", [name]) => self.change(name),
            _ => return self.act_on_state(verb, words),
        };
        Some(named(answer))
    }

    fn act_on_state(&mut self, verb: &str, words: &[Word]) -> Option<Outcome> {
        let bits = |word: &Word| match &word.0[..] {
            b"read" => Some(1),
            b"write" => Some(2),
            b"both" => Some(3),
            _ => None,
        };
        let answer = match (verb, words) {
            ("open", [name, access]) => self.open(name, bits(access)?, 0),
            ("open", [name, access, deny, denied]) if deny.0 == b"deny" => {
                self.open(name, bits(access)?, bits(denied)?)
            }
            ("close", [name]) => {
                let opened = self.opened.remove(&name.0)?;
                self.it().close(&opened).map(done)
            }
            ("reclaim", [name]) => self.reclaim(name),
            ("lock", [name, offset, length]) => {
                let (offset, length) = (number(offset)?, number(length)?);
                self.lock(name, offset, length)
            }
            _ => return self.act_on_space(verb, words),
        };
        Some(named(answer))
    }

    fn act_on_space(&mut self, verb: &str, words: &[Word]) -> Option<Outcome> {
        let stateid = Stateid::ANONYMOUS;
        let answer = match (verb, words) {
            ("copy", [from, to]) => self.copy(from, to),
            ("clone", [from, to]) => self.clone_file(from, to),
            ("copy-notify", [name]) => {
                let destination = copy::NetLocation::Text(Opaque(b"192.0.2.1".to_vec()));
                let args = copy_notify::Args { stateid, destination };
                self.op::<()>(name, OpNum::CopyNotify, &args).map(done)
            }
            ("allocate", [name, offset, length]) => {
                let args =
                    allocate::Args { stateid, offset: number(offset)?, length: number(length)? };
                self.op::<()>(name, OpNum::Allocate, &args).map(done)
            }
            ("deallocate", [name, offset, length]) => {
                let args =
                    deallocate::Args { stateid, offset: number(offset)?, length: number(length)? };
                self.op::<()>(name, OpNum::Deallocate, &args).map(done)
            }
            ("seek-hole", [name, offset]) => {
                let args = seek::Args { stateid, offset: number(offset)?, what: 1 };
                self.op::<seek::Res>(name, OpNum::Seek, &args).map(|res| res.offset.to_string())
            }
            ("set-xattr", [name, key, value]) => {
                let args = setxattr::Args {
                    option: setxattr::Option4::Either,
                    name: Opaque(key.0.clone()),
                    value: Some(Opaque(value.0.clone())),
                };
                self.op::<ChangeInfo>(name, OpNum::Setxattr, &args).map(done)
            }
            ("get-xattr", [name, key]) => {
                let key = Opaque::<1024>(key.0.clone());
                let value = self.op::<<Getxattr as Operation>::Res>(name, OpNum::Getxattr, &key);
                value.map(|value| quoted(&value.0))
            }
            _ => return None,
        };
        Some(named(answer))
    }

    /// The client that `act` has connected.
    fn it(&mut self) -> &mut Client {
        self.client.as_mut().unwrap()
    }

    /// Resolves a name in `/data`; `/name` begins at the root of the tree,
    /// `@name` is the object that had this name at an earlier `remember`.
    fn find(&mut self, name: &Word) -> Result<Fh, ClientError> {
        if let Some(name) = name.0.strip_prefix(b"@") {
            return Ok(self.remembered[name].clone());
        }
        let mut fh = self.it().root.clone();
        if name.0.starts_with(b"/") {
            let mut results = self.it().call(Ops::new().putrootfh().getfh())?;
            results.skip(OpNum::Putrootfh)?;
            fh = results.next(OpNum::Getfh)?;
        }
        for part in name.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let mut results = self.it().call(Ops::new().putfh(&fh).lookup(part).getfh())?;
            results.skip(OpNum::Putfh)?;
            results.skip(OpNum::Lookup)?;
            fh = results.next(OpNum::Getfh)?;
        }
        Ok(fh)
    }

    /// The directory of a name, and its last part.
    fn parent(&mut self, name: &Word) -> Result<(Fh, Vec<u8>), ClientError> {
        let at = name.0.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (dir, last) = name.0.split_at(at);
        Ok((self.find(&Word(dir.to_vec()))?, last.to_vec()))
    }

    fn in_directory(
        &mut self,
        name: &Word,
        ops: impl FnOnce(&Fh, &[u8]) -> Ops,
    ) -> Result<Results, ClientError> {
        let (dir, last) = self.parent(name)?;
        let results = self.it().call(ops(&dir, &last))?;
        checked(results)
    }

    /// One operation on an object, and its result.
    fn op<T: Decode>(
        &mut self,
        name: &Word,
        number: OpNum,
        args: &impl Encode,
    ) -> Result<T, ClientError> {
        let fh = self.find(name)?;
        let mut results = self.it().call(Ops::new().putfh(&fh).op(number, args))?;
        results.skip(OpNum::Putfh)?;
        results.next(number)
    }

    fn list(&mut self, dir: &Word) -> Answer {
        let args = readdir::Args {
            cookie: 0,
            verifier: [0; 8],
            dircount: 4096,
            maxcount: 32 << 10,
            want: Bitmap::default(),
        };
        let page: readdir::Res = self.op(dir, OpNum::Readdir, &args)?;
        let text = |name: &[u8]| name.escape_ascii().to_string();
        let mut names: Vec<_> = page.entries.iter().map(|entry| text(&entry.name.0)).collect();
        names.sort();
        Ok(names.join(" "))
    }

    /// Reads through the client's open, if it has one.
    fn read(&mut self, name: &Word) -> Answer {
        let key = name.0.strip_prefix(b"@").unwrap_or(&name.0);
        let (fh, stateid) = match self.opened.get(key) {
            Some(opened) => (opened.fh.clone(), opened.stateid),
            None if name.0.starts_with(b"@") => (self.find(name)?, Stateid::ANONYMOUS),
            None => {
                let opened = self.open_with(name, 1, 0)?;
                let read = self.it().read(&opened.fh, opened.stateid, 0, READ_BYTES);
                self.it().close(&opened)?;
                return read.map(|(_, data)| quoted(&data));
            }
        };
        self.it().read(&fh, stateid, 0, READ_BYTES).map(|(_, data)| quoted(&data))
    }

    /// Writes unstable; creates the file if necessary.
    fn write(&mut self, name: &Word, text: &[u8]) -> Answer {
        let (dir, last) = self.parent(name)?;
        let claim = open::Claim::Null(Opaque(last));
        let opened = self.it().open(&dir, 2, open::How::Unchecked(mode_attr(0o644)), claim)?;
        let written = self.it().write(&opened, 0, 0, text);
        self.it().close(&opened)?;
        written.map(done)
    }

    fn mkdir(&mut self, name: &Word) -> Answer {
        self.in_directory(name, |dir, name| {
            let args = create::Args {
                kind: create::Kind::Node(NewNode::Directory),
                name: Opaque(name.to_vec()),
                attrs: mode_attr(0o755),
            };
            Ops::new().putfh(dir).op(OpNum::Create, &args)
        })
        .map(done)
    }

    fn rename(&mut self, old: &Word, new: &Word) -> Answer {
        let ((from, old), (to, new)) = (self.parent(old)?, self.parent(new)?);
        let args = rename::Args { old: Opaque(old), new: Opaque(new) };
        let ops = Ops::new().putfh(&from).op(OpNum::Savefh, &()).putfh(&to);
        checked(self.it().call(ops.op(OpNum::Rename, &args))?).map(done)
    }

    fn link(&mut self, old: &Word, new: &Word) -> Answer {
        let (fh, (to, new)) = (self.find(old)?, self.parent(new)?);
        let ops = Ops::new().putfh(&fh).op(OpNum::Savefh, &()).putfh(&to);
        checked(self.it().call(ops.op(OpNum::Link, &Opaque::<1024>(new)))?).map(done)
    }

    fn set(&mut self, name: &Word, attrs: Fattr) -> Answer {
        let args = setattr::Args { stateid: Stateid::ANONYMOUS, attrs };
        self.op::<Bitmap>(name, OpNum::Setattr, &args).map(done)
    }

    fn get(
        &mut self,
        name: &Word,
        attribute: u32,
        show: impl FnOnce(&mut Decoder<'_>) -> String,
    ) -> Answer {
        let fh = self.find(name)?;
        let attrs = self.it().getattr(&fh, &[attribute])?;
        Ok(show(&mut Decoder::new(&attrs.values.0)))
    }

    /// Tells whether the change attribute differs from the client's last query.
    fn change(&mut self, name: &Word) -> Answer {
        let now = self.get(name, CHANGE, |d| d.u64().unwrap().to_string())?.parse().unwrap();
        let before = self.changes.insert(name.0.clone(), now);
        let moved = before.is_some_and(|before| before != now);
        Ok(if moved { "moved" } else { "same" }.to_owned())
    }

    fn open_with(&mut self, name: &Word, access: u32, deny: u32) -> Result<Opened, ClientError> {
        let (dir, last) = self.parent(name)?;
        let args = open::Args {
            seqid: 0,
            access: access | WANT_NO_DELEGATION,
            deny,
            owner: owner("opener"),
            how: open::How::NoCreate,
            claim: open::Claim::Null(Opaque(last)),
        };
        let mut results = self.it().call(Ops::new().putfh(&dir).op(OpNum::Open, &args).getfh())?;
        results.skip(OpNum::Putfh)?;
        let opened: open::Res = results.next(OpNum::Open)?;
        Ok(Opened { fh: results.next(OpNum::Getfh)?, stateid: opened.stateid })
    }

    fn open(&mut self, name: &Word, access: u32, deny: u32) -> Answer {
        let opened = self.open_with(name, access, deny)?;
        self.opened.insert(name.0.clone(), opened);
        Ok(String::new())
    }

    fn reclaim(&mut self, name: &Word) -> Answer {
        let fh = self.find(name)?;
        let claim = open::Claim::Previous(0);
        let opened = self.it().open(&fh, 3, open::How::NoCreate, claim)?;
        self.opened.insert(name.0.clone(), opened);
        Ok(String::new())
    }

    fn lock(&mut self, name: &Word, offset: u64, length: u64) -> Answer {
        if !self.opened.contains_key(&name.0) {
            self.open(name, 3, 0)?;
        }
        let opened = self.opened[&name.0].clone();
        let args = lock::Args {
            kind: LockType::Write,
            reclaim: false,
            offset,
            length,
            locker: Locker::New {
                open_seqid: 0,
                open: opened.stateid,
                lock_seqid: 0,
                owner: owner("locker"),
            },
        };
        let mut results = self.it().call(Ops::new().putfh(&opened.fh).op(OpNum::Lock, &args))?;
        results.skip(OpNum::Putfh)?;
        results.next::<lock::Res>(OpNum::Lock).map(done)
    }

    fn copy(&mut self, from: &Word, to: &Word) -> Answer {
        self.write(to, b"")?;
        let args = copy::Args {
            from: Stateid::ANONYMOUS,
            to: Stateid::ANONYMOUS,
            from_offset: 0,
            to_offset: 0,
            count: 0,
            consecutive: true,
            synchronous: true,
            servers: Vec::new(),
        };
        let (from, to) = (self.find(from)?, self.find(to)?);
        let ops = Ops::new().putfh(&from).op(OpNum::Savefh, &()).putfh(&to);
        checked(self.it().call(ops.op(OpNum::Copy, &args))?).map(done)
    }

    fn clone_file(&mut self, from: &Word, to: &Word) -> Answer {
        self.write(to, b"")?;
        let any = Stateid::ANONYMOUS;
        let args = clone::Args { from: any, to: any, from_offset: 0, to_offset: 0, count: 0 };
        let (from, to) = (self.find(from)?, self.find(to)?);
        let ops = Ops::new().putfh(&from).op(OpNum::Savefh, &()).putfh(&to);
        checked(self.it().call(ops.op(OpNum::Clone, &args))?).map(done)
    }
}

/// An owner of opens or locks; the session determines the client.
fn owner(name: &str) -> StateOwner {
    StateOwner { clientid: ClientId(0), owner: Opaque(name.as_bytes().to_vec()) }
}

/// One attribute.
fn attr(number: u32, write: impl FnOnce(&mut Encoder)) -> Fattr {
    let mut e = Encoder::new();
    write(&mut e);
    let values = Opaque(e.finish().flatten().unwrap().to_vec());
    Fattr { mask: Bitmap::of(&[number]), values }
}

/// The results of a COMPOUND, if all operations succeeded.
fn checked(results: Results) -> Result<Results, ClientError> {
    match results.status {
        Status::Ok => Ok(results),
        status => Err(ClientError::Refused { status, operation: "COMPOUND" }),
    }
}

fn done<T>(_: T) -> String {
    String::new()
}

fn named(answer: Answer) -> Outcome {
    answer.map_err(|error| match error.status() {
        Some(status) => status.name().to_owned(),
        None => error.to_string(),
    })
}
