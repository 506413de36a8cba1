//! FSSTAT (RFC 1813 §3.3.18).

use super::Procedure;
use crate::v3::cx::Cx;
use crate::v3::wire::{Attributes, Fh3, Status};

/// The procedure.
#[derive(Debug)]
pub struct FsStat;

zgate_xdr::xdr_struct! {
    /// FSSTAT3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Space {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Size in bytes.
        pub total_bytes: u64,
        /// Unused bytes.
        pub free_bytes: u64,
        /// Bytes the caller may use.
        pub available_bytes: u64,
        /// Objects it can hold.
        pub total_files: u64,
        /// Objects it can still hold.
        pub free_files: u64,
        /// Objects the caller may create.
        pub available_files: u64,
        /// Seconds for which this is not expected to change.
        pub invariant_seconds: u32,
    }
}

impl Procedure for FsStat {
    const NUMBER: u32 = 18;
    type Args = Fh3;
    type Ok = Space;
    type Fail = Option<Attributes>;

    async fn run(cx: &Cx<'_>, fh: Fh3, fail: &mut Option<Attributes>) -> Result<Space, Status> {
        let object = cx.enter(&fh)?;
        let stat = object.store().statfs(&object.node).await;
        *fail = object.post_op_attr().await;
        let stat = stat?;
        Ok(Space {
            attributes: fail.take(),
            total_bytes: stat.total_bytes,
            free_bytes: stat.free_bytes,
            available_bytes: stat.available_bytes,
            total_files: stat.total_files,
            free_files: stat.free_files,
            available_files: stat.available_files,
            invariant_seconds: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;

    #[test]
    fn there_is_no_more_free_than_there_is() {
        let rig = Rig::new();
        let space = rig.call::<FsStat>(&rig.root()).unwrap();
        assert!(space.available_bytes <= space.free_bytes);
        assert!(space.free_bytes <= space.total_bytes);
    }
}
