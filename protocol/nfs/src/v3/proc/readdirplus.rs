//! READDIRPLUS (RFC 1813 §3.3.17).

use super::Rule;
use crate::v3::cx::Cx;
use crate::v3::listing::{self, Budget};
use zgate_nfs_wire::v3::proc::ReadDirPlus;
use zgate_nfs_wire::v3::proc::readdir::DirList;
use zgate_nfs_wire::v3::proc::readdirplus::{Args, Entry, Page};
use zgate_nfs_wire::v3::{Attributes, Name3, Status};

impl Rule for ReadDirPlus {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut Option<Attributes>) -> Result<Page, Status> {
        let dir = cx.enter(&args.dir)?;
        let attr = dir.store().getattr(&dir.node).await?;
        *fail = Some(dir.attributes_of(&attr));
        let budget = Budget::plus(args.dir_count, args.max_count);
        let listing = listing::list(&dir, &attr, args.cookie, budget).await?;
        let entries = listing.items.into_iter().map(|item| {
            let (fh, attributes) = item.node.unzip();
            Entry {
                fileid: item.fileid,
                name: Name3(item.name),
                cookie: item.cookie,
                attributes,
                fh,
            }
        });
        Ok(Page {
            attributes: fail.take(),
            verifier: [0; 8],
            list: DirList { entries: entries.collect(), eof: listing.eof },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use std::collections::BTreeMap;
    use zgate_xdr::{Encode, Encoder};

    fn page(rig: &Rig, cookie: u64, dir_count: u32, max_count: u32) -> Result<Page, Status> {
        let args = Args { dir: rig.root(), cookie, verifier: [0; 8], dir_count, max_count };
        rig.call::<ReadDirPlus>(&args).map_err(|failed| failed.0)
    }

    #[test]
    fn every_name_comes_with_its_handle() {
        let rig = Rig::new();
        let mut expected = BTreeMap::new();
        for index in 0..40 {
            let name = format!("file-{index}");
            expected.insert(name.clone().into_bytes(), rig.file(&name, b""));
        }
        expected.insert(b".".to_vec(), rig.root());
        expected.insert(b"..".to_vec(), rig.root());
        for (dir_count, max_count) in [(4096, 600), (200, 8192), (0, 8192), (u32::MAX, u32::MAX)] {
            let (mut seen, mut cookie) = (BTreeMap::new(), 0);
            loop {
                let page = page(&rig, cookie, dir_count, max_count).unwrap();
                let mut e = Encoder::new();
                page.encode(&mut e);
                assert!(e.len() <= max_count as usize);
                assert!(page.list.eof || !page.list.entries.is_empty());
                for entry in page.list.entries {
                    cookie = entry.cookie;
                    let attributes = entry.attributes.unwrap();
                    assert_eq!(attributes.fileid, entry.fileid);
                    assert!(seen.insert(entry.name.0, entry.fh.unwrap()).is_none());
                }
                if page.list.eof {
                    break;
                }
            }
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_count_too_small_is_refused() {
        let rig = Rig::new();
        assert_eq!(page(&rig, 0, 4096, 150), Err(Status::TooSmall));
    }
}
