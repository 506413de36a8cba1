//! Notification of systemd (sd_notify(3)), if it started the gateway.

use super::shared::Shared;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Sends a state to systemd.
pub(crate) fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = std::os::unix::net::UnixDatagram::unbound()
        .and_then(|datagram| datagram.send_to(state.as_bytes(), Path::new(&socket)));
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// Starts the watchdog if the unit has `WatchdogSec=`: it informs systemd while
/// all cores answer. If they do not for that long, systemd ends the gateway and
/// starts it again.
///
/// # Errors
/// The error of the operating system, if no thread can be started.
pub(crate) fn start_watchdog(shared: Arc<Shared>) -> io::Result<()> {
    let variable = |name| std::env::var(name).ok();
    let (limit, process) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    let Some(limit) = watchdog_limit(limit.as_deref(), process.as_deref(), std::process::id())
    else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let watch = move || {
        runtime.block_on(watch(limit, |within| shared.health.silent_cores(within), notify));
    };
    std::thread::Builder::new().name("zgate-watchdog".to_owned()).spawn(watch)?;
    Ok(())
}

/// Returns the watchdog limit, if systemd expects one from this process
/// (sd_watchdog_enabled(3)).
fn watchdog_limit(limit: Option<&str>, process: Option<&str>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.parse() != Ok(own)) {
        return None;
    }
    let microseconds = limit?.parse().ok().filter(|limit| *limit > 0)?;
    Some(Duration::from_micros(microseconds))
}

/// Checks the cores twice within `limit`, and notifies systemd if all answer.
async fn watch<Asked: Future<Output = Vec<usize>>>(
    limit: Duration,
    silent_cores: impl Fn(Duration) -> Asked,
    notify: impl Fn(&str),
) {
    let mut every = tokio::time::interval(limit / 2);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let silent = silent_cores(limit / 2).await;
        if silent.is_empty() {
            notify("WATCHDOG=1");
        } else {
            tracing::error!(cores = ?silent, "cores do not answer; the watchdog of systemd is not \
                fed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::time::Instant;

    #[test]
    fn only_a_watchdog_of_ours_is_served() {
        let limit = |usec, pid| watchdog_limit(usec, pid, 77);
        assert_eq!(limit(Some("60000000"), Some("77")), Some(Duration::from_secs(60)));
        assert_eq!(limit(Some("500000"), None), Some(Duration::from_millis(500)));
        for (usec, pid) in
            [(None, None), (Some("0"), None), (Some("x"), None), (Some("1000"), Some("78"))]
        {
            assert_eq!(limit(usec, pid), None, "{usec:?} {pid:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_is_given_in_time_and_only_while_all_cores_answer() {
        let limit = Duration::from_secs(60);
        let begun = Instant::now();
        let hangs = |at: u64| (600..1200).contains(&at);
        let signs = RefCell::new(Vec::new());
        let ask = |within: Duration| async move {
            let silent = hangs(begun.elapsed().as_secs());
            if silent {
                tokio::time::sleep(within).await;
            }
            if silent { vec![1] } else { Vec::new() }
        };
        let say =
            |state: &str| signs.borrow_mut().push((begun.elapsed().as_secs(), state.to_owned()));
        let watched = tokio::time::timeout(Duration::from_secs(1800), watch(limit, ask, say)).await;
        assert!(watched.is_err());
        let signs = signs.into_inner();
        assert!(signs.iter().all(|(at, state)| state == "WATCHDOG=1" && !hangs(*at)));
        let mut gaps = signs.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert_eq!(gaps.clone().filter(|gap| *gap > 60).count(), 1, "{signs:?}");
        assert!(gaps.any(|gap| gap >= 600));
    }
}
