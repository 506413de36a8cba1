//! Sequences of NFSv4 operations against a plain model: a map of names to
//! files, a vector of bytes and a map of extended attributes for each file.
//! After every step the server's content, sizes, names and attributes are the
//! model's, as seen by two clients of different minor versions.
#![allow(dead_code, unused_imports, reason = "the rig serves other tests, too")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../protocol/nfs/tests/compound/rig/mod.rs"]
mod rig;

use rig::{Client, Ops, Rig, name};
use std::collections::BTreeMap;
use zgate_fuzz::{Dice, target};
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::clone::{self, Clone as CloneOp};
use zgate_nfs::v4::op::copy::{self, Copy as CopyOp};
use zgate_nfs::v4::op::setxattr::{self, Option4, Setxattr};
use zgate_nfs::v4::op::*;
use zgate_nfs::v4::wire::{Bitmap, StableHow, Stateid, Status};
use zgate_store::Payload;
use zgate_xdr::Opaque;

target!(nfs_model, 1500, walk);

const ANY: Stateid = Stateid::ANONYMOUS;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const ATTRIBUTES: [&str; 3] = ["x", "y", "z"];
const BLOCK: u64 = 4096;

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    xattrs: BTreeMap<&'static str, Vec<u8>>,
}

struct World {
    client: Client,
    other: Client,
    root: Fh,
    files: Vec<File>,
    handles: Vec<Fh>,
    names: BTreeMap<&'static str, usize>,
}

/// An offset near what matters: the start, blocks, the end.
fn offset(dice: &mut Dice<'_>, size: usize) -> u64 {
    match dice.below(5) {
        0 => dice.byte().into(),
        1 => BLOCK * dice.below(4) as u64,
        2 => (size as u64).saturating_sub(dice.byte().into()),
        3 => size as u64,
        _ => size as u64 + u64::from(dice.byte()),
    }
}

fn length(dice: &mut Dice<'_>) -> u64 {
    match dice.below(4) {
        0 => BLOCK * (1 + dice.below(3) as u64),
        1 => 0,
        _ => 1 + dice.below(6000) as u64,
    }
}

impl World {
    fn new(dice: &mut Dice<'_>) -> Self {
        let rig = Rig::new();
        let client = rig.client("one", 2);
        let other = rig.client("two", dice.byte() % 2);
        let root = client.export();
        Self { client, other, root, files: Vec::new(), handles: Vec::new(), names: BTreeMap::new() }
    }

    fn status(&self, ops: Ops) -> Status {
        self.client.run(ops).status
    }

    fn create(&mut self, name: &'static str) {
        let fh = self.client.file(&self.root, name, b"");
        if !self.names.contains_key(name) {
            self.names.insert(name, self.files.len());
            self.files.push(File::default());
            self.handles.push(fh);
        } else {
            assert_eq!(fh, self.handles[self.names[name]], "an existing file is opened");
        }
    }

    fn some(&self, dice: &mut Dice<'_>) -> Option<usize> {
        let files: Vec<usize> = self.names.values().copied().collect();
        (!files.is_empty()).then(|| *dice.pick(&files))
    }

    fn step(&mut self, dice: &mut Dice<'_>) -> Vec<usize> {
        let name = *dice.pick(&NAMES);
        let Some(file) = self.some(dice) else {
            self.create(name);
            return Vec::new();
        };
        match dice.below(14) {
            0 => self.create(name),
            1 => self.remove(name),
            2 => self.rename(name, NAMES[dice.below(NAMES.len())]),
            3 => self.link(file, name),
            4..=6 => self.write(file, dice),
            7 => {
                let size = offset(dice, self.files[file].bytes.len());
                assert_eq!(
                    self.client.truncate(&self.handles[file], ANY, size).map(|_| ()),
                    Ok(())
                );
                self.files[file].bytes.resize(size as usize, 0);
            }
            8 => self.allocate(file, dice),
            9 => self.deallocate(file, dice),
            10 => return self.copy(file, dice),
            11 => return self.clone_range(file, dice),
            12 => self.seek(file, dice),
            _ => self.xattr(file, dice),
        }
        vec![file]
    }

