//! Interface between a command and the transport that received it.

use crate::nexus::Nexus;
use std::pin::Pin;

/// Work of a logical unit; takes as long as the store does.
pub type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
/// Returns whether the work was completed.
pub type Finished<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// One command in its transport. The transport owns the tasks and the clock.
pub trait Task {
    /// Returns whether the command was aborted: by task management, by a
    /// preempt, or with its session. It must not take effect any more then.
    fn is_aborted(&self) -> bool;

    /// Aborts commands of the selected I_T nexuses on the logical unit, without
    /// a response to them; this command's own I_T nexus is excluded.
    fn abort_others(&self, which: &dyn Fn(&Nexus) -> bool);

    /// Returns whether the transport can send a range of a file in place of
    /// bytes: the data leaves after the command has ended, and as it is then.
    fn takes_spans(&self) -> bool {
        false
    }

    /// Returns whether the transport carries QUERY TASK, QUERY TASK SET, QUERY
    /// ASYNCHRONOUS EVENT and I_T NEXUS RESET, in addition to functions that abort, clear
    /// and reset.
    fn has_query_functions(&self) -> bool {
        false
    }

    /// Runs `work` for at most the time that one command may delay others.
    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a>;
}

/// Task of a command without a transport: it is never aborted and has no time
/// limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alone;

impl Task for Alone {
    fn is_aborted(&self) -> bool {
        false
    }

    fn abort_others(&self, _which: &dyn Fn(&Nexus) -> bool) {}

    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a> {
        Box::pin(async move {
            work.await;
            true
        })
    }
}
