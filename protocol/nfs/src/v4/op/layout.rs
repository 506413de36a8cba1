//! The pNFS operations (RFC 8881 §18.40-§18.44, RFC 7862 §15.6-§15.7): no file
//! system of this server offers a layout type, so they answer as the RFCs
//! require of such a server. Arguments are decoded only as far as necessary; no
//! operation of a COMPOUND runs after a refusal.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::layout::{GetArgs, Unread};
use zgate_nfs_wire::v4::op::{
    Getdeviceinfo, Getdevicelist, Layoutcommit, Layouterror, Layoutget, Layoutreturn, Layoutstats,
};

macro_rules! refused {
    ($($name:ident),*) => {$(
        impl Rule for $name {
            async fn run(_: &mut Cx<'_>, _: Unread) -> Result<(), Failure> {
                Err(Status::Notsupp.into())
            }
        }
    )*};
}

refused!(Getdeviceinfo, Getdevicelist, Layoutcommit, Layoutreturn, Layouterror, Layoutstats);

impl Rule for Layoutget {
    async fn run(cx: &mut Cx<'_>, _: GetArgs) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Layoutunavailable.into())
    }
}
