//! State and time: state that clients hold, lose and reclaim.

mod back_channels;
mod changes;
mod closing;
mod delegated_times;
mod delegations;
mod edges;
mod foreign;
mod grace;
mod grants;
mod handover;
mod leases;
mod locks;
mod own_attributes;
mod quotas;
mod records;
mod same_files;
mod shares;
mod stability;
