//! Delegations of a client: what it caches under them, what it has written and
//! not yet sent, and the server's calls that take them back.

use crate::executor::lock;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Mutex;
use zgate_nfs_wire::v4::callback::{
    Body, CB_NULL, CallHead, CallbackNum, CallbackOp, OpResult, Reply, Sequence, SequenceRes,
};
use zgate_nfs_wire::v4::{Fh, Stateid, Status};
use zgate_rpc::CallHeader;
use zgate_rpc::message::encode_success;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// A delegation of another client's file.
#[derive(Clone, Debug)]
struct Delegation {
    fh: Fh,
    stateid: Stateid,
    /// Content of each block when it was read under the delegation.
    blocks: BTreeMap<u32, Bytes>,
}

/// Blocks that were written to the cache alone: version and content.
pub(super) type Dirty = BTreeMap<u32, (u32, Bytes)>;

/// A delegation of the client's own file, or of the file of locks.
#[derive(Clone, Debug)]
pub(super) struct OwnDelegation {
    pub(super) fh: Fh,
    pub(super) stateid: Stateid,
    pub(super) dirty: Dirty,
}

/// Delegations of before a restart of the server, to be reclaimed.
#[derive(Default)]
pub(super) struct Former {
    /// Other clients' files.
    pub(super) read: Vec<(usize, Fh)>,
    /// For writing.
    pub(super) own: Vec<OwnDelegation>,
    blocks: BTreeMap<usize, BTreeMap<u32, Bytes>>,
}

#[derive(Default)]
struct Inside {
    /// By client whose file it is.
    held: BTreeMap<usize, Delegation>,
    /// Held for files that the client itself writes.
    of_own: Vec<OwnDelegation>,
    /// Recalled, and not yet returned.
    to_return: Vec<OwnDelegation>,
    /// Recalled before the reply that grants them has arrived.
    recalled_early: Vec<[u8; 12]>,
}

/// Delegations of one client.
#[derive(Default)]
pub struct Delegations {
    inside: Mutex<Inside>,
    /// Held while blocks of the client's own file are on their way: an older
    /// version never passes a newer one.
    pub(super) writing: tokio::sync::Mutex<()>,
}

fn plain(fh: Fh, stateid: Stateid) -> OwnDelegation {
    OwnDelegation { fh, stateid, dirty: Dirty::new() }
}

impl Delegations {
    /// Keeps a delegation that was granted, unless it is recalled already.
    pub(super) fn granted(&self, file: usize, fh: Fh, stateid: Stateid) {
        let mut inside = lock(&self.inside);
        if inside.recalled_early.contains(&stateid.other) {
            inside.to_return.push(plain(fh, stateid));
            return;
        }
        inside.held.insert(file, Delegation { fh, stateid, blocks: BTreeMap::new() });
    }

    /// Keeps a delegation of a file that the client writes.
    pub(super) fn granted_of_own(&self, fh: Fh, stateid: Stateid) {
        self.keep_own(plain(fh, stateid));
    }

    fn keep_own(&self, granted: OwnDelegation) {
        let mut inside = lock(&self.inside);
        if inside.recalled_early.contains(&granted.stateid.other) {
            inside.to_return.push(granted);
            return;
        }
        let known = |held: &&mut OwnDelegation| held.stateid.other == granted.stateid.other;
        match inside.of_own.iter_mut().find(known) {
            Some(held) => held.stateid = granted.stateid,
            None => inside.of_own.push(granted),
        }
    }

    /// The stateid of the delegation of a file.
    pub(super) fn of(&self, file: usize) -> Option<Stateid> {
        lock(&self.inside).held.get(&file).map(|held| held.stateid)
    }

    /// Keeps what was read under a delegation, if it is still held.
    pub(super) fn cache(&self, file: usize, stateid: Stateid, block: u32, data: Bytes) {
        let mut inside = lock(&self.inside);
        let held = inside.held.get_mut(&file).filter(|held| held.stateid == stateid);
        if let Some(held) = held {
            held.blocks.insert(block, data);
        }
    }

    /// The cached content of a block.
    pub(super) fn cached(&self, file: usize, block: u32) -> Option<Bytes> {
        lock(&self.inside).held.get(&file)?.blocks.get(&block).cloned()
    }

    /// Writes a block to the cache, if a delegation of the file allows it.
    pub(super) fn put(&self, fh: &Fh, block: u32, version: u32, data: Bytes) -> bool {
        let mut inside = lock(&self.inside);
        let held = inside.of_own.iter_mut().find(|held| held.fh == *fh);
        held.map(|held| held.dirty.insert(block, (version, data))).is_some()
    }

    /// Forgets a block that was written to the cache: a newer version goes to
    /// the server.
    pub(super) fn superseded(&self, block: u32) {
        let mut inside = lock(&self.inside);
        let Inside { of_own, to_return, .. } = &mut *inside;
        of_own.iter_mut().chain(to_return).for_each(|held| {
            held.dirty.remove(&block);
        });
    }

