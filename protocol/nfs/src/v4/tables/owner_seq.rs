//! Sequence numbers of NFSv4.0 owners: order and replay (RFC 7530 §9.1.7).

use crate::namespace::FileHandle;
use crate::v4::failure::Failure;
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_xdr::{Encode, Encoder};

/// Reply to an owner's last sequenced operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReply {
    /// The operation.
    pub op: OpNum,
    /// Status and body of the reply.
    pub reply: Failure,
    /// The current file handle afterwards (OPEN changes it).
    pub current: Option<FileHandle>,
}

/// Sequence state of an owner.
#[derive(Clone, Debug, Default)]
pub struct OwnerSeq {
    last: Option<(u32, Option<LastReply>)>,
}

/// Handling of a sequenced operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Execute it.
    Run,
    /// Repeat the earlier reply.
    Replay(LastReply),
    /// Refuse it.
    Bad,
}

impl OwnerSeq {
    /// Checks a sequence number; a new owner may start with any.
    #[must_use]
    pub fn judge(&self, seqid: u32) -> Verdict {
        match &self.last {
            None => Verdict::Run,
            Some((last, reply)) if *last == seqid => {
                reply.clone().map_or(Verdict::Bad, Verdict::Replay)
            }
            // The number after the last one wraps to 1, never to 0 (RFC 7530
            // §9.1.3), but there are clients that wrap to 0.
            Some((last, _))
                if last.wrapping_add(1) == seqid || (*last == u32::MAX && seqid == 1) =>
            {
                Verdict::Run
            }
            Some(_) => Verdict::Bad,
        }
    }

    /// Stores a reply, unless its status does not advance the number (RFC 7530
    /// §9.1.7).
    pub fn record(&mut self, seqid: u32, reply: LastReply) {
        if advances(reply.reply.status) {
            self.last = Some((seqid, Some(reply)));
        }
    }

    /// Advances the number without a reply to repeat.
    pub fn advance(&mut self, seqid: u32) {
        self.last = Some((seqid, None));
    }
}

fn advances(status: Status) -> bool {
    !matches!(
        status,
        Status::StaleClientid
            | Status::StaleStateid
            | Status::BadStateid
            | Status::BadSeqid
            | Status::Badxdr
            | Status::Resource
            | Status::Nofilehandle
            | Status::Moved
    )
}

/// The bytes of a reply, for repetition.
pub fn answer_bytes<R: Encode>(result: &Result<R, Failure>) -> Failure {
    match result {
        Ok(res) => {
            let mut e = Encoder::new();
            res.encode(&mut e);
            let body = e.finish().flatten().map(|b| b.to_vec()).unwrap_or_default();
            Failure { status: Status::Ok, body }
        }
        Err(failure) => failure.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_replay() {
        let mut seq = OwnerSeq::default();
        assert_eq!(seq.judge(77), Verdict::Run);
        let op = OpNum::Open;
        let reply = LastReply { op, reply: Status::Ok.into(), current: None };
        seq.record(77, reply.clone());
        assert_eq!(seq.judge(77), Verdict::Replay(reply));
        assert_eq!(seq.judge(78), Verdict::Run);
        assert_eq!(seq.judge(79), Verdict::Bad);
        seq.record(78, LastReply { op, reply: Status::BadStateid.into(), current: None });
        assert_eq!(seq.judge(78), Verdict::Run);
    }
}
