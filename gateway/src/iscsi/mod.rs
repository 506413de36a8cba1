//! Disks for initiators: iSCSI targets over TCP and over RDMA (iSER).
//!
//! * `settings` derives settings from a configuration, `doubts` tells what is
//!   probably not meant in it; `luns/unit` opens one logical unit; `luns/catalog` holds all targets, replaced as a whole by a
//!   reload.
//! * `access` decides which initiators may log in and what they can access.
//! * `service` is shared by all cores; `session` is one live session, accessed
//!   by its connections on any core; `portals` tells to which portal a connection came,
//!   and which ones an initiator is told; `endings` knows what runs for those that have ended,
//!   `ended_loads` what they have moved.
//! * `tcp` is one TCP connection, `iser` one over RDMA: `login`, then PDUs are
//!   received (`receive`) and sent. `connection` is shared by both: it runs
//!   commands (`running`, `execute`) and task management (`task_management`).
//!   `shares` keeps a logical unit that hangs from taking the room of others.
//! * `stats` counts; `status` shows state; `change` changes a running gateway;
//!   `luns/watch` detects changes of devices and files; `absent` serves units
//!   whose storage appears later; `replaced` notes what has other content after a rollback.

mod absent;
pub(crate) mod access;
pub(crate) mod change;
pub(crate) mod connection;
pub(crate) mod doubts;
mod ended_loads;
mod endings;
pub(crate) mod execute;
pub(crate) mod flush;
mod full_feature;
pub(crate) mod granted;
mod in_use;
pub(crate) mod iser;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod logins;
pub(crate) mod luns;
pub(crate) mod port_groups;
mod portals;
mod receive;
mod replaced;
mod running;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod settings;
mod shares;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod task_management;
pub(crate) mod tcp;
#[cfg(test)]
mod tcp_seeds;
#[cfg(test)]
pub(crate) mod tests;
mod zvols;
