//! Tasks beside the calls of users: renewal of the lease, return of state.

pub(crate) mod give_back;
pub(crate) mod renewal;
mod revoked;
