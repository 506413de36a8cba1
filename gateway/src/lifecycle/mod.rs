//! From settings to a running gateway and back.

pub(crate) mod build;
mod cores;
pub(crate) mod fabric;
mod process;
pub(crate) mod recovery;
pub(crate) mod run;
pub(crate) mod state_dir;
pub(crate) mod state_writer;
pub(crate) mod stores;
pub(crate) mod systemd;
