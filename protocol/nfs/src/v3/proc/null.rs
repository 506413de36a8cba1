//! NULL (RFC 1813 §3.3.0): answers to show that the server is reachable.

use crate::v3::cx::Cx;
use crate::v3::guard::BorrowingFuture;
use zgate_xdr::{Decoder, Encoder, XdrError};

/// Does nothing. Its result has no status.
pub(in crate::v3) fn run<'a>(
    _: &'a Cx<'a>,
    _: &mut Decoder<'_>,
    _: &'a mut Encoder,
) -> Result<BorrowingFuture<'a, ()>, XdrError> {
    Ok(Box::pin(std::future::ready(())))
}

#[cfg(test)]
mod tests {
    use crate::v3::proc::rig::Rig;
    use zgate_rpc::AcceptError;

    #[test]
    fn the_answer_is_empty() {
        let rig = Rig::new();
        assert_eq!(rig.raw(0, &[]), Ok(Vec::new()));
        assert_eq!(rig.raw(22, &[]), Err(AcceptError::ProcedureUnavailable));
    }
}