    /// Returns whether a block is newer in the cache than on the server.
    pub(super) fn is_dirty(&self, block: u32) -> bool {
        let inside = lock(&self.inside);
        let mut all = inside.of_own.iter().chain(&inside.to_return);
        all.any(|held| held.dirty.contains_key(&block))
    }

    /// Trusts no delegation any more; `alive`: the server still has them.
    /// Returns blocks that are lost with them.
    pub(super) fn give_all_up(&self, alive: bool) -> Vec<u32> {
        let mut inside = lock(&self.inside);
        let held = std::mem::take(&mut inside.held);
        let of_own = std::mem::take(&mut inside.of_own);
        if alive {
            inside.to_return.extend(of_own);
            let returned = held.into_values().map(|held| plain(held.fh, held.stateid));
            inside.to_return.extend(returned);
            return Vec::new();
        }
        inside.recalled_early.clear();
        let returned = std::mem::take(&mut inside.to_return);
        of_own.into_iter().chain(returned).flat_map(|held| held.dirty.into_keys()).collect()
    }

    /// Takes the delegations that a new server may give again. What was to be
    /// returned is among them: blocks of it may have to be written.
    pub(super) fn former(&self) -> Former {
        let mut inside = lock(&self.inside);
        let Inside { held, of_own, to_return, recalled_early } = std::mem::take(&mut *inside);
        drop((inside, recalled_early));
        let mut former = Former { own: of_own, ..Former::default() };
        former.own.extend(to_return.into_iter().filter(|one| !one.dirty.is_empty()));
        for (file, held) in held {
            former.read.push((file, held.fh));
            former.blocks.insert(file, held.blocks);
        }
        former
    }

    /// Keeps a delegation that a new server has given again, with what was
    /// cached under it; `recall`: it must be returned.
    pub(super) fn read_again(
        &self,
        file: usize,
        (fh, stateid, recall): (Fh, Stateid, bool),
        former: &mut Former,
    ) {
        let blocks = former.blocks.remove(&file).unwrap_or_default();
        if recall {
            return lock(&self.inside).to_return.push(plain(fh, stateid));
        }
        self.granted(file, fh, stateid);
        if let Some(held) = lock(&self.inside).held.get_mut(&file) {
            held.blocks = blocks;
        }
    }

    /// The same for a file that the client writes.
    pub(super) fn write_again(&self, held: OwnDelegation, recall: bool) {
        if recall {
            return lock(&self.inside).to_return.push(held);
        }
        self.keep_own(held);
    }

    /// The next delegation that must be returned.
    pub(super) fn next_return(&self) -> Option<OwnDelegation> {
        lock(&self.inside).to_return.pop()
    }

    /// Answers a call of the server.
    #[must_use]
    pub fn answer(&self, call: &[u8]) -> Option<Bytes> {
        let mut d = Decoder::new(call);
        let header = CallHeader::decode(&mut d).ok()?;
        let mut e = Encoder::new();
        encode_success(&mut e, header.xid);
        if header.procedure != CB_NULL {
            self.compound(&mut d).ok()?.encode(&mut e);
        }
        e.finish().flatten()
    }

    fn compound(&self, d: &mut Decoder<'_>) -> Result<Reply, XdrError> {
        let head = CallHead::decode(d)?;
        let mut reply = Reply { status: Status::Ok, tag: head.tag, results: Vec::new() };
        for _ in 0..head.count {
            let num = CallbackNum::decode(d)?;
            let body = match CallbackOp::decode_args(num, d)? {
                CallbackOp::Sequence(args) => Body::Sequence(sequence(&args)),
                CallbackOp::Recall { stateid, fh, .. } => {
                    self.recall(fh, stateid);
                    Body::None
                }
                _ => Body::None,
            };
            reply.results.push(OpResult { num: num as u32, status: Status::Ok, body });
        }
        Ok(reply)
    }

    fn recall(&self, fh: Fh, stateid: Stateid) {
        let mut inside = lock(&self.inside);
        let before = inside.held.len();
        inside.held.retain(|_, held| held.stateid.other != stateid.other);
        let own = inside.of_own.iter().position(|held| held.stateid.other == stateid.other);
        if let Some(own) = own {
            let held = inside.of_own.remove(own);
            inside.to_return.push(OwnDelegation { stateid, ..held });
        } else if inside.held.len() < before {
            inside.to_return.push(plain(fh, stateid));
        } else {
            inside.recalled_early.push(stateid.other);
        }
    }
}

fn sequence(args: &Sequence) -> SequenceRes {
    SequenceRes {
        session: args.session,
        sequence: args.sequence,
        slot: args.slot,
        highest_slot: args.highest_slot,
        target_highest_slot: args.highest_slot,
    }
}
