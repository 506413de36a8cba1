//! Joins the exports into one tree: the pseudo file system (RFC 8881 §7.3),
//! access rules and identities of an export, and file handles.

pub mod absent;
pub mod certificate;
pub mod current;
pub mod export;
pub mod fh;
pub mod flavor;
pub mod ids;
pub mod object;
pub mod policy;
pub mod pseudo;
pub mod stable_names;

pub use absent::AbsentExport;
pub use certificate::CertificateRule;
pub use current::{CurrentNamespace, HeldNamespace};
pub use export::{Export, ExportId};
pub use fh::FileHandle;
pub use flavor::{Flavor, Flavors};
pub use ids::{IdMap, IdRange, IdView};
pub use object::{FileId, FileKey, Object};
pub use policy::{ClientRule, Entry, IdentitySource, Squash};
pub use pseudo::{Namespace, PseudoId};
pub use stable_names::StableNames;
