//! Tests of the rooms with sockets whose schedule comes from a seed ([SIMULATOR.md]): what the
//! tests of both front ends need.
//!
//! * `chosen` chooses the seeds and reports one that fails, `split_mix` has its numbers.
//! * `virtual_time` lets time pass only where a test says so.
//! * `client_end` is a client's end of a connection; `listener` accepts the other one, and
//!   `served` says what became of it.
//! * `peer` is anybody who connects, `script` one who follows a script and reads nothing.
//! * `run` carries a schedule out and checks the gateway at every step.
//!
//! [SIMULATOR.md]: ../../../../docs/SIMULATOR.md
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod chosen;
pub(crate) mod client_end;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod served;
pub(crate) mod split_mix;
pub(crate) mod virtual_time;
