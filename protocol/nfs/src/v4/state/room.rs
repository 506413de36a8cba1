//! Room for what a quota refuses.
//!
//! A client that may not open one more file is asked for its delegations of files
//! that it has not open: it keeps them for speed only.

use super::State;
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::quota::Quota;
use zgate_nfs_wire::v4::{ClientId, Status};

/// Most delegations of a client that are recalled at a time because it needs room.
const MAX_RECALLS_FOR_ROOM: usize = 16;

impl State {
    /// Checks that the client's host may have `amount` more, and begins to make
    /// room if it may not.
    ///
    /// # Errors
    /// [`Status::Delay`] if there will be room; otherwise the status for a client
    /// that holds too much, or [`Status::StaleClientid`].
    pub(crate) fn need_room(
        &self,
        tables: &mut Tables,
        id: ClientId,
        (quota, amount): (Quota, usize),
        now_seconds: u64,
    ) -> Result<(), Status> {
        let client = tables.clients.get(&id).ok_or(Status::StaleClientid)?;
        let Err(refused) = client.host_has_room(quota, amount) else { return Ok(()) };
        if quota == Quota::Files && self.recall_unused(tables, id, now_seconds) {
            return Err(Status::Delay);
        }
        Err(refused)
    }

    /// Recalls some delegations of files that the client has not open. Returns
    /// whether any is on its way back. The client's delegations are looked at once
    /// a second: it may hold many, and ask often.
    fn recall_unused(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) -> bool {
        let Some(client) = tables.clients.get(&id) else { return false };
        let sought = client.sought_room;
        if sought.at_seconds == now_seconds {
            return sought.is_coming;
        }
        let (mut unused, mut coming) = (Vec::<StateKey>::new(), 0);
        for key in &client.delegations {
            if unused.len() + coming >= MAX_RECALLS_FOR_ROOM {
                break;
            }
            let Some(delegation) = tables.delegations.get(key) else { continue };
            let file = tables.files.get(&delegation.file);
            if file.is_some_and(|file| file.opens.has(id)) {
                continue;
            }
            if delegation.recalled_seconds.is_some() {
                coming += 1;
            } else {
                unused.push(*key);
            }
        }
        let is_coming = coming + unused.len() > 0;
        if let Some(client) = tables.clients.get_mut(&id) {
            client.sought_room.at_seconds = now_seconds;
            client.sought_room.is_coming = is_coming;
        }
        for key in unused {
            self.begin_recall(tables, key, now_seconds);
        }
        is_coming
    }
}
