//! GETATTR (RFC 1813 §3.3.1).

use super::Rule;
use crate::v3::cx::Cx;
use zgate_nfs_wire::v3::proc::GetAttr;
use zgate_nfs_wire::v3::{Attributes, Fh3, Status};

impl Rule for GetAttr {
    async fn run(cx: &Cx<'_>, fh: Fh3, _: &mut ()) -> Result<Attributes, Status> {
        let object = cx.enter(&fh)?;
        let attr = object.store().getattr(&object.node).await?;
        Ok(object.attributes_of(&attr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::export::Versions;
    use crate::namespace::{FileHandle, PseudoId};
    use crate::v3::proc::rig::Rig;
    use zgate_nfs_wire::v3::FileType;

    #[test]
    fn the_root_is_a_directory_and_rubbish_no_handle() {
        let rig = Rig::new();
        let attributes = rig.call::<GetAttr>(&rig.root()).unwrap();
        assert_eq!(attributes.kind, FileType::Directory);
        let status = |fh: Vec<u8>| rig.call::<GetAttr>(&Fh3(fh)).unwrap_err().0;
        assert_eq!(status(vec![1, 2, 3]), Status::BadHandle);
        assert_eq!(status(FileHandle::Pseudo(PseudoId(1)).to_fh().0), Status::BadHandle);
        let mut other_export = rig.root().0;
        other_export[7] ^= 1;
        assert_eq!(status(other_export), Status::Stale);
    }

    #[test]
    fn the_handle_of_an_absent_export_is_not_stale() {
        let fh = Rig::new().root();
        let status = |rig: Rig| rig.call::<GetAttr>(&fh).unwrap_err().0;
        assert_eq!(status(Rig::new().away(Versions::ALL)), Status::Jukebox);
        let closed = Versions { v3: false, ..Versions::ALL };
        assert_eq!(status(Rig::new().away(closed)), Status::Stale);
        assert_eq!(status(Rig::new().unknown()), Status::Jukebox);
    }

    #[test]
    fn an_export_can_be_closed_to_nfsv3_or_to_a_client() {
        let fh = Rig::new().root();
        let closed = Rig::with(|export| export.versions.v3 = false);
        assert_eq!(closed.call::<GetAttr>(&fh).unwrap_err().0, Status::Stale);
        let unlisted = Rig::with(|export| export.clients.clear());
        assert_eq!(unlisted.call::<GetAttr>(&fh).unwrap_err().0, Status::Stale);
        let flavour = Rig::with(|export| {
            export.clients[0].flavors = [crate::namespace::Flavor::None].into_iter().collect()
        });
        assert_eq!(flavour.call::<GetAttr>(&fh).unwrap_err().0, Status::Acces);
    }
}
