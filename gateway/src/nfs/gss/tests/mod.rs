//! Calls under RPCSEC_GSS against a whole gateway, with a mechanism of the
//! tests.

mod callbacks;
mod calls;
mod floods;
mod gateway;
mod rdma;
mod receiver;
