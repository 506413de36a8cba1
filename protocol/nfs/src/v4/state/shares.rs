//! Share reservations of a file: conflicts between opens (RFC 8881 §9.7), and
//! with accesses without an open.

use super::State;
use crate::namespace::FileKey;
use crate::v4::tables::Tables;
use crate::v4::tables::owner::FileClient;
use crate::v4::tables::shares::Share;
use zgate_nfs_wire::v4::Status;

/// OPEN4_SHARE_ACCESS_READ.
pub const ACCESS_READ: u32 = 1;
/// OPEN4_SHARE_ACCESS_WRITE.
pub const ACCESS_WRITE: u32 = 2;

/// Use of the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAccess {
    /// Reading data.
    Read,
    /// Writing data.
    Write,
    /// Setting the size.
    SetSize,
}

impl IoAccess {
    /// True if data or size change.
    #[must_use]
    pub fn modifies(self) -> bool {
        self != Self::Read
    }
}

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
        let mut given_up = None;
        loop {
            let wanted = Share::new(access, deny);
            let state = tables.files.get(&file.id);
            let conflict = state.and_then(|state| state.opens.conflict(wanted));
            let Some(FileClient { client, .. }) = conflict else {
                return Self::check_settled(tables, file);
            };
            if !self.give_up_if_expired(tables, client, now_seconds) {
                return Err(Status::ShareDenied);
            }
            Self::check_removed(tables, client)?;
            // The tables are locked: a client is looked at once.
            if given_up.replace(client) == Some(client) {
                return Err(Status::Delay);
            }
        }
    }

    /// Returns whether an access without an open conflicts with a share
    /// reservation (RFC 8881 §9.1.2).
    pub(crate) fn check_anonymous(
        &self,
        tables: &mut Tables,
        file: &FileKey,
        access: IoAccess,
        now_seconds: u64,
    ) -> Result<(), Status> {
        let wanted = if access.modifies() { ACCESS_WRITE } else { ACCESS_READ };
        self.check_shares(tables, file, wanted, 0, now_seconds).map_err(|status| match status {
            Status::ShareDenied => Status::Locked,
            other => other,
        })
    }
}
