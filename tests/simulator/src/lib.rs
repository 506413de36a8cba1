//! The simulator: the server's protocol rooms, several clients, their network
//! and a disk in one process on virtual time, everything from one seed.
//! docs/SIMULATOR.md says what is real in it and how to add to it.
#![allow(missing_docs, reason = "fields of a step or a fault are named after their meaning")]

pub mod campaign;
pub mod client;
pub mod dice;
pub mod disk;
pub mod executor;
pub mod gateway;
pub mod history;
pub mod invariant;
pub mod iscsi;
pub mod kerberos;
pub mod loader;
pub mod mutant;
pub mod network;
pub mod plan;
pub mod records;
pub mod run;
pub mod shrink;
pub mod slots;
pub mod tls;
pub mod trace;
