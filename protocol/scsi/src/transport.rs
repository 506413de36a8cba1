//! What a command needs of the transport that brought it.

use crate::nexus::Nexus;
use std::pin::Pin;

/// Work of a logical unit that takes as long as the store does.
pub type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
/// Whether the work came to its end.
pub type Finished<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// One command as its transport keeps it. The transport owns the tasks and the clock.
pub trait Task {
    /// Whether the command was aborted: by task management, by a preempt, or with its
    /// session. It must not take effect then if it has not yet.
    fn is_aborted(&self) -> bool;

    /// Aborts the commands that these I_T nexuses have on the logical unit, without an
    /// answer to them, but not this command's own I_T nexus.
    fn abort_others(&self, which: &dyn Fn(&Nexus) -> bool);

    /// Lets `work` go on for as long as one command may keep others waiting.
    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a>;
}

/// A command without a transport: nobody aborts it, and it may take any time.
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
