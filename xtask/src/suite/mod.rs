//! Suites of `test` and `conformance`.

pub(crate) mod cargo_tests;
mod cluster;
pub(crate) mod csi;
pub(crate) mod demo;
pub(crate) mod iscsi;
pub(crate) mod libnfs;
pub(crate) mod loader;
pub(crate) mod manifests;
pub(crate) mod ocf;
pub(crate) mod page;
pub(crate) mod proxmox;
pub(crate) mod pynfs;
pub(crate) mod python;
