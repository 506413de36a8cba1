//! Blocked locks and CB_NOTIFY_LOCK (RFC 8881 §20.11): a hint, as the client
//! polls in any case.

use super::State;
use crate::namespace::FileId;
use crate::v4::tables::Tables;
use crate::v4::tables::file::Waiter;
use crate::v4::tables::owner::LockOwnerId;
use crate::v4::tables::quota::Quota;
use crate::v4::tables::ranges::Range;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{Fh, LockType, StateOwner};

/// Most blocked locks per file.
const MAX_WAITERS_PER_FILE: usize = 256;

impl State {
    /// Adds a blocked lock. Without room it is not remembered, and its client is
    /// not told. `fh`: the client's handle of the file.
    pub(crate) fn add_waiter(
        tables: &mut Tables,
        (file, fh): (FileId, Fh),
        owner: &LockOwnerId,
        (range, kind): (Range, LockType),
        now_seconds: u64,
    ) {
        let Some(client) = tables.clients.get(&owner.client) else { return };
        let state = tables.files.entry(file).or_default();
        state.waiters.retain(|w| w.owner != *owner || w.range != range);
        if state.waiters.len() >= MAX_WAITERS_PER_FILE {
            return;
        }
        let Some(charge) = client.host.take(Quota::BlockedLocks, 1) else { return };
        state.waiters.push(Waiter {
            owner: owner.clone(),
            range,
            kind,
            fh,
            since_seconds: now_seconds,
            charge,
        });
        tables.waited_for.insert(file);
    }

    /// Notifies every waiter whose lock is free now, once.
    pub(crate) fn wake_waiters(&self, tables: &mut Tables, file: &FileId) {
        let Some(state) = tables.files.get_mut(file) else {
            tables.waited_for.remove(file);
            return;
        };
        let ranges = &state.ranges;
        let (ready, blocked): (Vec<_>, Vec<_>) = state
            .waiters
            .drain(..)
            .partition(|w| ranges.conflict(&w.range, w.kind.is_write(), &w.owner).is_none());
        if blocked.is_empty() {
            tables.waited_for.remove(file);
        }
        state.waiters = blocked;
        for waiter in ready {
            let owner =
                StateOwner { clientid: waiter.owner.client, owner: (*waiter.owner.name).into() };
            let op = CallbackOp::NotifyLock { fh: waiter.fh, owner };
            if let Some(work) = self.back.prepare(tables, waiter.owner.client, vec![op]) {
                self.runtime.spawn(Box::pin(async move {
                    // A lost hint delays the client by one polling interval.
                    let _ = work.await;
                }));
            }
        }
    }
}
