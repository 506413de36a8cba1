//! Backing storage of a LUN as a [`zgate_store::BlockStore`]: a zvol, another
//! block device, or a regular file. [`BlockVolume::open`] determines which.
//!
//! * Files use the page cache unless O_DIRECT is configured; devices bypass it
//!   unless they cannot.
//! * A volume is held exclusively: opening it detects a second gateway, or a
//!   mount of the same device.
//! * `FUA` is RWF_DSYNC, `sync` is fdatasync: both reach the medium if the
//!   medium's own cache honours flushes.
//!
//! `open` finds and locks the device or file; `examine` tells what it would find; `device` and `file` read its
//! geometry; `aligned` satisfies O_DIRECT; `clearing` discards and zeroes;
//! `extents` lists allocated ranges; `volume` is the store; `watch` detects
//! changes made elsewhere.

mod aligned;
mod backing;
mod clearing;
mod device;
mod errno;
mod examine;
mod exclusive;
mod extents;
mod file;
mod freed;
mod lend;
mod open;
mod options;
mod size;
mod span;
mod volume;
mod watch;

pub use backing::BackingKind;
pub use device::zvol_geometry;
pub use examine::{Examined, Identity, Wanted, examine};
pub use options::{BlockOptions, DirectIo, OpenError};
pub use size::{ResizeError, Shrink};
pub use volume::BlockVolume;
pub use watch::SpaceBelow;
