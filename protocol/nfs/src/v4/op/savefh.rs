//! SAVEFH (RFC 8881 §18.28).

use super::Immediate;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Savefh;

impl Immediate for Savefh {
    fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        cx.saved_unentered = cx.unentered.clone();
        cx.saved = if cx.unentered.is_some() { None } else { Some(cx.current()?.clone()) };
        cx.saved_stateid = cx.current_stateid;
        Ok(())
    }
}
