//! Attributes of a file that another client holds a write delegation for: that
//! client has the newest values (RFC 8881 §10.4.3).

use super::State;
use crate::namespace::FileKey;
use zgate_nfs_wire::v4::attr::{CHANGE, SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{Bitmap, ClientId, NfsTime, Status};
use zgate_xdr::{Decode, Decoder};

/// Attributes from the holder of a write delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedAttributes {
    /// change.
    pub change: u64,
    /// size.
    pub size: u64,
    /// time_access, with delegated time stamps.
    pub time_access: Option<NfsTime>,
    /// time_modify, likewise.
    pub time_modify: Option<NfsTime>,
}

impl State {
    /// Asks the holder of a write delegation, if it is another client than the
    /// caller. `None` if there is no such holder, or no answer.
    pub async fn delegated_attributes(
        &self,
        file: FileKey,
        caller: Option<ClientId>,
        now_seconds: u64,
    ) -> Option<DelegatedAttributes> {
        let (work, given_change) = {
            let tables = self.lock();
            // A client with an expired lease is not asked; it keeps the
            // delegation only by courtesy.
            let there = |client| {
                let record = tables.clients.get(&client);
                record.is_some_and(|record| !record.lease.expired(now_seconds, self.lease_seconds))
            };
            let state = tables.files.get(&file)?;
            let delegation = state
                .delegations
                .values()
                .filter_map(|key| tables.delegations.get(key))
                .find(|d| d.write && Some(d.client) != caller && there(d.client))?;
            let mut want = Bitmap::of(&[CHANGE, SIZE]);
            if delegation.attrs {
                want.set(TIME_DELEG_ACCESS);
                want.set(TIME_DELEG_MODIFY);
            }
            let op = CallbackOp::GetAttr { fh: delegation.fh.clone(), want };
            let work = self.back.prepare(&tables, delegation.client, vec![op])?;
            (work, delegation.change)
        };
        let reply = work.await.ok()?;
        if reply.status != Status::Ok {
            return None;
        }
        let attrs = reply.attrs()?;
        // An incomplete answer is ignored: the store's values are better than a
        // guess.
        if !attrs.mask.contains(CHANGE) || !attrs.mask.contains(SIZE) {
            return None;
        }
        let mut d = Decoder::new(&attrs.values.0);
        let mut said = DelegatedAttributes {
            change: given_change,
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
}
