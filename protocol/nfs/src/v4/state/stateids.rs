//! Lookup of stateids.

use super::State;
use crate::namespace::FileKey;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::{StateKind, Tables};
use zgate_nfs_wire::v4::{ClientId, Stateid, Status};

/// Sender of a request, as far as operations on state need it.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// Minor version of the request.
    pub minor: u8,
    /// Client of the session; `None` in minor version 0.
    pub client: Option<ClientId>,
    /// Time of the request.
    pub now_seconds: u64,
}

impl State {
    /// Looks up a stateid for an operation on state and checks version, owner
    /// and file.
    ///
    /// # Errors
    /// [`Status::BadStateid`], [`Status::OldStateid`],
    /// [`Status::StaleStateid`], [`Status::Expired`], [`Status::DelegRevoked`]
    /// and similar.
    pub(crate) fn find_state(
        &self,
        tables: &Tables,
        requester: Requester,
        stateid: Stateid,
        file: Option<&FileKey>,
    ) -> Result<(StateKey, StateKind), Status> {
        if is_special(stateid) {
            return Err(Status::BadStateid);
        }
        let key = StateKey::from(stateid);
        let Some((kind, client, seqid)) = tables.find(key) else {
            return Err(self.why_unknown(tables, requester, stateid));
        };
        if let Some(session_client) = requester.client {
            if session_client != client {
                return Err(Status::BadStateid);
            }
        } else if let Some(record) = tables.clients.get(&client) {
            record.lease.renew(requester.now_seconds);
        }
        check_seqid(requester.minor, stateid.seqid, seqid)?;
        let of = match kind {
            StateKind::Open => tables.opens.get(&key).map(|open| open.file),
            StateKind::Lock => tables.locks.get(&key).map(|lock| lock.file),
            StateKind::Delegation => tables.delegations.get(&key).map(|d| d.file),
        };
        if file.is_some() && of.as_ref() != file {
            return Err(Status::BadStateid);
        }
        Ok((key, kind))
    }

    /// Status for an unknown stateid: from before a restart, revoked, or never
    /// issued; or for one of another type than the operation takes.
    pub(crate) fn why_unknown(
        &self,
        tables: &Tables,
        requester: Requester,
        stateid: Stateid,
    ) -> Status {
        let key = StateKey::from(stateid);
        let client = requester.client.and_then(|client| tables.clients.get(&client));
        // Minor version 0 names no client: the lost stateids of all its clients
        // are remembered together, and what is left of removed clients is lost, too.
        let is_left = || tables.find(key).is_none() && tables.find_any(key).is_some();
        let lost = || tables.expired_stateids.contains(key) || is_left();
        match client.and_then(|client| client.losses.status_of(key)) {
            Some(status) => status,
            None if requester.minor == 0 && lost() => Status::Expired,
            None if requester.minor == 0 && self.ids.is_stale(stateid) && !is_special(stateid) => {
                Status::StaleStateid
            }
            None => Status::BadStateid,
        }
    }
}

/// True for the anonymous, bypass, current and invalid stateids.
#[must_use]
pub fn is_special(stateid: Stateid) -> bool {
    stateid.other == [0; 12] || stateid.other == [0xff; 12]
}

/// Compares versions (RFC 8881 §8.2.2): 0 means the newest from minor 1 on.
///
/// # Errors
/// [`Status::OldStateid`] or [`Status::BadStateid`].
pub fn check_seqid(minor: u8, given: u32, current: u32) -> Result<(), Status> {
    if minor > 0 && given == 0 || given == current {
        Ok(())
    } else if (given.wrapping_sub(current) as i32) < 0 {
        Err(Status::OldStateid)
    } else {
        Err(Status::BadStateid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_with_wraparound() {
        assert_eq!(check_seqid(1, 0, 7), Ok(()));
        assert_eq!(check_seqid(0, 0, 7), Err(Status::OldStateid));
        assert_eq!(check_seqid(0, 7, 7), Ok(()));
        assert_eq!(check_seqid(0, 8, 7), Err(Status::BadStateid));
        assert_eq!(check_seqid(1, u32::MAX, 1), Err(Status::OldStateid));
    }
}
