//! Types that several operations share on the wire. What one operation alone
//! uses stands in that operation's file.

pub mod opnum;
pub mod status;
pub mod types;

pub use opnum::OpNum;
pub use status::Status;
pub use types::*;
