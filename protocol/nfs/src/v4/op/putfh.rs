//! PUTFH (RFC 8881 §18.19).

use super::Immediate;
use crate::namespace::FileHandle;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Putfh;

impl Immediate for Putfh {
    fn run(cx: &mut Cx<'_>, fh: Fh) -> Result<(), Failure> {
        // The operation that uses the handle finds out if the object still
        // exists: a check here would double the work of every READ.
        let handle = FileHandle::parse(&fh.0).ok_or(Status::Badhandle)?;
        cx.put(handle)?;
        Ok(())
    }
}
