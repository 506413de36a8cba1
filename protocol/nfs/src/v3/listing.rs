//! Pages of a directory for READDIR and READDIRPLUS: cookies, `.` and `..`, and
//! the size limits of a reply.

use super::cx::Object;
use super::proc::lookup;
use crate::limits::MAX_READDIR_BYTES;
use zgate_nfs_wire::v3::{Attributes, Fh3, Status};
use zgate_store::StoreError;
use zgate_store::attr::{Attr, FileKind};
use zgate_store::file_store::{DirEntry, Node};

/// Cookie after `.`; a store's own cookies are above these two.
const AFTER_THIS: u64 = 1;
/// Cookie after `..`.
const AFTER_PARENT: u64 = 2;

/// Size of an encoded fattr3 in bytes.
const ATTRIBUTES_BYTES: usize = 84;
/// Size of the result without its entries: attributes of the directory,
/// verifier, end of the list, eof; in bytes.
const FRAME_BYTES: usize = 4 + ATTRIBUTES_BYTES + 8 + 4 + 4;
/// Most entries of one request to the store.
const MAX_ENTRIES: usize = 1024;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Number of the object.
    pub fileid: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Position after it.
    pub cookie: u64,
    /// Handle and attributes.
    pub node: Option<(Fh3, Attributes)>,
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Its entries.
    pub items: Vec<Item>,
    /// True if they reach the end.
    pub eof: bool,
}

/// Size limits of a page.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes left of the whole result.
    result_bytes: usize,
    /// Bytes left of numbers, names and cookies; the first entry may exceed
    /// them.
    name_bytes: usize,
    /// Handles and attributes are requested.
    plus: bool,
}

impl Budget {
    /// For READDIR with this `count`.
    #[must_use]
    pub fn plain(count: u32) -> Self {
        let result_bytes = result_room(count);
        Self { result_bytes, name_bytes: usize::MAX, plus: false }
    }

    /// For READDIRPLUS with this `dircount` and `maxcount`.
    #[must_use]
    pub fn plus(dir_count: u32, max_count: u32) -> Self {
        let result_bytes = result_room(max_count);
        Self { result_bytes, name_bytes: dir_count as usize, plus: true }
    }

    /// Subtracts an entry from the budget; `false` if it does not fit.
    fn take(&mut self, item: &Item, first: bool) -> bool {
        let names = 4 + 8 + 4 + item.name.len().next_multiple_of(4) + 8;
        let node = match &item.node {
            _ if !self.plus => 0,
            None => 4 + 4,
            Some((fh, _)) => 4 + ATTRIBUTES_BYTES + 4 + 4 + fh.0.len().next_multiple_of(4),
        };
        if names + node > self.result_bytes || (names > self.name_bytes && !first) {
            return false;
        }
        self.result_bytes -= names + node;
        self.name_bytes = self.name_bytes.saturating_sub(names);
        true
    }

    /// Number of entries to request from the store, based on an estimated name
    /// length.
    fn entries_worth_asking(&self) -> usize {
        let names = 4 + 8 + 4 + 16 + 8;
        let all = if self.plus { names + 4 + ATTRIBUTES_BYTES + 4 + 4 + 40 } else { names };
        (self.result_bytes / all).min(self.name_bytes / names).clamp(1, MAX_ENTRIES)
    }
}

fn result_room(count: u32) -> usize {
    (count.min(MAX_READDIR_BYTES) as usize).saturating_sub(FRAME_BYTES)
}

/// Lists `dir` from `cookie` on, within `budget`.
///
/// # Errors
/// [`Status::NotDir`], [`Status::TooSmall`] if not even one entry fits,
/// [`Status::BadCookie`], or the store's error.
pub async fn list(
    dir: &Object,
    attr: &Attr,
    cookie: u64,
    mut budget: Budget,
) -> Result<Listing, Status> {
    if attr.kind != FileKind::Directory {
        return Err(Status::NotDir);
    }
    let mut listing = Listing::default();
    let mut full = false;
    if cookie < AFTER_THIS {
        let item = dot(dir, attr, budget.plus);
        full = !listing.push(item, &mut budget);
    }
    if !full && cookie < AFTER_PARENT {
        let item = dot_dot(dir, attr, budget.plus).await?;
        full = !listing.push(item, &mut budget);
    }
    if !full {
        let after = if cookie <= AFTER_PARENT { 0 } else { cookie };
        listing.fill(dir, attr, after, &mut budget).await?;
    }
    if listing.items.is_empty() && !listing.eof { Err(Status::TooSmall) } else { Ok(listing) }
}

impl Listing {
    fn push(&mut self, item: Item, budget: &mut Budget) -> bool {
        let fits = budget.take(&item, self.items.is_empty());
        if fits {
            self.items.push(item);
        }
        fits
    }

    async fn fill(
        &mut self,
        dir: &Object,
        attr: &Attr,
        mut after: u64,
        budget: &mut Budget,
    ) -> Result<(), Status> {
        loop {
            let most = budget.entries_worth_asking();
            let page = dir.store().readdir(&dir.who, &dir.node, after, most, budget.plus).await;
            let page = page.map_err(|error| refused_at(after, error))?;
            let none = page.entries.is_empty();
            for entry in page.entries {
                after = entry.cookie;
                if !self.push(item(dir, attr, entry), budget) {
                    return Ok(());
                }
            }
            if page.end {
                self.eof = true;
                return Ok(());
            }
            if none {
                // An empty page without the end would make the client repeat
                // the request for ever.
                return Err(Status::ServerFault);
            }
        }
    }
}

/// The status of a listing that fails. A position that the file system refuses is none that
/// it has given (RFC 1813 §3.3.16).
fn refused_at(after: u64, error: StoreError) -> Status {
    match error {
        StoreError::Invalid if after != 0 => Status::BadCookie,
        other => other.into(),
    }
}

fn dot(dir: &Object, attr: &Attr, plus: bool) -> Item {
    let node = Node { handle: dir.node, attr: *attr };
    Item {
        fileid: attr.fileid,
        name: b".".to_vec(),
        cookie: AFTER_THIS,
        node: plus.then(|| on_wire(dir, &node)),
    }
}

async fn dot_dot(dir: &Object, attr: &Attr, plus: bool) -> Result<Item, Status> {
    // A parent that the caller may not see is still listed, as in a local
    // readdir.
    let parent = lookup::parent(dir).await.ok();
    Ok(Item {
        fileid: parent.map_or(attr.fileid, |node| node.attr.fileid),
        name: b"..".to_vec(),
        cookie: AFTER_PARENT,
        node: parent.filter(|_| plus).map(|node| on_wire(dir, &node)),
    })
}

fn item(dir: &Object, dir_attr: &Attr, entry: DirEntry) -> Item {
    // The root of another file system is left for LOOKUP: its number differs
    // from the one listed here, and clients would consider it a different
    // object.
    let node = entry.node.ok().filter(|node| node.attr.fsid == dir_attr.fsid);
    Item {
        fileid: entry.fileid,
        name: entry.name,
        cookie: entry.cookie,
        node: node.map(|node| on_wire(dir, &node)),
    }
}

fn on_wire(dir: &Object, node: &Node) -> (Fh3, Attributes) {
    (dir.fh_of(node.handle), dir.attributes_of(&node.attr))
}
