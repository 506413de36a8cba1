//! The whole store trait against a real directory, in both handle modes and,
//! as root, under several identities.

mod attributes;
mod data;
mod handles;
mod identity;
mod listing;
mod mounts;
mod names;
mod scene;
