//! Attributes of many objects of one export: common values are computed once,
//! and each attribute is written directly into the reply.

use super::encode::write_one;
use super::table::supported;
use super::values::{AttributeValues, asks_data, asks_principals, asks_space};
use crate::namespace::{FileHandle, Object};
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Bitmap;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::attr::FILEHANDLE;
use zgate_store::FileKind;
use zgate_store::file_store::{FsStat, Node};
use zgate_xdr::{Encode, Encoder};

/// Writes the attributes of one object after the other.
pub struct ListedAttrs {
    /// The attributes to be written, in order.
    attributes: Vec<u32>,
    mask: Bitmap,
    values: AttributeValues,
    /// Regular files must be handled one by one: a client may hold newer data
    /// under a delegation.
    delegated: bool,
}

impl ListedAttrs {
    /// For objects of the export of `dir`, of which `first` is one. `None` if
    /// `want` contains more than plain attributes.
    #[must_use]
    pub fn new(cx: &Cx<'_>, dir: &Object, first: &Node, want: &Bitmap) -> Option<Self> {
        // The ACL is one of those.
        if asks_space(want) {
            return None;
        }
        if dir.entry.ids.is_none() && asks_principals(want) && cx.server.runtime.names().is_some() {
            return None;
        }
        let traits = dir.export.store.traits();
        let mask =
            want.intersection(&supported(cx.minor, &traits, dir.export.gives_delegated_times()));
        let values = AttributeValues {
            attr: first.attr,
            fh: Fh(Vec::new()),
            export: Some(dir.export.clone()),
            traits,
            space: FsStat::default(),
            acl: None,
            owner: None,
            owner_group: None,
            names: Vec::new(),
        };
        let delegated = asks_data(want) && cx.server.state.has_delegations();
        Some(Self { attributes: mask.iter().collect(), mask, values, delegated })
    }

    /// Writes the fattr4 of an object; false if it must be encoded separately,
    /// and nothing is written.
    pub fn write(&mut self, cx: &Cx<'_>, dir: &Object, node: &Node, e: &mut Encoder) -> bool {
        if self.delegated && node.attr.kind == FileKind::Regular {
            return false;
        }
        self.values.attr = node.attr;
        if let Some(ids) = &dir.entry.ids {
            ids.show(&mut self.values.attr);
        }
        if self.mask.contains(FILEHANDLE) {
            let fh = FileHandle::Node(dir.export.id, node.handle).to_fh();
            self.values.fh = fh;
        }
        let begin = e.mark();
        self.mask.encode(e);
        let length = e.mark();
        e.u32(0);
        let before = e.len();
        for attribute in &self.attributes {
            if !write_one(cx, &self.values, *attribute, e) {
                // The object has one attribute less than the others.
                e.rollback(begin);
                return false;
            }
        }
        // Attributes are whole words: no padding is needed.
        let values = e.len() - before;
        debug_assert_eq!(values % 4, 0);
        e.patch_u32(length, values as u32);
        true
    }
}
