//! READDIR (RFC 8881 §18.23).

use super::{Failure, Operation};
use crate::limits::MAX_READDIR_BYTES;
use crate::namespace::{Namespace, Place, PseudoId};
use crate::v4::attrs::encode::{encode_error, encode_known};
use crate::v4::attrs::facts::place_of_child;
use crate::v4::attrs::number::{FILEID, MOUNTED_ON_FILEID, RDATTR_ERROR};
use crate::v4::attrs::table::only_readable;
use crate::v4::cx::{Current, Cx, Object};
use crate::v4::wire::{Bitmap, Component, Fattr, OpNum, Status, Verifier};
use zgate_store::file_store::DirEntry;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// Entries asked of the store at a time.
const PAGE_ENTRIES: usize = 128;
/// Bytes of the result around the entries.
const FRAME_BYTES: usize = 8 + 4 + 4;
/// READDIR4resok of an empty directory.
const EMPTY_BYTES: u32 = FRAME_BYTES as u32;

xdr_struct! {
    /// READDIR4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Where to go on; 0: the beginning.
        pub cookie: u64,
        /// Came with the cookie.
        pub verifier: Verifier,
        /// Most bytes of names and cookies; a hint.
        pub dircount: u32,
        /// Most bytes of the result.
        pub maxcount: u32,
        /// Attributes of each entry.
        pub want: Bitmap,
    }
}

/// entry4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Resume after it.
    pub cookie: u64,
    /// Its name.
    pub name: Component,
    /// Its attributes.
    pub attrs: Fattr,
}

impl Entry {
    fn wire_bytes(&self) -> usize {
        let padded = |len: usize| len.next_multiple_of(4);
        let words = self.attrs.mask.iter().last().map_or(0, |bit| bit as usize / 32 + 1);
        4 + 8
            + 4
            + padded(self.name.0.len())
            + 4
            + 4 * words
            + 4
            + padded(self.attrs.values.0.len())
    }
}

/// READDIR4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// cookieverf.
    pub verifier: Verifier,
    /// Entries.
    pub entries: Vec<Entry>,
    /// Whether these are the last.
    pub eof: bool,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.verifier.encode(e);
        for entry in &self.entries {
            e.u32(1);
            e.u64(entry.cookie);
            entry.name.encode(e);
            entry.attrs.encode(e);
        }
        e.u32(0);
        self.eof.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let verifier = Decode::decode(d)?;
        let mut entries = Vec::new();
        while bool::decode(d)? {
            let cookie = d.u64()?;
            entries.push(Entry { cookie, name: Decode::decode(d)?, attrs: Decode::decode(d)? });
        }
        Ok(Self { verifier, entries, eof: Decode::decode(d)? })
    }
}

/// The operation.
pub struct Readdir;

impl Operation for Readdir {
    const NUM: OpNum = OpNum::Readdir;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let current = cx.current()?.clone();
        if !only_readable(&args.want, cx.minor) {
            return Err(Status::Inval.into());
        }
        // Cookies 1 and 2 are never given out (RFC 8881 §18.23.3).
        if matches!(args.cookie, 1 | 2) {
            return Err(Status::BadCookie.into());
        }
        // Not even an empty directory fits (RFC 7530 §16.24.4).
        if args.maxcount < EMPTY_BYTES {
            return Err(Status::Toosmall.into());
        }
        let mut page = Page {
            room: (args.maxcount.min(MAX_READDIR_BYTES) as usize)
                .min(cx.reply_room.saturating_sub(64))
                .saturating_sub(FRAME_BYTES),
            entries: Vec::new(),
            full: false,
        };
        let eof = match &current {
            Current::Pseudo(id) => {
                check_verifier(&args, pseudo_verifier(cx))?;
                list_pseudo(cx, *id, &args, &mut page).await?
            }
            Current::Node { .. } => {
                let dir = cx.object(Status::Serverfault)?;
                super::lookup::check_directory(&dir).await.map_err(|_| Status::Notdir)?;
                check_verifier(&args, [0; 8])?;
                list(cx, &dir, &args, &mut page).await?
            }
        };
        if page.entries.is_empty() && !eof {
            return Err(Status::Toosmall.into());
        }
        let verifier = match &current {
            Current::Pseudo(_) => pseudo_verifier(cx),
            // Cookies stay good as long as the directory lives.
            Current::Node { .. } => [0; 8],
        };
        Ok(Res { verifier, entries: page.entries, eof })
    }
}

