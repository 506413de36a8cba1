//! The NFSv3 server: state shared by all calls.

use super::guard::ConflictGuard;
use crate::namespace::HeldNamespace;
use crate::write_verifier::WriteVerifier;
use std::sync::Arc;

/// Returns the current exports.
pub type NamespaceSource = Arc<dyn Fn() -> HeldNamespace + Send + Sync>;

/// The server.
#[derive(Clone)]
pub struct Server {
    /// The exports.
    pub namespace: NamespaceSource,
    /// Tells clients that unstable data may have been lost.
    pub write_verifier: WriteVerifier,
    /// Called before an object is accessed.
    pub guard: Arc<dyn ConflictGuard>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("v3::Server")
    }
}
