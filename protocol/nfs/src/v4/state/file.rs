//! Share reservations of a file: conflicts between opens (RFC 8881 §9.7), and
//! lookup of stateids.

use super::State;
use super::ids::StateKey;
use super::shares::Share;
use super::tables::{StateKind, Tables};
use crate::v4::cx::{Cx, FileKey};
use zgate_nfs_wire::v4::{Stateid, Status};

/// OPEN4_SHARE_ACCESS_READ.
pub const ACCESS_READ: u32 = 1;
/// OPEN4_SHARE_ACCESS_WRITE.
pub const ACCESS_WRITE: u32 = 2;

impl State {
    /// Checks that no open conflicts with this one, and removes the state of
    /// conflicting clients with an expired lease. The opener's own earlier open
    /// counts as well (RFC 7530 §9.9, RFC 8881 §9.7).
    ///
    /// # Errors
    /// [`Status::ShareDenied`], [`Status::Delay`] while state taken from others
    /// is not released, or opens of a removed client are left.
    pub(crate) fn check_shares(
        &self,
        tables: &mut Tables,
        file: &FileKey,
        access: u32,
        deny: u32,
        now_seconds: u64,
    ) -> Result<(), Status> {
        loop {
            let wanted = Share::new(access, deny);
            let conflict = tables.files.get(file).and_then(|state| state.opens.conflict(wanted));
            let Some(client) = conflict else { return Self::check_settled(tables, file) };
            if !self.give_up_if_expired(tables, client, now_seconds) {
                return Err(Status::ShareDenied);
            }
            Self::wait_for_departed(tables, client)?;
        }
    }

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
        cx: &Cx<'_>,
        stateid: Stateid,
        file: Option<&FileKey>,
    ) -> Result<(StateKey, StateKind), Status> {
        if is_special(stateid) {
            return Err(Status::BadStateid);
        }
        let key = StateKey::from(stateid);
        let Some((kind, client, seqid)) = tables.find(key) else {
            return Err(self.why_unknown(tables, cx, stateid));
        };
        if let Some(session_client) = cx.session_client() {
            if session_client != client {
                return Err(Status::BadStateid);
            }
        } else if let Some(record) = tables.clients.get(&client) {
            record.lease.renew(cx.now.seconds());
        }
        check_seqid(cx.minor, stateid.seqid, seqid)?;
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
    /// issued.
    pub(crate) fn why_unknown(&self, tables: &Tables, cx: &Cx<'_>, stateid: Stateid) -> Status {
        let key = StateKey::from(stateid);
        let client = cx.session_client().and_then(|client| tables.clients.get(&client));
        // Minor version 0 names no client: the lost stateids of all its clients
        // are remembered together.
        let lost = || tables.buried.contains(key) || tables.find_any(key).is_some();
        match client.and_then(|client| client.revoked.get(&key)) {
            Some(status) => *status,
            None if cx.minor == 0 && lost() => Status::Expired,
            None if cx.minor == 0 && self.ids.is_stale(stateid) && !is_special(stateid) => {
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
