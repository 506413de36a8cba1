//! A dataset as an export: served wherever it is mounted, without keeping it
//! busy.

pub(crate) mod facts;
mod file;
pub(crate) mod forward;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
