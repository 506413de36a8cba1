//! READLINK (RFC 1813 §3.3.5).

use super::Procedure;
use crate::limits::MAX_LINK_BYTES;
use crate::v3::cx::Cx;
use crate::v3::wire::{Attributes, Fh3, Status};
use zgate_xdr::DirectOpaque;

/// The procedure.
#[derive(Debug)]
pub struct ReadLink;

zgate_xdr::xdr_struct! {
    /// READLINK3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Target {
        /// Attributes of the link.
        pub attributes: Option<Attributes>,
        /// Where it points.
        pub path: DirectOpaque<MAX_LINK_BYTES>,
    }
}

impl Procedure for ReadLink {
    const NUMBER: u32 = 5;
    type Args = Fh3;
    type Ok = Target;
    type Fail = Option<Attributes>;

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
