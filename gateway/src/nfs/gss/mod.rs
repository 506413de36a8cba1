//! NFS calls under Kerberos (RPCSEC_GSS, RFC 2203).
//!
//! The wire form and the table of contexts are in `zgate_rpc::gss`, the library
//! in `zgate_gss`. Here both meet: calls that may block (the keytab, the replay
//! cache, the names of users) and long bodies go to worker threads of their own.

pub(crate) mod call;
pub(crate) mod callbacks;
mod establish;
mod farewell;
pub(crate) mod identity;
pub(crate) mod kerberos;
pub(crate) mod limits;
pub(crate) mod mechanism;
pub(crate) mod tickets;
mod token_slots;

#[cfg(test)]
mod tests;
