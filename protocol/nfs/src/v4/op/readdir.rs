//! READDIR (RFC 8881 §18.23).

use super::Rule;
use crate::limits::MAX_READDIR_BYTES;
use crate::namespace::{FileHandle, Namespace, Object, PseudoId};
use crate::v4::attrs::encode::{encode_error, encode_known};
use crate::v4::attrs::listed::ListedAttrs;
use crate::v4::attrs::table::only_readable;
use crate::v4::attrs::values::{handle_of_child, pseudo_version};
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::attr::{MOUNTED_ON_FILEID, RDATTR_ERROR};
use zgate_nfs_wire::v4::op::Readdir;
use zgate_nfs_wire::v4::op::readdir::{Args, Entry, Res};
use zgate_nfs_wire::v4::{Bitmap, Fattr, Status, Verifier};
use zgate_store::StoreError;
use zgate_store::file_store::DirEntry;
use zgate_xdr::{Encode, Encoder, Mark};

/// Most entries of one request to the store.
const PAGE_ENTRIES: usize = 1024;
/// Bytes of a typical entry without its attributes, and of one attribute.
const ENTRY_BYTES: usize = 48;
const ATTRIBUTE_BYTES: usize = 8;
/// Bytes of the result beside the entries.
const FRAME_BYTES: usize = 8 + 4 + 4;
/// READDIR4resok of an empty directory.
const EMPTY_BYTES: u32 = FRAME_BYTES as u32;

impl Rule for Readdir {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let current = cx.current()?.clone();
        if !only_readable(&args.want, cx.minor) {
            return Err(Status::Inval.into());
        }
        // Cookies 1 and 2 are never returned (RFC 8881 §18.23.3).
        if matches!(args.cookie, 1 | 2) {
            return Err(Status::BadCookie.into());
        }
        // Not even an empty directory fits (RFC 7530 §16.24.4).
        if args.maxcount < EMPTY_BYTES {
            return Err(Status::Toosmall.into());
        }
        let asked = args.maxcount.min(MAX_READDIR_BYTES) as usize;
        let given = asked.min(cx.reply_room.saturating_sub(64));
        let room = given.saturating_sub(FRAME_BYTES);
        let mut page = Page { room, entries: Encoder::with_capacity(room), full: false };
        let eof = match &current {
            Current::Pseudo(id) => {
                check_verifier(&args, pseudo_verifier(cx))?;
                list_pseudo(cx, *id, &args, &mut page).await?
            }
            Current::Node { .. } => {
                let dir = cx.object(Status::Serverfault)?;
                super::lookup::require_directory(&dir).await?;
                check_verifier(&args, [0; 8])?;
                list(cx, &dir, &args, &mut page).await?
            }
        };
        if page.entries.is_empty() && !eof {
            return Err(cx.no_room_for_entry(asked, given).into());
        }
        let verifier = match &current {
            Current::Pseudo(_) => pseudo_verifier(cx),
            // Cookies stay valid as long as the directory exists.
            Current::Node { .. } => [0; 8],
        };
        let encoded = page.entries.finish_bytes().unwrap_or_default();
        Ok(Res { verifier, entries: Vec::new(), encoded, eof })
    }
}

fn pseudo_verifier(cx: &Cx<'_>) -> Verifier {
    pseudo_version(cx).to_be_bytes()
}

fn check_verifier(args: &Args, verifier: Verifier) -> Result<(), Status> {
    if args.cookie != 0 && args.verifier != verifier { Err(Status::NotSame) } else { Ok(()) }
}

/// Encoded entries, as many as fit.
struct Page {
    room: usize,
    entries: Encoder,
    full: bool,
}

impl Page {
    fn left(&self) -> usize {
        self.room - self.entries.len()
    }

    fn push(&mut self, entry: &Entry) {
        let mark = self.entries.mark();
        entry.encode(&mut self.entries);
        self.fit(mark);
    }

    /// Removes the bytes after `mark` if they do not fit.
    fn fit(&mut self, mark: Mark) {
        if self.entries.len() > self.room {
            self.entries.rollback(mark);
            self.full = true;
        }
    }

    /// Writes an entry of a store; false if it must be encoded separately, and
    /// nothing is written.
    fn push_listed(
        &mut self,
        cx: &Cx<'_>,
        dir: &Object,
        attrs: &mut ListedAttrs,
        entry: &DirEntry,
    ) -> bool {
        let Ok(node) = &entry.node else { return false };
        let mark = self.entries.mark();
        self.entries.u32(1);
        self.entries.u64(entry.cookie);
        self.entries.opaque(&entry.name);
        if !attrs.write(cx, dir, node, &mut self.entries) {
            self.entries.rollback(mark);
            return false;
        }
        self.fit(mark);
        true
    }
}

