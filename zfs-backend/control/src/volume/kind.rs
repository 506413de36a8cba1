//! Kinds and names of volumes.

use super::fault::VolumeError;
use super::limits::MAX_NAME_BYTES;

/// Kind of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeKind {
    /// A file system.
    Filesystem,
    /// A zvol.
    Block,
}

/// Checks the name of a volume, snapshot or owner.
///
/// # Errors
/// The character or length that is not allowed.
pub fn check_name(what: &str, name: &str) -> Result<(), VolumeError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= MAX_NAME_BYTES
        && name.chars().all(allowed);
    if is_name {
        return Ok(());
    }
    Err(VolumeError::invalid(
        format!("{what} {name:?} is not a name"),
        "use letters, digits, - _ and ., begin with a letter or digit, at most 128 bytes",
    ))
}
