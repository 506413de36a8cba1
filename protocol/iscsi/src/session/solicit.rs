//! Limit of solicited data: a write's memory is reserved as a whole before its
//! first R2T, so that writes in progress can always end, and in order of
//! arrival, so that none waits for a later one. A session without a reservation
//! always gets one, and so does its oldest write: a write only ever waits for
//! an older write of the same session. It does not wait for one that the owner
//! has begun: the storage of that one may hang.

use super::Session;
use super::events::TaskTag;
use super::task::{Phase, Task};
use crate::pdu::Itt;

impl Session {
    /// Reserves memory for the data of a task. Returns false if the task must
    /// wait; `feed_starved` continues it.
    pub(super) fn reserve(&mut self, itt: Itt) -> bool {
        let first = self.starved.front().copied();
        let (reserved, most) = (self.reserved_bytes, self.config.max_solicited_bytes);
        let Some(task) = self.tasks.get(&itt) else { return false };
        if task.reserved_bytes > 0 {
            return true;
        }
        let wanted = u64::from(task.gathered_bytes());
        // Unsolicited data already has its memory.
        let more = wanted - u64::from(task.gather.received_bytes()).min(wanted);
        let fits = reserved == 0 || (reserved + wanted <= most && more <= self.memory_room_bytes);
        let may = (fits && first.is_none_or(|first| first == itt)) || self.is_oldest_write(itt);
        if !may {
            if !self.starved.contains(&itt) {
                self.starved.push_back(itt);
            }
            return false;
        }
        self.starved.retain(|waiting| *waiting != itt);
        if let Some(task) = self.tasks.get_mut(&itt) {
            task.reserved_bytes = wanted;
        }
        self.reserved_bytes += wanted;
        self.memory_room_bytes = self.memory_room_bytes.saturating_sub(more);
        true
    }

    /// The owner has begun a command, and bounds the memory of its data itself from now on:
    /// what is reserved for it is there for other writes. Without this call it is when the
    /// command ends.
    pub fn begun(&mut self, tag: TaskTag) {
        let is_begun = |task: &&mut Task| task.tag == tag && task.phase != Phase::Collecting;
        let Some(task) = self.tasks.get_mut(&tag.itt).filter(is_begun) else { return };
        self.reserved_bytes -= std::mem::take(&mut task.reserved_bytes);
        self.feed_starved();
    }

    /// Returns true when every write that has a reservation is younger: an ORDERED one
    /// among them may be waiting for this one.
    fn is_oldest_write(&self, itt: Itt) -> bool {
        let Some(task) = self.tasks.get(&itt) else { return false };
        let is_ahead = |other: &&Task| {
            other.reserved_bytes > 0 && !other.orphaned && !other.arrived_after(task)
        };
        !self.tasks.values().any(|other| is_ahead(&other))
    }

    /// Counts the memory that the data of a task occupies now.
    pub(super) fn count_gathering(&mut self, itt: Itt) {
        if let Some(task) = self.tasks.get_mut(&itt) {
            let counted = task.gathering_bytes();
            let before = std::mem::replace(&mut task.counted_bytes, counted);
            self.gathering_bytes = self.gathering_bytes - before + counted;
        }
    }

    /// Continues tasks that waited for memory.
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
