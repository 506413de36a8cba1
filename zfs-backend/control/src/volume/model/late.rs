//! Commands of the model of ZFS that have timed out, and take effect later.

use super::State;

/// Commands that change nothing.
const QUESTIONS: [&str; 3] = ["get", "list", "program"];

impl State {
    /// Carries out what is still to be carried out before a command that may change
    /// something: ZFS puts changes into effect in the order in which they came. While the
    /// pool is elsewhere, they wait.
    pub(super) fn catch_up(&mut self, program: &str, arguments: &[&str]) {
        if self.is_exported || program != "zfs" || QUESTIONS.contains(&arguments[0]) {
            return;
        }
        for late in std::mem::take(&mut self.late) {
            let words: Vec<&str> = late.iter().map(String::as_str).collect();
            // Nobody waits for what it says.
            let _ = self.zfs(&words);
        }
    }
}