async fn list(cx: &Cx<'_>, dir: &Object, args: &Args, page: &mut Page) -> Result<bool, Status> {
    let store = &dir.export.store;
    let with_nodes = !names_suffice(&args.want);
    let usual_bytes = ENTRY_BYTES + ATTRIBUTE_BYTES * args.want.iter().count();
    let mut cookie = args.cookie;
    loop {
        let guess = (page.left() / usual_bytes).clamp(1, PAGE_ENTRIES);
        let batch = store.readdir(dir.who(), &dir.node, cookie, guess, with_nodes).await;
        let batch = batch.map_err(|error| refused_at(cookie, error))?;
        let first = batch.entries.iter().find_map(|entry| entry.node.as_ref().ok());
        let mut listed = first.and_then(|node| ListedAttrs::new(cx, dir, node, &args.want));
        for entry in batch.entries {
            cookie = entry.cookie;
            let written =
                listed.as_mut().is_some_and(|attrs| page.push_listed(cx, dir, attrs, &entry));
            if !written && let Some(entry) = encode_entry(cx, dir, entry, &args.want).await? {
                page.push(&entry);
            }
            if page.full {
                return Ok(false);
            }
        }
        if batch.end {
            return Ok(true);
        }
    }
}

/// The status of a listing that fails. A position that the file system refuses is none that
/// it has given (NFS4ERR_BAD_COOKIE, RFC 8881 §15.2).
fn refused_at(cookie: u64, error: StoreError) -> Status {
    match error {
        StoreError::Invalid if cookie != 0 => Status::BadCookie,
        other => other.into(),
    }
}

/// An entry's attributes. An entry removed in the meantime is left out; an
/// error is returned with rdattr_error, or fails the whole operation (RFC 8881
/// §18.23.3).
async fn encode_entry(
    cx: &Cx<'_>,
    dir: &Object,
    entry: DirEntry,
    want: &Bitmap,
) -> Result<Option<Entry>, Status> {
    let attrs = match entry.node {
        Ok(node) => {
            let current = Current::Node {
                export: dir.export.clone(),
                node: node.handle,
                entry: dir.entry.clone(),
            };
            match encode_known(cx, &current, Some(node.attr), want).await {
                Ok(attrs) => attrs,
                Err(Status::Stale | Status::Noent) => return Ok(None),
                Err(status) if want.contains(RDATTR_ERROR) => encode_error(status),
                Err(status) => return Err(status),
            }
        }
        // The store was not asked for more: this is no error of the entry.
        Err(_) if names_suffice(want) => names_only(&entry, want),
        Err(StoreError::NotFound | StoreError::Stale) => return Ok(None),
        Err(error) if want.contains(RDATTR_ERROR) => encode_error(error.into()),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Entry { cookie: entry.cookie, name: entry.name.as_slice().into(), attrs }))
}

fn only_mounted_on(want: &Bitmap) -> bool {
    want.iter().all(|attribute| attribute == MOUNTED_ON_FILEID)
}

/// Returns whether the names of a directory have all these attributes with them.
fn names_suffice(want: &Bitmap) -> bool {
    want.iter().all(|attribute| matches!(attribute, RDATTR_ERROR | MOUNTED_ON_FILEID))
}

/// The attributes that come with a name, in the order of their numbers.
fn names_only(entry: &DirEntry, want: &Bitmap) -> Fattr {
    let (mut mask, mut values) = (Bitmap::default(), Vec::new());
    if want.contains(RDATTR_ERROR) {
        mask.set(RDATTR_ERROR);
        values.extend((Status::Ok as u32).to_be_bytes());
    }
    if want.contains(MOUNTED_ON_FILEID) {
        mask.set(MOUNTED_ON_FILEID);
        values.extend(entry.fileid.to_be_bytes());
    }
    Fattr { mask, values: zgate_xdr::Opaque(values) }
}

async fn list_pseudo(
    cx: &Cx<'_>,
    id: PseudoId,
    args: &Args,
    page: &mut Page,
) -> Result<bool, Status> {
    for (at, (name, child)) in cx.namespace.children(id).into_iter().enumerate() {
        let cookie = at as u64 + 3;
        if cookie <= args.cookie {
            continue;
        }
        let Some(handle) = handle_of_child(&cx.namespace, child) else { continue };
        if let FileHandle::Pseudo(id) = handle
            && !cx.namespace.leads_somewhere(id, &cx.call.peer)
        {
            continue;
        }
        let entered = cx.enter(handle);
        // It was not asked for by name.
        cx.call.refused.take();
        let attrs = match entered {
            Ok(current) => encode_known(cx, &current, None, &args.want).await,
            // Closed to this caller: it is hidden.
            Err(Status::Stale | Status::Noent | Status::Access) => continue,
            Err(status) => Err(status),
        };
        let attrs = match attrs {
            Ok(attrs) => attrs,
            Err(status) if args.want.contains(RDATTR_ERROR) => encode_error(status),
            Err(status) => match handle {
                FileHandle::Node(export, _) if only_mounted_on(&args.want) => Fattr {
                    mask: Bitmap::of(&[MOUNTED_ON_FILEID]),
                    values: zgate_xdr::Opaque(Namespace::mounted_on(export).to_be_bytes().to_vec()),
                },
                _ => return Err(status),
            },
        };
        page.push(&Entry { cookie, name: name.as_bytes().into(), attrs });
        if page.full {
            return Ok(false);
        }
    }
    Ok(true)
}
