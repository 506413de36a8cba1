//! Reasons for which a volume is not made, changed or deleted.

use crate::tool::ToolError;
use std::fmt;

/// Party that is at fault, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request is wrong.
    Invalid,
    /// The dataset is not this owner's, or no volume.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It exists with other parameters.
    Exists,
    /// It is in use, or the change would lose data.
    InUse,
    /// There is no room.
    NoSpace,
    /// ZFS failed or gave no answer.
    Storage,
}

/// A fault, the thing and the reason, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeError {
    /// Party that is at fault, and how.
    pub fault: Fault,
    /// The thing and the reason.
    pub message: String,
    /// The next step.
    pub next_step: String,
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.next_step)
    }
}

impl std::error::Error for VolumeError {}

impl VolumeError {
    /// Creates an error.
    pub fn new(fault: Fault, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { fault, message: message.into(), next_step: next_step.into() }
    }

    /// Creates an error of a wrong request.
    pub fn invalid(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self::new(Fault::Invalid, message, next_step)
    }
}

/// Words of `zfs`, the fault they mean, and the next step. The first match
/// applies.
const WORDS: &[(&str, Fault, &str)] = &[
    ("already exists", Fault::Exists, "choose another name"),
    ("out of space", Fault::NoSpace, "free space, or ask for less"),
    ("no space left", Fault::NoSpace, "free space, or ask for less"),
    ("quota exceeded", Fault::NoSpace, "raise the quota of the parent, or ask for less"),
    ("size is greater than available space", Fault::NoSpace, "free space, or ask for less"),
    ("does not exist", Fault::NotFound, "check its name"),
    (
        "more recent snapshots",
        Fault::InUse,
        "delete the later snapshots and bookmarks, then send the request again",
    ),
    ("is busy", Fault::InUse, "end its users, then send the request again"),
    ("has dependent clones", Fault::InUse, "delete the clones first"),
    ("has children", Fault::InUse, "destroy what is below it first"),
    ("dataset holds", Fault::InUse, "release the holds (`zfs holds`)"),
    ("being held", Fault::InUse, "release the holds (`zfs holds`)"),
    ("bad property", Fault::Invalid, "see zfsprops(7)"),
    ("must be", Fault::Invalid, "see zfsprops(7)"),
    ("invalid property", Fault::Invalid, "see zfsprops(7)"),
    ("does not apply to datasets of this type", Fault::Invalid, "see zfsprops(7)"),
    ("invalid character", Fault::Invalid, "choose another name"),
    ("name is too long", Fault::Invalid, "choose a shorter name"),
    (
        "permission denied",
        Fault::Storage,
        "run the gateway as a user who may change these datasets",
    ),
];

impl From<ToolError> for VolumeError {
    fn from(error: ToolError) -> Self {
        let message = error.to_string();
        let (fault, next_step) = match &error {
            ToolError::Failed { said, .. } => {
                let known = WORDS.iter().find(|(word, ..)| said.contains(word));
                known.map_or((Fault::Storage, "see `zpool status`, then send it again"), |known| {
                    (known.1, known.2)
                })
            }
            ToolError::TimedOut { .. } | ToolError::HeldOpen { .. } | ToolError::Blocked { .. } => {
                (Fault::Storage, "when the pool answers again, send the same request")
            }
            ToolError::Start { .. } => (Fault::Storage, "install zfsutils-linux"),
            ToolError::Answer { .. } => (Fault::Storage, "report this, with the version of ZFS"),
        };
        Self::new(fault, message, next_step)
    }
}
