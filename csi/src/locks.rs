//! One change of a volume at a time. A second one is refused (ABORTED), and the
//! caller repeats it: nothing waits in the driver.

use crate::status::busy;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Status;

/// Keys with a change under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    held: Arc<Mutex<HashSet<String>>>,
}

/// A key; released on drop.
#[derive(Debug)]
pub(crate) struct Lock {
    locks: Locks,
    key: String,
}

impl Locks {
    /// Takes a key.
    ///
    /// # Errors
    /// ABORTED if it is held.
    pub(crate) fn take(&self, key: impl Into<String>) -> Result<Lock, Status> {
        let key = key.into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.insert(key.clone()) {
            return Err(busy(&key));
        }
        Ok(Lock { locks: self.clone(), key })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.locks.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_held_once_and_released() {
        let locks = Locks::default();
        let first = locks.take("a").unwrap();
        assert_eq!(locks.take("a").unwrap_err().code(), tonic::Code::Aborted);
        assert!(locks.take("b").is_ok());
        drop(first);
        assert!(locks.take("a").is_ok());
    }
}
