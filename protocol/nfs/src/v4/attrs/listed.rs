//! Attributes of many objects of one export: what is the same for all of them
//! is worked out once, and each is written right where it goes.

use super::encode::write_one;
use super::facts::{Facts, asks_data, asks_space};
use super::number::{ACL, FILEHANDLE};
use super::table::supported;
use crate::namespace::{Fh, Place};
use crate::v4::cx::{Cx, Object};
use crate::v4::wire::Bitmap;
use zgate_store::FileKind;
use zgate_store::file_store::{FsStat, Node};
use zgate_xdr::{Encode, Encoder};

/// Writes the attributes of one object after the other.
pub struct ListedAttrs {
    /// What is written, in order.
    attributes: Vec<u32>,
    mask: Bitmap,
    facts: Facts,
    /// Regular files must be asked about one by one: somebody may hold newer
    /// data under a delegation.
    delegated: bool,
}

impl ListedAttrs {
    /// For objects of the export of `dir`, of which `first` is one. `None`
    /// when more than their attributes is wanted.
    #[must_use]
    pub fn new(cx: &Cx<'_>, dir: &Object, first: &Node, want: &Bitmap) -> Option<Self> {
        if want.contains(ACL) || asks_space(want) {
            return None;
        }
        let traits = dir.export.store.traits();
        let mask =
            want.intersection(&supported(cx.minor, &traits, dir.export.gives_delegated_times()));
        let facts = Facts {
            attr: first.attr,
            fh: Fh(Vec::new()),
            export: Some(dir.export.clone()),
            traits,
            space: FsStat::default(),
            acl: None,
        };
        let delegated = asks_data(want) && cx.server.state.has_delegations();
        Some(Self { attributes: mask.iter().collect(), mask, facts, delegated })
    }

    /// Writes the fattr4 of an object; false, and nothing is written, when it
    /// has to be encoded by itself.
    pub fn write(&mut self, cx: &Cx<'_>, dir: &Object, node: &Node, e: &mut Encoder) -> bool {
        if self.delegated && node.attr.kind == FileKind::Regular {
            return false;
        }
        self.facts.attr = node.attr;
        if self.mask.contains(FILEHANDLE) {
            let fh = Place::Node(dir.export.id, node.handle).to_fh();
            self.facts.fh = fh;
        }
        let begin = e.mark();
        self.mask.encode(e);
        let length = e.mark();
        e.u32(0);
        let before = e.len();
        for attribute in &self.attributes {
            if !write_one(cx, &self.facts, *attribute, e) {
                // It has one attribute less than the others.
                e.rollback(begin);
                return false;
            }
        }
        // Attributes are whole words: nothing is to be padded.
        let values = e.len() - before;
        debug_assert_eq!(values % 4, 0);
        e.patch_u32(length, values as u32);
        true
    }
}
