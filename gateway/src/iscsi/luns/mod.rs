//! Logical units: their volumes, their numbers, and changes of their devices
//! and files.

pub(crate) mod catalog;
pub(crate) mod examine;
pub(super) mod found;
mod geometry;
pub(crate) mod late_flush;
pub(crate) mod numbers;
pub(crate) mod reservations;
pub(crate) mod state_files;
pub(crate) mod unit;
pub(crate) mod volumes;
mod watch;
pub(super) mod zvol_identity;
pub(super) mod zvol_sizes;
mod zvol_spaces;
