//! From a record to its answer.

pub(crate) mod admitted;
pub(crate) mod attention;
pub(crate) mod boundary;
pub(crate) mod callback_connections;
pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod data_path;
pub(crate) mod descriptors;
pub(crate) mod dispatch;
pub(crate) mod fair_share;
pub(crate) mod health;
pub(crate) mod host;
pub(crate) mod limits;
pub(crate) mod rdma_state;
pub(crate) mod runtime;
pub(crate) mod service;
pub(crate) mod ways;
