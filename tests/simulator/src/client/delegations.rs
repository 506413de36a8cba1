//! Read delegations of a client: what it caches under them, and the server's
//! calls that take them back.

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

/// A delegation.
#[derive(Clone, Debug)]
struct Delegation {
    fh: Fh,
    stateid: Stateid,
    /// Content of each block when it was read under the delegation.
    blocks: BTreeMap<u32, Bytes>,
}

#[derive(Default)]
struct Inside {
    /// By client whose file it is.
    held: BTreeMap<usize, Delegation>,
    /// Held for files that the client itself writes: nothing is cached.
    of_own: Vec<(Fh, Stateid)>,
    /// Recalled, and not yet returned.
    to_return: Vec<(Fh, Stateid)>,
    /// Recalled before the reply that grants them has arrived.
    recalled_early: Vec<[u8; 12]>,
}

/// Delegations of one client.
#[derive(Default)]
pub struct Delegations(Mutex<Inside>);

impl Delegations {
    /// Keeps a delegation that was granted, unless it is recalled already.
    pub(super) fn granted(&self, file: usize, fh: Fh, stateid: Stateid) {
        let mut inside = lock(&self.0);
        if inside.recalled_early.contains(&stateid.other) {
            inside.to_return.push((fh, stateid));
            return;
        }
        inside.held.insert(file, Delegation { fh, stateid, blocks: BTreeMap::new() });
    }

    /// Keeps a delegation of a file that the client writes.
    pub(super) fn granted_of_own(&self, fh: Fh, stateid: Stateid) {
        let mut inside = lock(&self.0);
        if inside.recalled_early.contains(&stateid.other) {
            inside.to_return.push((fh, stateid));
        } else {
            inside.of_own.push((fh, stateid));
        }
    }

    /// The stateid of the delegation of a file.
    pub(super) fn of(&self, file: usize) -> Option<Stateid> {
        lock(&self.0).held.get(&file).map(|held| held.stateid)
    }

    /// Keeps what was read under a delegation, if it is still held.
    pub(super) fn cache(&self, file: usize, stateid: Stateid, block: u32, data: Bytes) {
        let mut inside = lock(&self.0);
        let held = inside.held.get_mut(&file).filter(|held| held.stateid == stateid);
        if let Some(held) = held {
            held.blocks.insert(block, data);
        }
    }

    /// The cached content of a block.
    pub(super) fn cached(&self, file: usize, block: u32) -> Option<Bytes> {
        lock(&self.0).held.get(&file)?.blocks.get(&block).cloned()
    }

    /// Trusts no delegation any more; `alive`: the server still has them.
    pub(super) fn give_all_up(&self, alive: bool) {
        let mut inside = lock(&self.0);
        let held = std::mem::take(&mut inside.held);
        let of_own = std::mem::take(&mut inside.of_own);
        if alive {
            inside.to_return.extend(of_own);
            inside.to_return.extend(held.into_values().map(|held| (held.fh, held.stateid)));
        } else {
            inside.to_return.clear();
            inside.recalled_early.clear();
        }
    }

    /// The next delegation that must be returned.
    pub(super) fn next_return(&self) -> Option<(Fh, Stateid)> {
        lock(&self.0).to_return.pop()
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
        let mut inside = lock(&self.0);
        let before = inside.held.len() + inside.of_own.len();
        inside.held.retain(|_, held| held.stateid.other != stateid.other);
        inside.of_own.retain(|(_, held)| held.other != stateid.other);
        if inside.held.len() + inside.of_own.len() < before {
            inside.to_return.push((fh, stateid));
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
