//! ONC RPC version 2 (RFC 5531): call and reply headers, credentials,
//! RPCSEC_GSS, record marking and the duplicate request cache. Wire only: no
//! sockets, no clock.

pub mod auth;
pub mod drc;
pub mod gss;
pub mod limits;
pub mod message;
pub mod record;

pub use auth::{AuthSys, Credential};
pub use message::{AcceptError, AuthError, CallHeader, Rejection};
