//! Tests of the rooms with sockets whose schedule comes from a seed ([SIMULATOR.md]): what the
//! tests of both front ends need. Random numbers, the choice of seeds, a client's end of a
//! connection, virtual time, and the connections that the gateway's side has begun and ended.
//!
//! [SIMULATOR.md]: ../../../../docs/SIMULATOR.md
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod chosen;
pub(crate) mod client_end;
pub(crate) mod served;
pub(crate) mod split_mix;
pub(crate) mod virtual_time;
