//! Attributes of a file that another client holds a write delegation for: that
//! client has the newest values (RFC 8881 §10.4.3).

use super::State;
use crate::limits::HOLDER_PATIENCE_MILLISECONDS;
use crate::namespace::FileKey;
use crate::patience::Patience;
use crate::runtime::BoxedFuture;
use crate::v4::callback::CallbackOutcome;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::owner::FileClient;
use std::sync::atomic::Ordering;
use zgate_nfs_wire::v4::attr::{CHANGE, SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{Bitmap, ClientId, Fattr, NfsTime, Status};
use zgate_store::{Attr, Timestamp};
use zgate_xdr::{Decode, Decoder};

/// Attributes from the holder of a write delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedAttributes {
    /// change, as the holder tells it.
    pub change: u64,
    /// The holder has changed the file in its cache: how often this was told before.
    pub told_before: Option<u64>,
    /// The holder has the file through another export, which has change numbers of its
    /// own.
    pub other_export: bool,
    /// size.
    pub size: u64,
    /// time_access, with delegated time stamps.
    pub time_access: Option<NfsTime>,
    /// time_modify, likewise.
    pub time_modify: Option<NfsTime>,
}

impl DelegatedAttributes {
    /// Puts the holder's values in place of those of the store, at this time of the server's
    /// clock. What the holder has changed it may have changed again since it was asked last:
    /// `change` is another one each time, and the times are those of the clock if it does not
    /// tell its own.
    pub fn apply(&self, attr: &mut Attr, now: Timestamp) {
        attr.size = self.size;
        if let Some(told_before) = self.told_before {
            // Of another export, whose numbers are others, it tells no number.
            let own = if self.other_export { attr.change.saturating_add(1) } else { self.change };
            attr.change = attr.change.max(own).saturating_add(told_before);
            if self.time_modify.is_none() {
                attr.mtime = attr.mtime.max(now);
                attr.ctime = attr.ctime.max(now);
            }
        }
        let timestamp =
            |time: NfsTime| Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
        attr.mtime = self.time_modify.map_or(attr.mtime, timestamp);
        attr.atime = self.time_access.map_or(attr.atime, timestamp);
    }
}

/// Time after which a holder that does not answer is not asked for a while, in
/// milliseconds: less than a request waits for all holders.
const SILENCE_MILLISECONDS: u64 = 1000;
/// Time for which it is not asked then, in seconds, unless it makes a new back channel:
/// every request about one of its files would wait for it.
const NOT_ASKED_SECONDS: u64 = 30;
const NANOS_PER_MILLISECOND: u64 = 1_000_000;

const _: () = assert!(SILENCE_MILLISECONDS < HOLDER_PATIENCE_MILLISECONDS);

/// Asker for attributes: the client, if it is known, the time of its request in
/// seconds, and the time that the request has left for holders.
type Asks<'a> = (Option<ClientId>, u64, &'a Patience);

/// A CB_GETATTR that has not been sent yet.
struct Question {
    holder: ClientId,
    delegation: StateKey,
    /// The change attribute at which it was granted.
    given_change: u64,
    /// See [`DelegatedAttributes::other_export`].
    other_export: bool,
    answer: BoxedFuture<CallbackOutcome>,
}

impl State {
    /// Asks the holder of a write delegation, if it is not the caller's own. `None`
    /// if there is no such holder, or no answer in time.
    pub async fn delegated_attributes(
        &self,
        file: impl FnOnce() -> FileKey,
        (caller, now_seconds, patience): Asks<'_>,
    ) -> Option<DelegatedAttributes> {
        if patience.is_over() {
            return None;
        }
        let question = self.question(file, caller, now_seconds)?;
        let Question { holder, delegation, given_change, other_export, answer } = question;
        let asked_nanos = self.runtime.now().monotonic_nanos;
        let Some(Ok(reply)) = patience.wait_for(&*self.runtime, answer).await else {
            self.note_silence(holder, asked_nanos);
            return None;
        };
        if reply.status != Status::Ok {
            return None;
        }
        let mut said = decode(reply.attrs()?, other_export)?;
        said.told_before = self.count_told(delegation, said.change != given_change);
        Some(said)
    }

