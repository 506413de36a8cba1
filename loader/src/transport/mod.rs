//! Carrying calls to a server and data into the caller's memory.

pub mod landing;
pub mod tcp;

pub use landing::{Arrived, Landing, Place};
