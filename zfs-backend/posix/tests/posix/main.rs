//! The whole store trait against a real directory, in both handle modes and,
//! as root, under several identities.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod attributes;
mod bad_disk;
mod data;
mod fixture;
mod handles;
mod hanging;
mod identity;
mod listing;
mod listing_cache;
mod mounts;
mod names;
mod set_id;
