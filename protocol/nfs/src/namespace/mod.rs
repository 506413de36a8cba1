//! One tree out of many exports: the pseudo file system (RFC 8881 §7.3), who
//! may enter an export and as whom, and the file handles clients hold.

pub mod export;
pub mod fh;
pub mod policy;
pub mod pseudo;
pub mod stable_names;

pub use export::{Export, ExportId};
pub use fh::{Fh, Place};
pub use policy::{ClientRule, Entry, Squash};
pub use pseudo::{Namespace, PseudoId};
pub use stable_names::StableNames;
