//! PATHCONF (RFC 1813 §3.3.20).

use super::Rule;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::PathConf;
use zgate_nfs_wire::v3::proc::pathconf::Limits;
use zgate_nfs_wire::v3::{Attributes, Fh3, Status};

impl Rule for PathConf {
    async fn run(cx: &Cx<'_>, fh: Fh3, fail: &mut Option<Attributes>) -> Result<Limits, Status> {
        let object = cx.enter(&fh)?;
        let stat = object.store().statfs(&object.node).await;
        *fail = object.post_op_attr().await;
        let stat = stat?;
        Ok(Limits {
            attributes: fail.take(),
            max_links: stat.traits.max_links,
            max_name_bytes: stat.max_name_bytes,
            no_trunc: true,
            chown_restricted: stat.traits.chown_restricted,
            case_insensitive: stat.case_insensitive,
            case_preserving: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use std::sync::Arc;
    use zgate_memory::MemoryStore;

    #[test]
    fn long_names_are_refused_not_cut() {
        let rig = Rig::new();
        let limits = rig.call::<PathConf>(&rig.root()).unwrap();
        assert!(limits.no_trunc && limits.case_preserving);
        assert_eq!(limits.max_name_bytes, 255);
    }

    #[test]
    fn a_file_system_that_is_case_insensitive_says_so() {
        for case_insensitive in [false, true] {
            let store = MemoryStore::builder().case_insensitive(case_insensitive).build();
            let rig = Rig::with(|export| export.store = Arc::new(store));
            let limits = rig.call::<PathConf>(&rig.root()).unwrap();
            assert_eq!(limits.case_insensitive, case_insensitive);
            assert!(limits.case_preserving);
        }
    }
}
