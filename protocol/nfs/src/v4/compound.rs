//! COMPOUND (RFC 8881 §16.2): runs operations in order until one fails.

use crate::limits::{
    HOLDER_PATIENCE_MILLISECONDS, MAX_OPS, MAX_REPLY_BYTES, MAX_TAG_BYTES,
    NAME_PATIENCE_MILLISECONDS,
};
use crate::patience::Patience;
use crate::runtime::{Call, Now};
use crate::v4::op::names::is_text;
use crate::v4::op::table::{NoRow, Row, Run, SessionRule, encode_refusal, find};
use crate::v4::request::Cx;
use crate::v4::server::{Observer, Server};
use std::sync::OnceLock;
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_rpc::{AcceptError, Credential};
use zgate_xdr::{Decoder, Encode, Encoder, Message};

/// Bytes of the request that are compared to tell a retry from a new request.
const DIGEST_BYTES: usize = 1024;

impl Server {
    /// Runs a COMPOUND. `d` is at its arguments; the answer is the COMPOUND's
    /// result without an RPC header, so that the same answer can be sent again
    /// over another connection.
    ///
    /// # Errors
    /// [`AcceptError::GarbageArguments`] if the arguments' header does not
    /// decode.
    pub async fn compound(
        &self,
        call: &Call,
        now: Now,
        d: &mut Decoder<'_>,
    ) -> Result<Message, AcceptError> {
        let garbage = |_| AcceptError::GarbageArguments;
        let (request_bytes, request_digest) = (d.total_len(), digest(&call.credential, d.rest()));
        let tag = d.opaque(MAX_TAG_BYTES).map_err(garbage)?;
        let minor = d.u32().map_err(garbage)?;
        let count = d.u32().map_err(garbage)? as usize;
        let mut e = Encoder::new();
        e.u32(0);
        e.opaque(tag);
        let count_at = e.len();
        e.u32(0);
        let head_bytes = e.len();
        if minor > u32::from(self.options.max_minor) {
            e.patch_head(&[(0, Status::MinorVersMismatch as u32)]);
            return Ok(e.finish());
        }
        if !is_text(tag) {
            e.patch_head(&[(0, Status::Inval as u32)]);
            return Ok(e.finish());
        }
        let mut cx = Cx {
            server: self,
            namespace: self.namespace(),
            call,
            now,
            minor: minor as u8,
            current: None,
            saved: None,
            current_stateid: None,
            saved_stateid: None,
            slot: None,
            running: OnceLock::new(),
            open_client: None,
            op_index: 0,
            op: OpNum::Illegal,
            op_count: count,
            head_bytes,
            reply_room: MAX_REPLY_BYTES,
            request_bytes,
            request_digest,
            looked_up: None,
            name_patience: Patience::of(NAME_PATIENCE_MILLISECONDS),
            holder_patience: Patience::of(HOLDER_PATIENCE_MILLISECONDS),
            unentered: None,
            saved_unentered: None,
            ran_before: false,
            data_stays: false,
            replay: None,
        };
        let (status, done) = run_ops(&mut cx, d, &mut e).await;
        if let Some(replay) = cx.replay.take() {
            return Ok(replay);
        }
        e.patch_head(&[(0, status as u32), (count_at, done as u32)]);
        let message = e.finish();
        cx.renew_at_end();
        finish_slot(&mut cx, &message);
        Ok(message)
    }
}

async fn run_ops(cx: &mut Cx<'_>, d: &mut Decoder<'_>, e: &mut Encoder) -> (Status, usize) {
    if cx.minor == 0 && cx.op_count > MAX_OPS {
        let first =
            d.u32().ok().and_then(|num| find(num, 0).ok()).map_or(OpNum::Illegal, |row| row.num);
        return (refuse(e, first, Status::Resource), 1);
    }
    let mut begun = cx.now.monotonic_nanos;
    for index in 0..cx.op_count {
        cx.op_index = index;
        let Ok(num) = d.u32() else {
            return (refuse(e, OpNum::Illegal, Status::Badxdr), index + 1);
        };
        let row = match find(num, cx.minor) {
            Ok(row) => row,
            // An unknown operation number is illegal at any position (RFC 8881
            // §15.1.3.4).
            Err(NoRow::Illegal) => {
                return (refuse(e, OpNum::Illegal, Status::OpIllegal), index + 1);
            }
            Err(NoRow::Withdrawn(num)) => {
                let status = session_rule(cx, SessionRule::Inside).err();
                return (refuse(e, num, status.unwrap_or(Status::Notsupp)), index + 1);
            }
        };
        if let Err(status) = session_rule(cx, row.session).and_then(|()| must_be_new(cx)) {
            return (refuse(e, row.num, status), index + 1);
        }
        let status = run_one(cx, row, d, e).await;
        begun = observe_end(&*cx.server.observer, row, status, begun);
        if status != Status::Ok || cx.replay.is_some() {
            return (status, index + 1);
        }
    }
    (Status::Ok, cx.op_count)
}

