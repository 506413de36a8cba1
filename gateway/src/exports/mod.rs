//! Exports: their settings, the plan that derives exports and logical units
//! from datasets, the stores, and attempts at what is absent.

pub(crate) mod absent;
pub(crate) mod attempts;
pub(crate) mod clients;
pub(crate) mod dataset;
pub(crate) mod exposed;
pub(crate) mod granted;
pub(crate) mod hosts;
pub(crate) mod limits;
pub(crate) mod looks;
pub(crate) mod open;
pub(crate) mod overlap;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod replaced;
pub(crate) mod settings;
pub(crate) mod stores;
