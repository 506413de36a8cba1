//! The gateway seen from outside: metrics and status over HTTP.

pub(crate) mod exposition;
pub(crate) mod http;
pub(crate) mod status;
