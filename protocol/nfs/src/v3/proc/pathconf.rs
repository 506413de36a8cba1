//! PATHCONF (RFC 1813 §3.3.20).

use super::Procedure;
use crate::v3::cx::Cx;
use crate::v3::wire::{Attributes, Fh3, Status};

/// The procedure.
#[derive(Debug)]
pub struct PathConf;

zgate_xdr::xdr_struct! {
    /// PATHCONF3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Most hard links.
        pub max_links: u32,
        /// Longest name in bytes.
        pub max_name_bytes: u32,
        /// A longer name is refused, not cut.
        pub no_trunc: bool,
        /// Only root gives files away.
        pub chown_restricted: bool,
        /// Names differing only in case are the same.
        pub case_insensitive: bool,
        /// Case is kept.
        pub case_preserving: bool,
    }
}

impl Procedure for PathConf {
    const NUMBER: u32 = 20;
    type Args = Fh3;
    type Ok = Limits;
    type Fail = Option<Attributes>;

    async fn run(cx: &Cx<'_>, fh: Fh3, fail: &mut Option<Attributes>) -> Result<Limits, Status> {
        let object = cx.enter(&fh)?;
        let stat = object.store().statfs(&object.node).await;
        *fail = object.post_op_attr().await;
        let stat = stat?;
        let traits = object.store().traits();
        Ok(Limits {
            attributes: fail.take(),
            max_links: traits.max_links,
            max_name_bytes: stat.max_name_bytes,
            no_trunc: true,
            chown_restricted: traits.chown_restricted,
            case_insensitive: !traits.case_sensitive,
            case_preserving: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;

    #[test]
    fn long_names_are_refused_not_cut() {
        let rig = Rig::new();
        let limits = rig.call::<PathConf>(&rig.root()).unwrap();
        assert!(limits.no_trunc && limits.case_preserving);
        assert_eq!(limits.max_name_bytes, 255);
    }
}
