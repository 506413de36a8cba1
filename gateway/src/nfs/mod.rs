//! Processing of records: NFSv4, NFSv3 and MOUNT over TCP and RDMA.

pub(crate) mod answer;
pub(crate) mod back_channels;
pub(crate) mod callback_connections;
mod callback_stream;
pub(crate) mod counters;
pub(crate) mod dispatch;
pub(crate) mod gss;
pub(crate) mod host;
pub(crate) mod limits;
pub(crate) mod loads;
mod look_up_places;
pub(crate) mod name_service;
pub(crate) mod patience;
pub(crate) mod rdma;
pub(crate) mod record;
pub(crate) mod recovery;
mod refusal;
pub(crate) mod requests;
pub(crate) mod rpcbind;
pub(crate) mod runtime;
pub(crate) mod service;
mod starttls;
pub(crate) mod tcp;
#[cfg(test)]
mod tcp_seeds;
mod users;
