//! FSSTAT (RFC 1813 §3.3.18).

use super::Rule;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::FsStat;
use zgate_nfs_wire::v3::proc::fsstat::Space;
use zgate_nfs_wire::v3::{Attributes, Fh3, Status};

impl Rule for FsStat {
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
