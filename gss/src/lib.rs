//! GSS-API (RFC 2743) with MIT Kerberos: the server's side, and that of the server
//! as a client of its clients' callback services.
//!
//! `libgssapi_krb5.so.2` is loaded at run time: it is not needed to build, and a
//! machine without it only lacks Kerberos. This crate contains only the parts
//! that zgate uses. Layouts and signatures are those of MIT's stable ABI on
//! 64-bit Linux; tests run them against the installed library.
//!
//! [`Acceptor::acquire`] and [`Acceptor::accept`] read the keytab and the
//! replay cache, and may ask the DNS: they block. So do those of an
//! [`Initiator`], which asks the KDC for tickets. The calls of a [`Context`] only
//! compute.
#![allow(unsafe_code, reason = "calls into a C library; each has its SAFETY reason")]

mod abi;
mod acceptor;
mod buffer;
mod cache;
mod context;
mod credential;
mod error;
mod initiator;
mod library;
mod name;

pub use acceptor::{Accepted, Acceptor, AcceptorOptions, Client};
pub use context::Context;
pub use error::GssError;
pub use initiator::{Initiated, Initiator, InitiatorOptions};
pub use library::LoadError;
