//! A dataset as an export: served wherever it is mounted, without keeping it
//! busy.

mod file;
pub(crate) mod forward;
pub(crate) mod known;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
