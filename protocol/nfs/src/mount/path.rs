//! From the path in MNT to a directory of an export.

use crate::namespace::policy::Refusal;
use crate::namespace::{Entry, Export, FileHandle, Flavor, Namespace};
use crate::runtime::{Call, Peer};
use std::sync::Arc;
use zgate_nfs_wire::mount::MountStatus;
use zgate_store::attr::FileKind;

/// An export and the part of the path below its root.
#[derive(Clone, Debug)]
pub struct Target<'p> {
    /// The export.
    pub export: Arc<Export>,
    /// Names not looked up yet.
    pub rest: Vec<&'p [u8]>,
}

/// Splits a path into names. Empty names and `.` are skipped.
///
/// # Errors
/// [`MountStatus::Inval`] for a path that is not absolute, or holds NUL or
/// `..` (which no client sends).
pub fn components(path: &[u8]) -> Result<Vec<&[u8]>, MountStatus> {
    if path.first() != Some(&b'/') || path.contains(&0) {
        return Err(MountStatus::Inval);
    }
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<_> = names.collect();
    if names.iter().any(|name| *name == b"..") { Err(MountStatus::Inval) } else { Ok(names) }
}

/// Finds the export that contains a path: by pseudo path first, then by the
/// path the store was opened at; the longest match wins among exports that name the
/// client, if any does. Exports not offered over NFSv3 are ignored.
#[must_use]
pub fn find<'p>(namespace: &Namespace, names: &[&'p [u8]], peer: &Peer) -> Option<Target<'p>> {
    let by = |path_of: fn(&Export) -> &str| {
        namespace
            .exports()
            .filter(|export| export.versions.v3)
            .filter_map(|export| {
                let own = components(path_of(export).as_bytes()).ok()?;
                let (head, rest) = names.split_at_checked(own.len())?;
                (head == own).then_some((own.len(), export, rest))
            })
            .max_by_key(|(matched, export, _)| {
                (export.names(peer), *matched, std::cmp::Reverse(export.id))
            })
            .map(|(_, export, rest)| Target { export: Arc::clone(export), rest: rest.to_vec() })
    };
    by(|export| &export.pseudo_path).or_else(|| by(|export| &export.source))
}

/// The flavours a caller may use in an export, the preferred one first. Clients
/// call MNT in the clear even if they then use the file handle over TLS, as Linux
/// does; a handle alone gives no access.
#[must_use]
pub fn flavors(export: &Export, call: &Call) -> Vec<u32> {
    let rule = export.rule_for(&call.peer);
    rule.map(|rule| rule.flavors.iter().map(Flavor::number).collect()).unwrap_or_default()
}

/// Admits a caller, if necessary as the anonymous user: clients call MNT to learn
/// the accepted flavours, and in the clear for what they use over TLS.
///
/// # Errors
/// [`MountStatus::Acces`].
pub fn enter(export: &Export, call: &Call) -> Result<Entry, MountStatus> {
    match export.admit(call) {
        Err(
            Refusal::WrongFlavor
            | Refusal::Unprotected(_)
            | Refusal::WrongCertificate
            | Refusal::UnknownUser
            | Refusal::UnknownGroups,
        ) => {
            call.refused.take();
            export.enter_unprotected(&call.peer)
        }
        decided => decided,
    }
    .map_err(|_| MountStatus::Acces)
}

/// Looks up the rest of the path. Symbolic links are not followed: the client
/// resolves them.
///
/// # Errors
/// [`MountStatus::NotDir`] if the path does not end at a directory, otherwise
/// the store's error.
pub async fn walk(target: &Target<'_>, entry: &Entry) -> Result<FileHandle, MountStatus> {
    let store = &target.export.store;
    let mut node = store.root();
    for name in &target.rest {
        let child = store.lookup(&entry.who, &node, name).await?;
        if child.attr.kind != FileKind::Directory {
            return Err(MountStatus::NotDir);
        }
        node = child.handle;
    }
    Ok(FileHandle::Node(target.export.id, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_without_surprises() {
        let names = |path: &'static str| components(path.as_bytes());
        assert_eq!(names("//a/./b/"), Ok(vec![&b"a"[..], b"b"]));
        assert_eq!(names("/"), Ok(vec![]));
        assert_eq!(names("a"), Err(MountStatus::Inval));
        assert_eq!(names(""), Err(MountStatus::Inval));
        assert_eq!(names("/a/../b"), Err(MountStatus::Inval));
        assert_eq!(names("/a\0"), Err(MountStatus::Inval));
    }
}
