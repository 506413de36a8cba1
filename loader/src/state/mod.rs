//! State that the server keeps for this client: opens, delegations, the lease.

pub(crate) mod delegation;
pub(crate) mod lease;
pub(crate) mod open_state;
pub(crate) mod returns;
