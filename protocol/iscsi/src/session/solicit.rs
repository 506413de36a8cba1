//! How much data may be solicited at once: a write's memory is reserved as a
//! whole before its first R2T, so that writes under way can always end, and in
//! order of arrival, so that none waits for a later one.

use super::Session;
use super::task::Phase;
use crate::pdu::Itt;

impl Session {
    /// Reserves memory for the data of a task. False: it has to wait, and is
    /// pumped again when its turn comes.
    pub(super) fn reserve(&mut self, itt: Itt) -> bool {
        let first = self.starved.front().copied();
        let (reserved, most) = (self.reserved_bytes, self.config.max_solicited_bytes);
        let Some(task) = self.tasks.get_mut(&itt) else { return false };
        if task.reserved_bytes > 0 {
            return true;
        }
        let wanted = u64::from(task.gathered_bytes());
        let fits = reserved == 0 || reserved + wanted <= most;
        if fits && first.is_none_or(|first| first == itt) {
            task.reserved_bytes = wanted;
            self.reserved_bytes += wanted;
            if first.is_some() {
                self.starved.pop_front();
            }
            return true;
        }
        if !self.starved.contains(&itt) {
            self.starved.push_back(itt);
        }
        false
    }

    /// Goes on with tasks that waited for memory.
    pub(crate) fn feed_starved(&mut self) {
        while let Some(&itt) = self.starved.front() {
            let waits = self.tasks.get(&itt).is_some_and(|task| {
                task.phase == Phase::Collecting
                    && !task.orphaned
                    && !task.doomed
                    && task.failure.is_none()
                    && task.reserved_bytes == 0
            });
            if !waits {
                self.starved.pop_front();
                continue;
            }
            self.pump(itt);
            if self.starved.front() == Some(&itt) {
                return;
            }
        }
    }
}
