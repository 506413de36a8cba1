//! READDIR (RFC 1813 §3.3.16).

use super::Rule;
use crate::v3::cx::Cx;
use crate::v3::listing::{self, Budget};
use zgate_nfs_wire::v3::proc::ReadDir;
use zgate_nfs_wire::v3::proc::readdir::{Args, DirList, Entry, Page};
use zgate_nfs_wire::v3::{Attributes, Name3, Status};

impl Rule for ReadDir {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut Option<Attributes>) -> Result<Page, Status> {
        let dir = cx.enter(&args.dir)?;
        let attr = dir.store().getattr(&dir.node).await?;
        *fail = Some(dir.attributes_of(&attr));
        let budget = Budget::plain(args.count);
        let listing = listing::list(&dir, &attr, args.cookie, budget).await?;
        let entries = listing.items.into_iter().map(|item| Entry {
            fileid: item.fileid,
            name: Name3(item.name),
            cookie: item.cookie,
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
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_store::StoreError;
    use zgate_xdr::Encode;
    use zgate_xdr::Encoder;

    fn page(rig: &Rig, cookie: u64, count: u32) -> Result<Page, Status> {
        let args = Args { dir: rig.root(), cookie, verifier: [0; 8], count };
        rig.call::<ReadDir>(&args).map_err(|failed| failed.0)
    }

    #[test]
    fn every_name_comes_once_in_pages_that_fit() {
        let rig = Rig::new();
        let mut expected = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
        for index in 0..100 {
            let name = format!("file-{index}");
            rig.file(&name, b"");
            expected.insert(name.into_bytes());
        }
        for count in [160, 512, 4096, u32::MAX] {
            let (mut seen, mut cookie) = (Vec::new(), 0);
            loop {
                let page = page(&rig, cookie, count).unwrap();
                let mut e = Encoder::new();
                page.encode(&mut e);
                assert!(e.len() <= count as usize);
                cookie = page.list.entries.last().map_or(cookie, |entry| entry.cookie);
                seen.extend(page.list.entries.into_iter().map(|entry| entry.name.0));
                if page.list.eof {
                    break;
                }
            }
            assert_eq!(seen[..2], [b".".to_vec(), b"..".to_vec()]);
            assert_eq!(seen.len(), expected.len());
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    #[test]
    fn a_count_too_small_and_a_file_are_refused() {
        let rig = Rig::new();
        assert_eq!(page(&rig, 0, 100), Err(Status::TooSmall));
        let args = Args { dir: rig.file("f", b""), cookie: 0, verifier: [0; 8], count: 4096 };
        assert_eq!(rig.call::<ReadDir>(&args).unwrap_err().0, Status::NotDir);
    }

    #[test]
    fn a_cookie_that_nobody_has_given_is_refused() {
        let memory = MemoryStore::new();
        let rig = Rig::with(|export| export.store = Arc::new(memory.clone()));
        memory.faults().fail_every(FileOp::ReadDir, StoreError::Invalid);
        assert_eq!(page(&rig, u64::MAX, 4096), Err(Status::BadCookie));
        assert_eq!(page(&rig, 0, 4096), Err(Status::Inval), "it is not the cookie");
    }
}
