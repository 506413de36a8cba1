//! RESTOREFH (RFC 8881 §18.27).

use super::Immediate;
use crate::v4::failure::Failure;
use crate::v4::request::{Cx, Unentered};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Restorefh;

impl Immediate for Restorefh {
    fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        let none = if cx.minor == 0 { Status::Restorefh } else { Status::Nofilehandle };
        if let Some(handle) = cx.saved_unentered.as_deref().map(Unentered::handle) {
            return Ok(cx.put(handle)?);
        }
        cx.current = Some(cx.saved.clone().ok_or(none)?);
        cx.unentered = None;
        cx.current_stateid = cx.saved_stateid;
        Ok(())
    }
}
