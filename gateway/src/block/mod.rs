//! Disks for initiators: iSCSI targets over TCP and over RDMA (iSER).
//!
//! * `settings` is what a configuration asks for; `unit` opens one logical
//!   unit; `catalog` is all targets, replaced as a whole by a reload.
//! * `access` says who may log in and what they see.
//! * `service` is what all cores share; `cell` is one live session, which its
//!   connections reach from whichever core they are on.
//! * `connection` is one TCP connection, `iser` one over RDMA: `login`, then
//!   PDUs in (`receive`), PDUs out. `attached` is what both share: commands run
//!   (`execute`), `functions` is task management.
//! * `figures` counts; `view` shows; `change` changes a running gateway;
//!   `watch` looks for what changes below.

pub(crate) mod access;
pub(crate) mod attached;
pub(crate) mod catalog;
pub(crate) mod cell;
pub(crate) mod change;
pub(crate) mod connection;
pub(crate) mod execute;
pub(crate) mod figures;
pub(crate) mod flush;
mod followed;
pub(crate) mod functions;
pub(crate) mod iser;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod logins;
pub(crate) mod receive;
pub(crate) mod reservations;
pub(crate) mod service;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod unit;
pub(crate) mod view;
pub(crate) mod watch;