async fn run_one(cx: &mut Cx<'_>, row: &Row, d: &mut Decoder<'_>, e: &mut Encoder) -> Status {
    let begun_in_session = cx.slot.is_some();
    let (limit, too_big) = cx.reply_limit();
    cx.reply_room = limit.saturating_sub(e.len() - cx.head_bytes);
    let mark = e.mark();
    cx.op = row.num;
    if !matches!(row.num, OpNum::Getfh | OpNum::Getattr | OpNum::Access) {
        cx.looked_up = None;
    }
    row.num.encode(e);
    let mut status = match row.run {
        Run::AtOnce(run) => run(cx, d, e),
        Run::InTime(run) => run(cx, d, e).await,
    };
    let (limit, late_too_big) = cx.reply_limit();
    if e.len() - cx.head_bytes > limit {
        // SEQUENCE sets the session's limits while it runs.
        let too_big = if begun_in_session { too_big } else { late_too_big };
        e.rollback(mark);
        status = refuse(e, row.num, too_big);
    }
    status
}

/// Tells of the end of an operation that began at `begun`; returns the time from which on the
/// next one is counted.
fn observe_end(observer: &dyn Observer, row: &Row, status: Status, begun: u64) -> u64 {
    match row.run {
        Run::AtOnce(_) => {
            observer.end_at_once(row.num, status);
            begun
        }
        Run::InTime(_) => observer.end(row.num, status, begun),
    }
}

fn refuse(e: &mut Encoder, num: OpNum, status: Status) -> Status {
    num.encode(e);
    encode_refusal(e, num, status);
    status
}

/// Position rules of an operation in a COMPOUND, from minor version 1 on.
fn session_rule(cx: &Cx<'_>, rule: SessionRule) -> Result<(), Status> {
    if cx.minor == 0 {
        return Ok(());
    }
    let (alone, inside) = (cx.op_count == 1, cx.slot.is_some() || cx.ran_before);
    match (rule, cx.op_index, inside) {
        (SessionRule::First, 0, _) => Ok(()),
        (SessionRule::First, _, _) => Err(Status::SequencePos),
        (SessionRule::Alone | SessionRule::InsideOrAlone, 0, false) if alone => Ok(()),
        (SessionRule::Alone, _, _) => Err(Status::NotOnlyOp),
        (SessionRule::InsideOrAlone, _, false) => Err(Status::NotOnlyOp),
        (SessionRule::Inside, _, false) => Err(Status::OpNotInSession),
        (_, _, true) => Ok(()),
    }
}

/// Refuses what has run before: of a retry whose reply was not kept, SEQUENCE succeeds, and
/// the operation behind it says so (RFC 8881 §2.10.6.1.3).
fn must_be_new(cx: &Cx<'_>) -> Result<(), Status> {
    if cx.ran_before { Err(Status::RetryUncachedRep) } else { Ok(()) }
}

/// Ends the slot's request. The reply is cached if the client requested it, and
/// for a lone SEQUENCE, whose retry must succeed (RFC 8881 §18.46.3).
fn finish_slot(cx: &mut Cx<'_>, message: &Message) {
    let Some(slot) = cx.slot.take() else { return };
    let keep = slot.cache_this || cx.op_count == 1;
    slot.finish(keep.then_some(message));
}

/// FNV-1a over the principal and the first bytes, eight at a time. A cached
/// reply is for the principal of the request: the same request under another
/// credential is a false retry (RFC 8881 §2.10.6.1.3.1).
fn digest(credential: &Credential, request: &[u8]) -> u64 {
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ request.len() as u64;
    match credential {
        Credential::None => {}
        Credential::Sys(sys) => {
            // Stamp and machine name may change with a reconnect and do not
            // identify the user.
            hash = step(hash, 1 << 32 | u64::from(sys.uid));
            hash = sys.groups.iter().fold(step(hash, u64::from(sys.gid)), |hash, gid| {
                step(hash, 1 << 33 | u64::from(*gid))
            });
        }
        Credential::Gss(caller) => {
            let principal = caller.identity.principal.bytes();
            hash = principal.fold(hash, |hash, byte| step(hash, 1 << 34 | u64::from(byte)));
        }
    }
    let (words, rest) = request[..request.len().min(DIGEST_BYTES)].as_chunks();
    hash = words.iter().fold(hash, |hash, word| step(hash, u64::from_le_bytes(*word)));
    if rest.is_empty() {
        return hash;
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    step(hash, u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The operations that have ended, each with the time at which it began.
    #[derive(Default)]
    struct Ended(Mutex<Vec<(OpNum, Option<u64>)>>);

    impl Observer for Ended {
        fn end(&self, op: OpNum, _: Status, begun: u64) -> u64 {
            self.0.lock().unwrap().push((op, Some(begun)));
            begun + 10
        }

        fn end_at_once(&self, op: OpNum, _: Status) {
            self.0.lock().unwrap().push((op, None));
        }
    }

    #[test]
    fn the_time_of_what_waits_for_nothing_is_in_that_of_the_next_operation() {
        use OpNum::{Getattr, Getfh, Putfh, Read, Sequence};
        let (observer, mut begun) = (Ended::default(), 5);
        for num in [Sequence, Putfh, Getattr, Getfh, Read] {
            begun = observe_end(&observer, find(num as u32, 2).unwrap(), Status::Ok, begun);
        }
        let ended = observer.0.into_inner().unwrap();
        let expected = [None, None, Some(5), None, Some(15)];
        assert_eq!(ended.iter().map(|(_, begun)| *begun).collect::<Vec<_>>(), expected);
        assert_eq!(begun, 25);
    }
}
