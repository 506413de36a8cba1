//! Attributes of a file that another client holds a write delegation of:
//! that client knows them best (RFC 8881 §10.4.3).

use super::message::CallbackOp;
use crate::v4::cx::{Cx, FileKey};
use crate::v4::state::State;
use crate::v4::wire::{Bitmap, NfsTime, Status};
use zgate_xdr::{Decode, Decoder};

const CHANGE: u32 = 3;
const SIZE: u32 = 4;
const TIME_DELEG_ACCESS: u32 = 84;
const TIME_DELEG_MODIFY: u32 = 85;

/// What the holder of a write delegation says.
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
    /// Asks the holder of a write delegation, when it is another client than
    /// the caller. `None`: nobody to ask, or no answer.
    pub async fn delegated_attributes(
        &self,
        cx: &Cx<'_>,
        file: FileKey,
    ) -> Option<DelegatedAttributes> {
        let (work, given_change) = {
            let tables = self.lock();
            let now = cx.now.seconds();
            // One whose lease ran out has nothing to say; it keeps the
            // delegation out of courtesy only.
            let there = |client| {
                let record = tables.clients.get(&client);
                record.is_some_and(|record| !record.lease.expired(now, self.lease_seconds))
            };
            let state = tables.files.get(&file)?;
            let delegation =
                state.delegations.values().filter_map(|key| tables.delegations.get(key)).find(
                    |d| d.write && Some(d.client) != cx.calling_client() && there(d.client),
                )?;
            let mut want = Bitmap::of(&[CHANGE, SIZE]);
            if delegation.attrs {
                want.set(TIME_DELEG_ACCESS);
                want.set(TIME_DELEG_MODIFY);
            }
            let op = CallbackOp::GetAttr { fh: delegation.fh.clone(), want };
            let work = self.back.prepare(cx.server, &tables, delegation.client, vec![op])?;
            (work, delegation.change)
        };
        let reply = work.await.ok()?;
        if reply.status != Status::Ok {
            return None;
        }
        let attrs = reply.attrs?;
        // Half an answer is none: the store knows better than a guess.
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
