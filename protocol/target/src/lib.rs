//! What lies between the sessions of a target and its logical units, without
//! sockets, clock and threads: effects of task management, the end of a command
//! as its session reports it, and commands that a host's earlier sessions have
//! left. The gateway and the simulator call it.

mod completion;
mod former;
mod task_management;

pub use completion::{attribute_of, completion};
pub use former::{former_commands, former_settled};
pub use task_management::{TaskManagement, abort_others, effects, wire_luns};
