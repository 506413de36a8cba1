//! Start, reconfiguration and stop of a gateway: the only room that imports
//! both front ends.

pub(crate) mod absent;
mod activity;
mod api;
mod asked_pools;
mod cgroup;
pub(crate) mod check;
mod client_metrics;
mod cores;
#[cfg(test)]
mod dashboards_tests;
pub(crate) mod descriptors;
mod end;
mod events;
pub(crate) mod handover;
mod health;
mod imported_pools;
mod in_use;
mod kept;
mod left_connections;
mod limits;
mod listen;
mod live;
mod memory;
pub(crate) mod metrics;
mod mount_table;
mod pages;
mod pool_datasets;
mod process;
pub(crate) mod recent;
pub(crate) mod reconcile;
pub(crate) mod release;
mod retry;
pub(crate) mod run;
mod searches;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod systemd;
pub(crate) mod throughput;
mod unknown_pools;
pub(crate) mod verdict;
pub(crate) mod volumes;
mod watch;
pub(crate) mod web;