    /// Counts an answer of a delegation's holder, by which the file has changed or not. Returns
    /// how often a change was told before; none if there is none.
    fn count_told(&self, delegation: StateKey, has_changed: bool) -> Option<u64> {
        let mut tables = self.lock();
        let Some(delegation) = tables.delegations.get_mut(&delegation) else {
            // It has just come back.
            return has_changed.then_some(0);
        };
        // Once changed, it stays so: the holder may have written all that, and changes it again.
        let told = delegation.told_changes.or(has_changed.then_some(0))?;
        delegation.told_changes = Some(told + 1);
        Some(told)
    }

    /// Returns whether the client holds a write delegation of a file that is not recalled.
    pub(crate) fn holds_write_delegation(&self, file: &FileKey, client: ClientId) -> bool {
        if !self.write_delegations.may_be_of(&file.id) {
            return false;
        }
        let tables = self.lock();
        let Some(state) = tables.files.get(&file.id) else { return false };
        let key = state.delegations.get(&FileClient::of(client, file));
        let held = key.and_then(|key| tables.delegations.get(key));
        held.is_some_and(|d| d.write && d.recalled_seconds.is_none())
    }

    /// Returns the question to the holder of a write delegation of a file, if it may be asked.
    fn question(
        &self,
        file: impl FnOnce() -> FileKey,
        caller: Option<ClientId>,
        now_seconds: u64,
    ) -> Option<Question> {
        // The key costs a hash.
        let file = self.write_delegations.are_any().then(file)?;
        if !self.write_delegations.may_be_of(&file.id) {
            return None;
        }
        let tables = self.lock();
        // A client with an expired lease is not asked; it keeps the delegation
        // only by courtesy. Nor is one that has just not answered.
        let there = |client| {
            tables.clients.get(&client).is_some_and(|record| {
                let silent_until = record.silent_until_seconds.load(Ordering::Relaxed);
                now_seconds >= silent_until
                    && !record.lease.expired(now_seconds, self.lease_seconds)
            })
        };
        let state = tables.files.get(&file.id)?;
        let delegation = state
            .delegations
            .values()
            .filter_map(|key| tables.delegations.get(key))
            .find(|d| d.write && !d.is_own(caller, &file) && there(d.client))?;
        let mut want = Bitmap::of(&[CHANGE, SIZE]);
        if delegation.attrs {
            want.set(TIME_DELEG_ACCESS);
            want.set(TIME_DELEG_MODIFY);
        }
        let op = CallbackOp::GetAttr { fh: delegation.fh.clone(), want };
        let answer = self.back.prepare(&tables, delegation.client, vec![op])?;
        Some(Question {
            holder: delegation.client,
            delegation: delegation.key,
            given_change: delegation.change,
            other_export: delegation.file.export != file.export,
            answer,
        })
    }

    /// Notes that a holder has not answered since then. A short wait says nothing: the
    /// request may have waited for others before.
    fn note_silence(&self, holder: ClientId, asked_nanos: u64) {
        let now = self.runtime.now();
        let waited_nanos = now.monotonic_nanos.saturating_sub(asked_nanos);
        if waited_nanos < SILENCE_MILLISECONDS * NANOS_PER_MILLISECOND {
            return;
        }
        if let Some(record) = self.lock().clients.get(&holder) {
            let until = now.seconds() + NOT_ASKED_SECONDS;
            record.silent_until_seconds.store(until, Ordering::Relaxed);
        }
    }
}

/// The attributes in an answer.
fn decode(attrs: &Fattr, other_export: bool) -> Option<DelegatedAttributes> {
    // An incomplete answer is ignored: the store's values are better than a
    // guess.
    if !attrs.mask.contains(CHANGE) || !attrs.mask.contains(SIZE) {
        return None;
    }
    let mut d = Decoder::new(&attrs.values.0);
    let mut said = DelegatedAttributes {
        change: 0,
        told_before: None,
        other_export,
        size: 0,
        time_access: None,
        time_modify: None,
    };
    for attribute in attrs.mask.iter() {
        match attribute {
            CHANGE => said.change = d.u64().ok()?,
            SIZE => said.size = d.u64().ok()?,
            TIME_DELEG_ACCESS => said.time_access = Some(NfsTime::decode(&mut d).ok()?),
            TIME_DELEG_MODIFY => said.time_modify = Some(NfsTime::decode(&mut d).ok()?),
            _ => return None,
        }
    }
    Some(said)
}
