//! SECINFO_NO_NAME (RFC 8881 §18.45).

use super::secinfo::{Res, flavors};
use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::OpNum;
use zgate_xdr::xdr_enum;

xdr_enum! {
    /// secinfo_style4.
    pub enum Style {
        /// SECINFO_STYLE4_CURRENT_FH.
        CurrentFh = 0,
        /// SECINFO_STYLE4_PARENT.
        Parent = 1,
    }
}

/// The operation; it consumes the current file handle.
pub struct SecinfoNoName;

impl Operation for SecinfoNoName {
    const NUM: OpNum = OpNum::SecinfoNoName;
    type Args = Style;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, style: Style) -> Result<Res, Failure> {
        let about = match style {
            Style::CurrentFh => cx.current()?.clone(),
            Style::Parent => super::lookupp::parent_of(cx).await?,
        };
        let res = flavors(cx, &about);
        cx.current = None;
        Ok(res)
    }
}
