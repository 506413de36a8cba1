//! Bytes arrive on a core and stay there: accepting, receiving, sending.

pub(crate) mod accept;
pub(crate) mod patience;
pub(crate) mod rdma;
pub(crate) mod receive;
pub(crate) mod rpcbind;
pub(crate) mod send;
pub(crate) mod stream;
pub(crate) mod tcp;
