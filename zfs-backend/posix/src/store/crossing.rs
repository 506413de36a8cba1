//! Operations that may lead across a mount, into storage that other workers wait for.
//! They begin on the workers of the directory, and go on on those of both only if they
//! have to: storage that hangs keeps no worker of other storage.

use super::PosixStore;
use zgate_store::file_store::{CreateMode, CreatedFile, Node};
use zgate_store::{Caller, NodeHandle, SetAttr, StoreResult};

impl PosixStore {
    /// Looks a name up.
    pub(super) async fn look_up(
        &self,
        who: &Caller,
        dir: NodeHandle,
        name: &[u8],
    ) -> StoreResult<Node> {
        let asked = name.to_vec();
        match self.by(who, &dir, move |tree, who| tree.lookup(who, &dir, &asked)).await? {
            Ok(node) => Ok(node),
            Err(engine) => {
                let asked = name.to_vec();
                self.on(engine, who, move |tree, who| tree.lookup_across(who, &dir, &asked)).await
            }
        }
    }

    /// Looks the parent of a directory up.
    pub(super) async fn look_up_parent(&self, who: &Caller, dir: NodeHandle) -> StoreResult<Node> {
        match self.by(who, &dir, move |tree, who| tree.lookup_parent(who, &dir)).await? {
            Ok(node) => Ok(node),
            Err(engine) => {
                self.on(engine, who, move |tree, who| tree.parent_across(who, &dir)).await
            }
        }
    }

    /// Creates a regular file, or finds the one that has the name.
    pub(super) async fn create_or_find(
        &self,
        who: &Caller,
        dir: NodeHandle,
        name: &[u8],
        mode: CreateMode,
        attrs: &SetAttr,
    ) -> StoreResult<CreatedFile> {
        let (asked, wanted) = (name.to_vec(), attrs.clone());
        let made = self
            .change(who, &dir, move |tree, who| tree.create_file(who, &dir, &asked, mode, &wanted));
        match made.await? {
            Ok(made) => Ok(made),
            Err(engine) => {
                let (asked, wanted) = (name.to_vec(), attrs.clone());
                self.on(engine, who, move |tree, who| {
                    tree.found_across(who, &dir, &asked, mode, &wanted)
                })
                .await
            }
        }
    }
}
