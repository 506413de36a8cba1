//! READLINK (RFC 1813 §3.3.5).

use super::Rule;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::ReadLink;
use zgate_nfs_wire::v3::proc::readlink::Target;
use zgate_nfs_wire::v3::{Attributes, Fh3, Status};
use zgate_xdr::DirectOpaque;

impl Rule for ReadLink {
    async fn run(cx: &Cx<'_>, fh: Fh3, fail: &mut Option<Attributes>) -> Result<Target, Status> {
        let object = cx.enter(&fh)?;
        let path = object.store().readlink(&object.who, &object.node).await;
        *fail = object.post_op_attr().await;
        Ok(Target { path: DirectOpaque(path?), attributes: fail.take() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;

    #[test]
    fn only_a_link_has_a_target() {
        let rig = Rig::new();
        let link = rig.symlink("l", "over/there");
        assert_eq!(rig.call::<ReadLink>(&link).unwrap().path.0, b"over/there");
        assert_eq!(rig.call::<ReadLink>(&rig.root()).unwrap_err().0, Status::Inval);
    }
}
