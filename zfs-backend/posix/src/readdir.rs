//! READDIR.

use crate::attributes::{attr_of, timestamp};
use crate::change::from_ctime;
use crate::dir_stream::{DirStream, Listed};
use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::name::Name;
use crate::syscall;
use crate::tree::Tree;
use rustix::fs::OFlags;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use zgate_io::access_check::Rights;
use zgate_io::credentials;
use zgate_store::file_store::{DirEntry, DirPage, Node};
use zgate_store::{Caller, NodeHandle, StoreError, StoreResult};

impl Tree {
    /// Entries after `cookie`, at most `max_entries`.
    pub(crate) fn readdir(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> StoreResult<DirPage> {
        let dir = self.directory(dir)?;
        self.require(who, &dir, Rights::READ)?;
        let (listed, end) = self.list(&dir, cookie, max_entries)?;
        let searchable = with_nodes && self.precheck(who, &dir, Rights::EXECUTE).is_ok();
        let entries = listed.into_iter().map(|listed| {
            let node = match (with_nodes, searchable) {
                (true, true) => self.listed_node(&dir, &listed.name),
                (true, false) => Err(StoreError::AccessDenied),
                (false, _) => Err(StoreError::NotSupported),
            };
            DirEntry { name: listed.name, cookie: listed.cookie, fileid: listed.fileid, node }
        });
        Ok(DirPage { entries: entries.collect(), end })
    }

    /// Names after `cookie`, and whether the directory ends with them.
    fn list(&self, dir: &Entry, cookie: u64, max: usize) -> StoreResult<(Vec<Listed>, bool)> {
        let mut listing = dir.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = match listing.take() {
            Some(stream) => stream,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let fd = credentials::as_process(|| syscall::reopen(&dir.fd, flags));
                DirStream::new(fd.or_store()?)
            }
        };
        stream.go_to(cookie, dir.generation.load(Ordering::Acquire))?;
        let mut listed = Vec::with_capacity(max.min(1024));
        while listed.len() < max {
            match stream.next()? {
                Some(entry) if self.hides(dir, &entry.name) => {}
                Some(entry) => listed.push(entry),
                None => break,
            }
        }
        let end = stream.at_end()?;
        *listing = Some(stream);
        Ok((listed, end))
    }

    /// Handle and attributes of a listed name, without opening it.
    fn listed_node(&self, dir: &Entry, name: &[u8]) -> StoreResult<Node> {
        let name = Name::parse(name)?;
        let stat = syscall::stat_at(&dir.fd, name.as_c_str())?;
        let mount = self.mount_at(dir, &stat)?;
        let handle = self.handle_of(&dir.fd, name.as_c_str(), &stat, &mount)?;
        if !mount.kernel_handles {
            self.places.remember(&handle, &dir.handle, name.as_bytes());
        }
        if let Some(entry) = self.cached(&handle) {
            return Ok(Node { handle, attr: entry.attr()? });
        }
        let change = from_ctime(timestamp(stat.stx_ctime));
        Ok(Node { handle, attr: attr_of(&stat, &mount, change) })
    }
}
