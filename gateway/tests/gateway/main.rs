//! The gateway as a process, and its clients. One program: the workspace is linked
//! once. What a test changes of its own process would change for the others, so
//! limits and variables of the environment are given to the gateway's process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod absent;
mod admission;
mod config_check;
mod crash;
mod descriptors;
mod documents;
mod exports;
mod fair_share;
mod follow;
mod handover;
mod hosts;
mod iscsi_access;
mod iscsi_crash;
mod iscsi_recovery;
mod iscsi_recovery_cuts;
mod iscsi_sessions;
mod iser;
mod live_absent;
mod live_changes;
mod loader;
mod loader_cuda;
mod loader_delegation;
mod loader_errors;
mod loader_leave;
mod loader_rdma;
mod loader_replaced;
mod loader_sums;
mod local_twin;
mod malformed;
mod memory_budget;
mod model_files;
mod nfsserve_peer;
mod nobody_reads;
mod pipelined;
mod port_groups;
mod rdma;
mod rdma_devices;
mod rdma_stall;
mod rdma_trunks;
mod screens;
mod semantics;
mod state_disk;
mod takeover;
mod tls;
mod volumes;
mod watchdog;
mod ways;
mod web_page;
mod zero_copy;
