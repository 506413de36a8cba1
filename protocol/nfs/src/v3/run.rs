//! Running one procedure.

use super::cx::Cx;
use super::server::Server;
use super::table;
use crate::runtime::Call;
use zgate_rpc::AcceptError;
use zgate_xdr::{Decoder, Encoder};

impl Server {
    /// Runs one procedure: reads its arguments from `d` and writes its result,
    /// without the header of the RPC reply, to `e`. Writes nothing on an error.
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
