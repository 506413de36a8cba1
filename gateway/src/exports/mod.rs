//! Exports: their settings, the plan that derives exports and logical units
//! from datasets, and the stores.

pub(crate) mod dataset;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod settings;
pub(crate) mod stores;
