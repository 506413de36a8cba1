//! Snapshots: listing, schedules, differences, and sending to other machines.
//!
//! [`plan`](mod@plan) is pure: from the time, the policy and the existing
//! snapshots it derives which to create and which to destroy. Only
//! [`mod@carry_out`], [`rollback`] and [`send`] have effects.

mod carry_out;
mod destination;
mod diff;
mod list;
mod moment;
mod naming;
mod plan;
mod rollback;
mod send;
mod stream;

pub use carry_out::{Done, carry_out, create};
pub use destination::{Destination, DestinationError};
pub use diff::{Change, ChangeKind, DiffError, RawPath, diff};
pub use list::{Snapshot, list, volumes};
pub use moment::Moment;
pub use naming::{Kind, OurName, PREFIX, manual_name};
pub use plan::{Creation, Plan, Policy, Removal, SpareReason, Spared, plan};
pub use rollback::{RollbackError, roll_back_destination};
pub use send::{Base, Sending, estimate_bytes, remote_token, token_is_plausible};
pub use stream::{Sent, StreamError, Transport, into_file, into_receiver};
