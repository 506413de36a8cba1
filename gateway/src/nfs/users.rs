//! Users of this machine by name, as its name service knows them (nsswitch).

use super::limits::{MAX_GROUPS, USER_LOOKUP_PATIENCE};
use nix::unistd::{User, getgrouplist};
use std::ffi::CString;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use zgate_store::Caller;

/// Looks up a user; `None`: there is none, or the name service does not answer in
/// time. `held` is dropped when the look-up itself has ended, which may be later:
/// it bounds the threads that wait for a silent name service.
pub(crate) async fn look_up(name: Box<str>, held: impl Send + 'static) -> Option<Caller> {
    let asked = name.clone();
    let task = spawn_blocking(move || {
        let found = find(&asked);
        drop(held);
        found
    });
    match timeout(USER_LOOKUP_PATIENCE, task).await {
        Ok(Ok(Ok(found))) => {
            if found.is_none() {
                tracing::warn!(user = &*name, "no user of this machine has this name");
            }
            found
        }
        Ok(Ok(Err(error))) => {
            tracing::warn!(user = &*name, %error, "the name service failed");
            None
        }
        Ok(Err(error)) => {
            tracing::error!(user = &*name, %error, "the look-up of a user ended");
            None
        }
        Err(_) => {
            let seconds = USER_LOOKUP_PATIENCE.as_secs();
            tracing::warn!(user = &*name, seconds, "the name service does not answer");
            None
        }
    }
}

/// Looks up a user and its groups. May block.
///
/// # Errors
/// The name service could not tell.
pub(crate) fn find(name: &str) -> nix::Result<Option<Caller>> {
    let Some(user) = User::from_name(name)? else { return Ok(None) };
    // A name with NUL has no user.
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let groups = getgrouplist(&name, user.gid)?;
    let groups = groups.into_iter().take(MAX_GROUPS).map(nix::unistd::Gid::as_raw).collect();
    Ok(Some(Caller { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_user_comes_with_its_groups() {
        let held = Arc::new(());
        let root = look_up("root".into(), Arc::clone(&held)).await.unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(look_up("no such user".into(), Arc::clone(&held)).await, None);
        assert_eq!(look_up("ro\0ot".into(), Arc::clone(&held)).await, None);
        assert_eq!(Arc::strong_count(&held), 1, "given back");
    }
}