    fn remove(&mut self, name: &'static str) {
        let expected = if self.names.remove(name).is_some() { Status::Ok } else { Status::Noent };
        assert_eq!(self.status(Ops::new().at(&self.root).remove(name)), expected);
    }

    fn rename(&mut self, old: &'static str, new: &'static str) {
        let ops = Ops::new().at(&self.root).save().at(&self.root).rename(old, new);
        let status = self.status(ops);
        let Some(file) = self.names.get(old).copied() else {
            return assert_eq!(status, Status::Noent);
        };
        assert_eq!(status, Status::Ok);
        // RFC 8881 §18.26.3: two names of one file stay as they are.
        if self.names.get(new) != Some(&file) {
            self.names.remove(old);
            self.names.insert(new, file);
        }
    }

    fn link(&mut self, file: usize, name: &'static str) {
        let ops = Ops::new().at(&self.handles[file]).save().at(&self.root).link(name);
        let expected = if self.names.contains_key(name) { Status::Exist } else { Status::Ok };
        assert_eq!(self.status(ops), expected);
        self.names.entry(name).or_insert(file);
    }

    fn write(&mut self, file: usize, dice: &mut Dice<'_>) {
        let at = offset(dice, self.files[file].bytes.len());
        let len = 1 + dice.below(3000);
        let data = vec![dice.byte() | 1; len];
        let stable = [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync][dice.below(3)];
        let ops = Ops::new().at(&self.handles[file]).write(ANY, at, &data, stable);
        let res = self.client.run(ops).ok().get::<write::Write>();
        assert_eq!(res.count as usize, data.len());
        self.put(file, at, &data);
    }

