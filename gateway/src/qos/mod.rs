//! Limits on the rate of reads and writes of one export or logical unit
//! ([ADR 30](../../../docs/adr/0030-rates-by-waiting.md)). A store without a limit
//! is not wrapped and pays nothing.

mod bucket;
mod disk;
mod files;
pub(crate) mod limiter;
pub(crate) mod limits;

pub(crate) use disk::limited_disk;
pub(crate) use files::limited_files;
pub(crate) use limiter::Limiter;
