//! Programs that were killed for their time limit, and still wait in the kernel
//! for a pool that hangs. They are collected when they end, and as long as several
//! of them wait for the same storage, no further one is started there.

use std::process::Child;
use std::sync::{Mutex, PoisonError};

/// Most programs that wait for the same storage. One of them may be that of a
/// query which every later one repeats.
const MAX_OF_STORAGE: usize = 4;
/// Most programs that wait, of all storage.
const MAX_IN_ALL: usize = 64;

/// Programs of this process that were left behind.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    children: Mutex<Vec<(String, Child)>>,
}

/// Those of [`crate::SystemTool`].
pub(crate) static LEFT_BEHIND: LeftBehind = LeftBehind { children: Mutex::new(Vec::new()) };

impl LeftBehind {
    /// Returns the number of programs that keep another one of this storage from
    /// starting; `None`: it may start. Collects those that have ended.
    pub(crate) fn blocks(&self, storage: &str) -> Option<usize> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        let waiting = children.iter().filter(|(of, _)| of == storage).count();
        if waiting >= MAX_OF_STORAGE {
            Some(waiting)
        } else {
            (children.len() >= MAX_IN_ALL).then_some(children.len())
        }
    }

    /// Kills a program, which may not die of it.
    pub(crate) fn leave(&self, storage: &str, mut child: Child) {
        let _ = child.kill();
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
            children.push((storage.to_owned(), child));
        }
    }
}

/// Returns the storage that a command concerns: the pool of its last argument that
/// is no option. Queries about all pools are storage of their own.
pub(crate) fn storage_of<'a>(arguments: &[&'a str]) -> &'a str {
    let last = arguments.iter().rev().find(|argument| !argument.starts_with('-'));
    last.map_or("", |name| name.split(['/', '@', '#']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn a_command_is_of_its_pool() {
        assert_eq!(storage_of(&["set", "volsize=1G", "tank/vm/d"]), "tank");
        assert_eq!(storage_of(&["snapshot", "-o", "a=b", "tank@x"]), "tank");
        assert_eq!(storage_of(&["list", "-H"]), "list");
        assert_eq!(storage_of(&[]), "");
    }

    #[test]
    fn storage_that_hangs_stops_its_own_commands_until_it_answers() {
        let left = LeftBehind::default();
        // Ends with its input, which stands for the answer of the pool.
        let mut answers = Vec::new();
        for _ in 0..MAX_OF_STORAGE {
            assert_eq!(left.blocks("tank"), None);
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            answers.push(child.stdin.take());
            left.children.lock().unwrap().push(("tank".to_owned(), child));
        }
        assert_eq!(left.blocks("tank"), Some(MAX_OF_STORAGE));
        assert_eq!(left.blocks("fast"), None, "other storage goes on");
        drop(answers);
        while left.blocks("tank").is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_dies_of_the_signal_is_collected() {
        let left = LeftBehind::default();
        left.leave("tank", Command::new("sleep").arg("60").spawn().unwrap());
        while !left.children.lock().unwrap().is_empty() {
            assert_eq!(left.blocks("tank"), None);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