    fn put(&mut self, file: usize, at: u64, data: &[u8]) {
        let (bytes, at) = (&mut self.files[file].bytes, at as usize);
        if bytes.len() < at + data.len() {
            bytes.resize(at + data.len(), 0);
        }
        bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// RFC 7862 §15.1: the file grows when the range ends behind it.
    fn allocate(&mut self, file: usize, dice: &mut Dice<'_>) {
        let (offset, length) = (offset(dice, self.files[file].bytes.len()), length(dice).max(1));
        let args = allocate::Args { stateid: ANY, offset, length };
        let ops = Ops::new().at(&self.handles[file]).op::<allocate::Allocate>(&args);
        assert_eq!(self.status(ops), Status::Ok);
        let bytes = &mut self.files[file].bytes;
        bytes.resize(bytes.len().max((offset + length) as usize), 0);
    }

    /// RFC 7862 §15.4: zeroes, and the size stays.
    fn deallocate(&mut self, file: usize, dice: &mut Dice<'_>) {
        let (offset, length) = (offset(dice, self.files[file].bytes.len()), length(dice).max(1));
        let args = deallocate::Args { stateid: ANY, offset, length };
        let ops = Ops::new().at(&self.handles[file]).op::<deallocate::Deallocate>(&args);
        assert_eq!(self.status(ops), Status::Ok);
        let bytes = &mut self.files[file].bytes;
        let end = bytes.len().min((offset + length) as usize);
        if (offset as usize) < end {
            bytes[offset as usize..end].fill(0);
        }
    }

    /// RFC 7862 §15.2: a count of 0 means to the end; beyond it is INVAL.
    fn copy(&mut self, to: usize, dice: &mut Dice<'_>) -> Vec<usize> {
        let from = self.some(dice).unwrap_or(to);
        let size = self.files[from].bytes.len() as u64;
        let (from_offset, to_offset) =
            (offset(dice, size as usize), offset(dice, self.files[to].bytes.len()));
        let count = if dice.once_in(2) { 0 } else { length(dice) };
        let args = copy::Args {
            from: ANY,
            to: ANY,
            from_offset,
            to_offset,
            count,
            consecutive: true,
            synchronous: true,
            servers: Vec::new(),
        };
        let ops =
            Ops::new().at(&self.handles[from]).save().at(&self.handles[to]).op::<CopyOp>(&args);
        let reply = self.client.run(ops);
        let taken = if count == 0 { size.saturating_sub(from_offset) } else { count };
        let overlaps =
            from == to && from_offset < to_offset + taken && to_offset < from_offset + taken;
        if from_offset + taken > size || overlaps {
            assert_eq!(reply.status, Status::Inval);
            return vec![from, to];
        }
        assert_eq!(reply.status, Status::Ok, "COPY {from_offset}+{taken} of {size} to {to_offset}");
        assert_eq!(reply.get::<CopyOp>().count, taken);
        if taken > 0 {
            let part = self.files[from].bytes[from_offset as usize..(from_offset + taken) as usize]
                .to_vec();
            self.put(to, to_offset, &part);
        }
        vec![from, to]
    }

    /// RFC 7862 §15.13: whole blocks, or up to the end of the source.
    fn clone_range(&mut self, to: usize, dice: &mut Dice<'_>) -> Vec<usize> {
        let from = self.some(dice).unwrap_or(to);
        let size = self.files[from].bytes.len() as u64;
        let (from_offset, to_offset) = (BLOCK * dice.below(3) as u64, BLOCK * dice.below(3) as u64);
        let count = if dice.once_in(2) { 0 } else { BLOCK * dice.below(3) as u64 };
        let args = clone::Args { from: ANY, to: ANY, from_offset, to_offset, count };
        let ops =
            Ops::new().at(&self.handles[from]).save().at(&self.handles[to]).op::<CloneOp>(&args);
        let status = self.status(ops);
        if status == Status::Ok {
            let taken = if count == 0 { size.saturating_sub(from_offset) } else { count };
            assert!(from_offset + taken <= size, "more was cloned than there is");
            let part = self.files[from].bytes[from_offset as usize..(from_offset + taken) as usize]
                .to_vec();
            if !part.is_empty() {
                self.put(to, to_offset, &part);
            }
        } else {
            assert_eq!(status, Status::Inval);
        }
        vec![from, to]
    }

    /// RFC 7862 §15.11: what SEEK calls a hole reads as zeroes, and all data
    /// that is not zero is found as data.
    fn seek(&mut self, file: usize, dice: &mut Dice<'_>) {
        let bytes = &self.files[file].bytes;
        let at = offset(dice, bytes.len());
        let what = u32::from(dice.once_in(2));
        let args = seek::Args { stateid: ANY, offset: at, what };
        let reply = self.client.run(Ops::new().at(&self.handles[file]).op::<seek::Seek>(&args));
        if at >= bytes.len() as u64 {
            return assert_eq!(reply.status, Status::Nxio);
        }
        let res = reply.ok().get::<seek::Seek>();
        if what == 0 {
            let end = if res.eof { bytes.len() } else { res.offset as usize };
            assert!(
                bytes[at as usize..end].iter().all(|byte| *byte == 0),
                "data was called a hole"
            );
        }
        assert!(res.eof || res.offset >= at);
    }

    fn xattr(&mut self, file: usize, dice: &mut Dice<'_>) {
        let (key, fh) = (*dice.pick(&ATTRIBUTES), self.handles[file].clone());
        let known = self.files[file].xattrs.contains_key(key);
        if dice.once_in(3) {
            let expected = if known { Status::Ok } else { Status::Noxattr };
            let ops = Ops::new().at(&fh).op::<removexattr::Removexattr>(&name(key));
            assert_eq!(self.status(ops), expected);
            self.files[file].xattrs.remove(key);
            return;
        }
        let (option, expected) = match dice.below(3) {
            0 => (Option4::Either, Status::Ok),
            1 => (Option4::Create, if known { Status::Exist } else { Status::Ok }),
            _ => (Option4::Replace, if known { Status::Ok } else { Status::Noxattr }),
        };
        let value = dice.blob(40);
        let args = setxattr::Args { option, name: name(key), value: Some(Opaque(value.clone())) };
        assert_eq!(self.status(Ops::new().at(&fh).op::<Setxattr>(&args)), expected);
        if expected == Status::Ok {
            self.files[file].xattrs.insert(key, value);
        }
    }

    fn check(&self, touched: &[usize]) {
        let listed = list(&self.other, &self.root);
        assert!(listed.iter().map(String::as_str).eq(self.names.keys().copied()), "{listed:?}");
        for (name, file) in &self.names {
            assert_eq!(self.other.lookup(&self.root, name).as_ref(), Ok(&self.handles[*file]));
        }
        for file in touched {
            let links = self.names.values().filter(|known| *known == file).count();
            let (fh, model) = (&self.handles[*file], &self.files[*file]);
            if links == 0 {
                assert_eq!(self.other.run(Ops::new().at(fh).getattr(&[4])).status, Status::Stale);
                continue;
            }
            assert_eq!(self.other.number(fh, 35), links as u64);
            assert_eq!(self.other.number(fh, 4), model.bytes.len() as u64);
            assert!(self.other.content(fh) == model.bytes, "the content differs");
            assert!(read_plus(&self.client, fh) == model.bytes, "READ_PLUS differs");
            let args = listxattrs::Args { cookie: 0, maxcount: 4096 };
            let ops = Ops::new().at(fh).op::<listxattrs::Listxattrs>(&args);
            let listed = self.client.run(ops).ok().get::<listxattrs::Listxattrs>();
            assert!(
                listed.names.iter().map(|n| &n.0[..]).eq(model.xattrs.keys().map(|k| k.as_bytes()))
            );
            for (key, value) in &model.xattrs {
                let ops = Ops::new().at(fh).op::<getxattr::Getxattr>(&name(key));
                assert_eq!(&self.client.run(ops).ok().get::<getxattr::Getxattr>().0, value);
            }
        }
    }
}

/// The whole content by READ_PLUS, holes filled in (RFC 7862 §15.10).
fn read_plus(client: &Client, fh: &Fh) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let args = read_plus::Args { stateid: ANY, offset: bytes.len() as u64, count: 1 << 16 };
        let ops = Ops::new().at(fh).op::<read_plus::ReadPlus>(&args);
        let res = client.run(ops).ok().get::<read_plus::ReadPlus>();
        let before = bytes.len();
        for content in res.contents {
            match content {
                read_plus::Content::Data(at, Payload::Bytes(data)) => {
                    assert_eq!(at, bytes.len() as u64, "pieces are in order");
                    bytes.extend_from_slice(&data);
                }
                read_plus::Content::Data(_, Payload::Span(_)) => unreachable!("memory"),
                read_plus::Content::Hole(at, len) => {
                    assert_eq!(at, bytes.len() as u64, "pieces are in order");
                    bytes.resize(bytes.len() + len as usize, 0);
                }
            }
        }
        if res.eof {
            return bytes;
        }
        assert!(bytes.len() > before, "no progress");
    }
}

fn list(client: &Client, dir: &Fh) -> Vec<String> {
    let mut names = Vec::new();
    let mut args = readdir::Args {
        cookie: 0,
        verifier: [0; 8],
        dircount: 0,
        maxcount: 200,
        want: Bitmap::default(),
    };
    loop {
        let res = client
            .run(Ops::new().at(dir).op::<readdir::Readdir>(&args))
            .ok()
            .get::<readdir::Readdir>();
        names.extend(
            res.entries.iter().map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap()),
        );
        if res.eof {
            break;
        }
        args.cookie = res.entries.last().expect("an entry before the end").cookie;
        args.verifier = res.verifier;
    }
    names.sort();
    names
}

fn walk(dice: &mut Dice<'_>) {
    let mut world = World::new(dice);
    while !dice.is_spent() {
        let touched = world.step(dice);
        world.check(&touched);
    }
}
