//! Login: from the first request to full feature phase (RFC 7143 §6.3).

mod identity;
mod keys;
mod machine;
mod negotiate;
mod params;
mod security;
mod status;

pub use machine::{LoggedIn, Login, LoginContext, LoginState};
pub use negotiate::NegotiationError;
pub(crate) use negotiate::{Negotiation, NegotiationContext};
pub use params::{Offer, Operational, Transport};
pub use status::LoginStatus;
