//! What a LUN lies on, as a [`zgate_store::BlockStore`]: a zvol, another block
//! device, or a regular file. [`BlockVolume::open`] finds out which.
//!
//! * Files go through the page cache, unless O_DIRECT is asked for; devices go
//!   past it, unless they cannot.
//! * A volume is held exclusively: a second gateway, or a mount of the same
//!   device, is noticed when it is opened.
//! * `FUA` is RWF_DSYNC, `sync` is fdatasync: both reach the medium, as far as
//!   the medium's own cache obeys.
//!
//! `open` finds and locks what lies below; `device` and `file` know its shape;
//! `aligned` obeys O_DIRECT; `clearing` discards and zeroes; `extents` tells
//! what is allocated; `volume` is the store; `watch` looks for what changed.

mod aligned;
mod backing;
mod clearing;
mod device;
mod errno;
mod exclusive;
mod extents;
mod file;
mod freed;
mod open;
mod options;
mod size;
mod span;
mod volume;
mod watch;

pub use backing::BackingKind;
pub use options::{BlockOptions, DirectIo, OpenError};
pub use size::{ResizeError, Shrink};
pub use volume::BlockVolume;
pub use watch::SpaceBelow;
