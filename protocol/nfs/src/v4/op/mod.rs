//! Implementations of the operations, one file each. Arguments and results are
//! in `zgate_nfs_wire::v4::op`.

pub mod access;
pub mod allocate;
pub mod backchannel_ctl;
pub mod bind_conn_to_session;
pub mod clone;
pub mod close;
pub mod commit;
pub mod copy;
pub mod copy_notify;
pub mod create;
pub mod create_session;
pub mod deallocate;
pub mod delegpurge;
pub mod delegreturn;
pub mod destroy_clientid;
pub mod destroy_session;
pub mod exchange_id;
pub mod free_stateid;
pub mod getattr;
pub mod getfh;
pub mod getxattr;
pub mod io_advise;
pub mod layout;
pub mod link;
pub mod listxattrs;
pub mod lock;
pub mod lockt;
pub mod locku;
pub mod lookup;
pub mod lookupp;
pub mod names;
pub mod nverify;
pub mod offload_cancel;
pub mod offload_status;
pub mod open;
pub mod open_confirm;
pub mod open_downgrade;
pub mod openattr;
pub mod putfh;
pub mod putpubfh;
pub mod putrootfh;
pub mod read;
pub mod read_plus;
pub mod readdir;
pub mod readlink;
pub mod reclaim_complete;
pub mod release_lockowner;
pub mod remove;
pub mod removexattr;
pub mod rename;
pub mod renew;
mod reply_room;
pub mod restorefh;
pub mod savefh;
pub mod secinfo;
pub mod secinfo_no_name;
pub mod seek;
pub mod sequence;
pub mod setattr;
pub mod setclientid;
pub mod setclientid_confirm;
pub mod setxattr;
pub mod table;
pub mod test_stateid;
pub mod verify;
pub mod want_delegation;
pub mod write;
pub mod write_same;
mod wrong_flavor;

use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Operation;

/// Server implementation of an operation.
pub trait Rule: Operation {
    /// Runs it.
    fn run(
        cx: &mut Cx<'_>,
        args: Self::Args,
    ) -> impl Future<Output = Result<Self::Res, Failure>> + Send;
}

/// Server implementation of an operation that waits for nothing.
pub trait Immediate: Operation {
    /// Runs it.
    ///
    /// # Errors
    /// The status, with what the operation has in its result beside it.
    fn run(cx: &mut Cx<'_>, args: Self::Args) -> Result<Self::Res, Failure>;
}
