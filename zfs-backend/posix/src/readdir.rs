//! READDIR: from the cached listing if that is valid (see [`crate::listing`]),
//! else from the directory.

use crate::attributes::{attr_of, timestamp};
use crate::change::from_ctime;
use crate::dir_stream::DirStream;
use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::listing::{DirState, Known, MAX_WINDOW_NAMES, Slot, Window};
use crate::name::Name;
use crate::syscall;
use crate::tree::Tree;
use ahash::HashMap;
use rustix::fs::OFlags;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use zgate_io::IoEngine;
use zgate_io::access_check::Rights;
use zgate_io::credentials;
use zgate_store::file_store::{DirEntry, DirPage, Node};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// Attributes carried by entries besides names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nodes {
    Wanted,
    /// The caller may list the directory but not search it.
    Refused,
    Unwanted,
}

/// Names of mount points in a directory whose storage has other workers, with the
/// engines for it.
type Across = HashMap<Vec<u8>, IoEngine>;

/// A page of a listing, and the indices of the entries in it that lie across a mount
/// and have no valid handle and attributes in memory.
type PageAndRest = (DirPage, Vec<usize>);

impl Tree {
    /// Lists entries after `cookie`, at most `max_entries`; may wait for the disk of
    /// `dir`, but for no other one. Mount points whose storage has other workers have
    /// no handle yet, unless one is in memory: their indices are returned, with the
    /// engines for [`Self::mounted_node`].
    pub(crate) fn readdir(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> StoreResult<(DirPage, Vec<(usize, IoEngine)>)> {
        let dir = self.directory(dir)?;
        let nodes = self.may_list(who, &dir, with_nodes)?;
        let across = if nodes == Nodes::Wanted { self.mounted_in(&dir) } else { Across::default() };
        // Names and attributes are the same for every caller who may see them.
        let (page, rest) =
            credentials::as_process(|| self.list(&dir, (cookie, max_entries), nodes, &across))?;
        let own = &dir.mount.engine;
        let engine = |index: usize| across.get(&page.entries[index].name);
        let left = rest.into_iter();
        let left = left.filter_map(|index| Some((index, own.between(engine(index)?))));
        let left = left.collect();
        Ok((page, left))
    }

    /// Returns handle and attributes of the root of what is mounted on the name that is
    /// listed with `cookie`, and notes them in the listing; may wait for its disk.
    pub(crate) fn mounted_node(
        &self,
        dir: &NodeHandle,
        name: &[u8],
        cookie: u64,
    ) -> StoreResult<Node> {
        let dir = self.directory(dir)?;
        let modifications = self.modifications.load(Ordering::Acquire);
        let (node, at) = self.listed_node(&dir, name, Instant::now())?;
        let mut window = dir.listing.window.write().unwrap_or_else(PoisonError::into_inner);
        // The listing may be another one by now.
        let slot = window.as_mut().and_then(|window| window.slot_of(cookie));
        if let Some(slot) = slot.filter(|slot| *slot.listed.name == *name) {
            slot.known = Some(Known { node: Ok(node), at, modifications });
        }
        Ok(node)
    }

    fn mounted_in(&self, dir: &Entry) -> Across {
        if !self.mounts.has_other_stores() {
            return Across::default();
        }
        let path = syscall::path_of(&dir.fd).unwrap_or_default();
        self.mounts.others_in(&path, &dir.mount.engine)
    }

    /// Lists entries from memory, without waiting; `None` if that is not
    /// enough, or the file system may let it wait all the same.
    pub(crate) fn readdir_in_memory(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> Option<StoreResult<DirPage>> {
        let may_ask =
            |dir: &Arc<Entry>| dir.kind == FileKind::Directory && dir.mount.answers_at_once();
        let dir = self.cached(dir).filter(may_ask)?;
        // A worker tells that it has been moved away.
        self.check_place(&dir).ok()?;
        dir.listing.window.read().unwrap_or_else(PoisonError::into_inner).as_ref()?;
        let nodes = match self.inline_as(who, || self.may_list(who, &dir, with_nodes))? {
            Ok(nodes) => nodes,
            Err(error) => return Some(Err(error)),
        };
        let now = Instant::now();
        let state = dir_state(&dir).ok()?;
        let guard = dir.listing.window.read().unwrap_or_else(PoisonError::into_inner);
        let window = guard.as_ref().filter(|window| window.holds(&state, now))?;
        let start = window.start_of(cookie)?;
        let slots = page_of(window, start, max_entries);
        if slots.is_empty() && !window.end {
            return None;
        }
        let modifications = self.modifications.load(Ordering::Acquire);
        let mut entries = Vec::with_capacity(slots.len());
        for slot in slots {
            let node = match nodes {
                Nodes::Wanted => Ok(self.believed(slot, modifications, now)?),
                other => Err(other.why_none()),
            };
            entries.push(entry_of(slot, node));
        }
        let end = window.end && start + entries.len() == window.names.len();
        Some(Ok(DirPage { entries, end }))
    }

    fn may_list(&self, who: &Caller, dir: &Entry, with_nodes: bool) -> StoreResult<Nodes> {
        if with_nodes && self.require(who, dir, Rights::READ | Rights::EXECUTE).is_ok() {
            return Ok(Nodes::Wanted);
        }
        self.require(who, dir, Rights::READ)?;
        Ok(if with_nodes { Nodes::Refused } else { Nodes::Unwanted })
    }

    /// Returns the cached handle and attributes of an entry, if they are still
    /// valid.
    fn believed(&self, slot: &Slot, modifications: u64, now: Instant) -> Option<Node> {
        let known = slot.known.as_ref()?;
        let node = known.node.ok()?;
        if known.holds(modifications, now) {
            return Some(node);
        }
        let attr = self.cached(&node.handle)?.recent_attr(now)?;
        Some(Node { attr, ..node })
    }

    fn list(
        &self,
        dir: &Arc<Entry>,
        (cookie, max): (u64, usize),
        nodes: Nodes,
        across: &Across,
    ) -> StoreResult<PageAndRest> {
        let mut stream = dir.listing.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = match &mut *stream {
            Some(stream) => stream,
            none => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let claim = dir.claim()?;
                none.insert(DirStream::new(syscall::reopen(&dir.fd, flags).or_store()?, claim))
            }
        };
        let start = self.read_names(dir, stream, cookie, max)?;
        if nodes == Nodes::Wanted {
            self.look_at(dir, start, max, across);
        }
        let guard = dir.listing.window.read().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = guard.as_ref() else { return Ok(PageAndRest::default()) };
        let entry = |slot: &Slot| {
            let node = match (&slot.known, nodes) {
                (Some(known), Nodes::Wanted) => known.node,
                (_, other) => Err(other.why_none()),
            };
            entry_of(slot, node)
        };
        let slots = page_of(window, start, max);
        let rest = self.unknown_in(dir, slots, |slot| across.contains_key(&slot.listed.name[..]));
        let entries: Vec<_> = slots.iter().map(entry).collect();
        let end = window.end && start + entries.len() == window.names.len();
        Ok((DirPage { entries, end }, rest))
    }

    /// Returns the indices of those slots of `dir` that `fits` and whose handle and attributes
    /// are missing or no longer valid.
    fn unknown_in(&self, dir: &Entry, slots: &[Slot], fits: impl Fn(&Slot) -> bool) -> Vec<usize> {
        let now = Instant::now();
        let modifications = self.modifications.load(Ordering::Acquire);
        let is_remote = dir.mount.is_remote();
        let is_known = |slot: &Slot| {
            !is_remote && slot.known.is_some_and(|known| known.holds(modifications, now))
        };
        let slots = slots.iter().enumerate();
        slots.filter(|(_, slot)| fits(slot) && !is_known(slot)).map(|(index, _)| index).collect()
    }

    /// Makes the window hold names after `cookie`, `max` of them if it has
    /// room, and returns the index of the first. No other thread changes the
    /// window meanwhile, because the caller has the stream.
    fn read_names(
        &self,
        dir: &Arc<Entry>,
        stream: &DirStream,
        cookie: u64,
        max: usize,
    ) -> StoreResult<usize> {
        let now = Instant::now();
        let state = dir_state(dir)?;
        let mut fresh = Some(Window::new(cookie, state, now, &self.listings));
        let start = {
            let mut window = dir.listing.window.write().unwrap_or_else(PoisonError::into_inner);
            let held = window.as_ref().filter(|window| window.holds(&state, now));
            let start = held.and_then(|window| {
                let start = window.start_of(cookie)?;
                let full = start == window.names.len() && start >= MAX_WINDOW_NAMES;
                (!full || window.end).then_some(start)
            });
            // The old listing is dropped without the lock.
            if start.is_none() {
                std::mem::swap(&mut *window, &mut fresh);
            }
            start
        };
        if start.is_none() {
            drop(fresh);
            stream.go_to(cookie)?;
        }
        let start = start.unwrap_or(0);
        loop {
            {
                let window = dir.listing.window.read().unwrap_or_else(PoisonError::into_inner);
                let Some(window) = window.as_ref() else { return Ok(start) };
                let have = window.names.len();
                if window.end || have >= start.saturating_add(max) || have >= MAX_WINDOW_NAMES {
                    break;
                }
            }
            let read = stream.next_piece();
            let mut window = dir.listing.window.write().unwrap_or_else(PoisonError::into_inner);
            let mut piece = match read {
                Ok(piece) => piece,
                Err(error) => {
                    // The stream's position no longer matches the window.
                    window.take();
                    return Err(error);
                }
            };
            piece.leave_out(|name| self.hides(dir, name));
            if let Some(window) = &mut *window {
                window.append(piece);
            }
        }
        self.listings.keep(dir);
        Ok(start)
    }

    /// Reads handles and attributes of the names of a page where they are
    /// missing, except of those that lie across a mount.
    fn look_at(&self, dir: &Entry, start: usize, max: usize, across: &Across) {
        let now = Instant::now();
        let modifications = self.modifications.load(Ordering::Acquire);
        let unknown: Vec<(usize, Box<[u8]>)> = {
            let window = dir.listing.window.read().unwrap_or_else(PoisonError::into_inner);
            let Some(window) = window.as_ref() else { return };
            let slots = page_of(window, start, max);
            let is_here = |slot: &Slot| !across.contains_key(&slot.listed.name[..]);
            let unknown = self.unknown_in(dir, slots, is_here).into_iter();
            unknown.map(|index| (start + index, slots[index].listed.name.clone())).collect()
        };
        let found: Vec<(usize, Known)> = unknown
            .into_iter()
            .map(|(index, name)| {
                let (node, at) = match self.listed_node(dir, &name, now) {
                    Ok((node, at)) => (Ok(node), at),
                    Err(error) => (Err(error), now),
                };
                (index, Known { node, at, modifications })
            })
            .collect();
        let mut window = dir.listing.window.write().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = &mut *window else { return };
        for (index, known) in found {
            if let Some(slot) = window.names.get_mut(index) {
                slot.known = Some(known);
            }
        }
    }

    /// Returns handle and attributes of a listed name, without opening it, and
    /// the time at which they were read.
    fn listed_node(&self, dir: &Entry, name: &[u8], now: Instant) -> StoreResult<(Node, Instant)> {
        let name = Name::parse(name)?;
        if let Some(handle) = self.handle_nearby(dir, &dir.fd, name.as_c_str())
            && let Some(entry) = self.cached(&handle)
        {
            let (attr, at) = match entry.recent_attr_and_time(now) {
                Some(recent) if !entry.mount.is_remote() => recent,
                _ => (self.live_attr(&entry)?, now),
            };
            return Ok((Node { handle, attr }, at));
        }
        let stat = syscall::stat_at(&dir.fd, name.as_c_str())?;
        let mount = self.mount_at(dir, &stat)?;
        let handle = self.handle_of(&dir.fd, name.as_c_str(), &stat, &mount)?;
        if !mount.kernel_handles {
            self.known_names.remember(&handle, &dir.handle, name.as_bytes());
        }
        if let Some(entry) = self.cached(&handle) {
            return Ok((Node { handle, attr: entry.attr()? }, now));
        }
        let change = from_ctime(timestamp(stat.stx_ctime));
        Ok((Node { handle, attr: attr_of(&stat, &mount, change) }, now))
    }
}

impl Nodes {
    fn why_none(self) -> StoreError {
        if self == Self::Refused { StoreError::AccessDenied } else { StoreError::NotSupported }
    }
}

fn dir_state(dir: &Entry) -> StoreResult<DirState> {
    let generation = dir.generation.load(Ordering::Acquire);
    Ok(DirState::new(generation, &syscall::stat(&dir.fd)?))
}

fn page_of(window: &Window, start: usize, max: usize) -> &[Slot] {
    let end = start.saturating_add(max).min(window.names.len());
    window.names.get(start..end).unwrap_or_default()
}

fn entry_of(slot: &Slot, node: StoreResult<Node>) -> DirEntry {
    let listed = &slot.listed;
    DirEntry { name: listed.name.to_vec(), cookie: listed.cookie, fileid: listed.fileid, node }
}
