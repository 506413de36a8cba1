//! SEND DIAGNOSTIC (SPC-4 §6.42): the default self-test, which always succeeds.

use super::{Cx, Outcome, Reply};
use crate::sense::Sense;

pub(crate) fn send_diagnostic(cx: &Cx<'_>) -> Outcome {
    if cx.cdb().byte(1) & 0x04 == 0 {
        return Err(Sense::invalid_cdb(1, Some(2)).into());
    }
    Ok(Reply::GOOD)
}
