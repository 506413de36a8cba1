//! The NFSv3 server: what all its calls share.

use super::cx::Cx;
use super::guard::ConflictGuard;
use super::table;
use crate::namespace::Namespace;
use crate::runtime::Call;
use crate::write_verifier::WriteVerifier;
use std::sync::Arc;
use zgate_rpc::AcceptError;
use zgate_xdr::{Decoder, Encoder};

/// Gives the exports as they are now.
pub type NamespaceSource = Arc<dyn Fn() -> Arc<Namespace> + Send + Sync>;

/// The server.
#[derive(Clone)]
pub struct Server {
    /// The exports.
    pub namespace: NamespaceSource,
    /// How clients learn that unstable data may be lost.
    pub write_verifier: WriteVerifier,
    /// Asked before an object is touched.
    pub guard: Arc<dyn ConflictGuard>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("v3::Server")
    }
}

impl Server {
    /// Runs one procedure: reads its arguments from `d` and writes its result,
    /// what follows the header of a successful RPC reply, to `e`. Nothing is
    /// written when it fails.
    ///
    /// # Errors
    /// [`AcceptError::ProcedureUnavailable`] and
    /// [`AcceptError::GarbageArguments`], the client's fault.
    pub async fn handle(
        &self,
        call: &Call,
        procedure: u32,
        d: &mut Decoder<'_>,
        e: &mut Encoder,
    ) -> Result<(), AcceptError> {
        let row = table::row(procedure).ok_or(AcceptError::ProcedureUnavailable)?;
        let cx = Cx { server: self, namespace: (self.namespace)(), call };
        let work = (row.run)(&cx, d, e).map_err(|_| AcceptError::GarbageArguments)?;
        work.await;
        Ok(())
    }
}