fn pseudo_verifier(cx: &Cx<'_>) -> Verifier {
    cx.namespace.generation.to_be_bytes()
}

fn check_verifier(args: &Args, verifier: Verifier) -> Result<(), Status> {
    if args.cookie != 0 && args.verifier != verifier { Err(Status::NotSame) } else { Ok(()) }
}

struct Page {
    room: usize,
    entries: Vec<Entry>,
    full: bool,
}

impl Page {
    fn push(&mut self, entry: Entry) {
        let bytes = entry.wire_bytes();
        if self.full || bytes > self.room {
            self.full = true;
            return;
        }
        self.room -= bytes;
        self.entries.push(entry);
    }
}

async fn list(cx: &Cx<'_>, dir: &Object, args: &Args, page: &mut Page) -> Result<bool, Status> {
    let store = &dir.export.store;
    let with_nodes = args
        .want
        .iter()
        .any(|attribute| !matches!(attribute, FILEID | MOUNTED_ON_FILEID | RDATTR_ERROR))
        || args.want.contains(FILEID);
    let mut cookie = args.cookie;
    loop {
        let guess = (page.room / 32).clamp(1, PAGE_ENTRIES);
        let batch = store.readdir(dir.who(), &dir.node, cookie, guess, with_nodes).await?;
        for entry in batch.entries {
            cookie = entry.cookie;
            if let Some(entry) = encode_entry(cx, dir, entry, &args.want).await? {
                page.push(entry);
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

/// An entry's attributes. One that vanished meanwhile is left out; one that
/// cannot be read is said so, or fails the whole (RFC 8881 §18.23.3).
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
            encode_known(cx, &current, Some(node.attr), want).await?
        }
        Err(zgate_store::StoreError::NotFound | zgate_store::StoreError::Stale) => return Ok(None),
        Err(error) if want.contains(RDATTR_ERROR) => encode_error(error.into()),
        Err(_) if want.is_empty() || only_mounted_on(want) => mounted_on_only(&entry, want),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Entry { cookie: entry.cookie, name: entry.name.as_slice().into(), attrs }))
}

fn only_mounted_on(want: &Bitmap) -> bool {
    want.iter().all(|attribute| attribute == MOUNTED_ON_FILEID)
}

fn mounted_on_only(entry: &DirEntry, want: &Bitmap) -> Fattr {
    if want.is_empty() {
        return Fattr::default();
    }
    let values = entry.fileid.to_be_bytes().to_vec();
    Fattr { mask: Bitmap::of(&[MOUNTED_ON_FILEID]), values: zgate_xdr::Opaque(values) }
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
        let Some(place) = place_of_child(&cx.namespace, child) else { continue };
        let attrs = match cx.enter(place) {
            Ok(current) => encode_known(cx, &current, None, &args.want).await,
            // Closed to this caller: it does not exist.
            Err(Status::Stale | Status::Noent) => continue,
            Err(status) => Err(status),
        };
        let attrs = match attrs {
            Ok(attrs) => attrs,
            Err(status) if args.want.contains(RDATTR_ERROR) => encode_error(status),
            Err(status) => match place {
                Place::Node(export, _) if only_mounted_on(&args.want) => Fattr {
                    mask: Bitmap::of(&[MOUNTED_ON_FILEID]),
                    values: zgate_xdr::Opaque(Namespace::mounted_on(export).to_be_bytes().to_vec()),
                },
                _ => return Err(status),
            },
        };
        page.push(Entry { cookie, name: name.as_bytes().into(), attrs });
        if page.full {
            return Ok(false);
        }
    }
    Ok(true)
}
