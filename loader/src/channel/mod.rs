//! The session with a server over several connections: both of its channels.

mod back;
mod fore;
mod link;
mod start;

pub(crate) use fore::Channel;
pub(crate) use link::Link;
pub(crate) use start::Start;
