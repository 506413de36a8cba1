//! SECINFO_NO_NAME (RFC 8881 §18.45).

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
