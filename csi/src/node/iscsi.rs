//! Disks over iSCSI: iSER first where the node has it, TCP if that fails; several
//! paths become one multipath device.

use super::Node;
use super::host::{Disk, Host, HostError, Patience};
use super::iscsi_records::{DATABASE_FAILURE, has_kept_login};
use super::mount::ours;
use super::probes::{NoPlace, Probes};
use super::record::DiskRecord;
use super::stats::Condition;
use crate::limits::{
    BRIEF_USE_SECONDS, COMMAND_SECONDS, DISK_SECONDS, FORGET_TURN_SECONDS, GROWTH_SECONDS,
    LAST_REMOVAL_SECONDS, LAST_TURN_SECONDS, LOGIN_ATTEMPTS, LOGIN_PAUSE, LOGIN_SECONDS,
    LOGOUT_SECONDS, MULTIPATH_FAIL_SECONDS, MULTIPATH_REMOVE_SECONDS, MULTIPATH_SECONDS,
    POLL_PAUSE, REMOVAL_PAUSE, STATS_SECONDS, TURN_SECONDS,
};
use crate::publication::{NodePortal, Publication};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Status;
use zgate_api::Transport;

/// Exit statuses of `iscsiadm`: the session exists, and there is none.
const SESSION_EXISTS: i32 = 15;
const NO_OBJECTS: i32 = 21;
/// More of them: the node's iscsid, which asks portals for it, went meanwhile, and is not there.
const DAEMON_WENT: i32 = 18;
const NO_DAEMON: i32 = 20;

/// Settings of a node record. `manual`: the driver logs in, not the boot. The
/// time after which commands fail while the gateway is away is that of open-iscsi,
/// until it is known how many paths there are.
const SETTINGS: [(&str, &str); 3] = [
    ("node.startup", "manual"),
    ("node.conn[0].startup", "manual"),
    ("node.session.timeo.replacement_timeout", "120"),
];
/// Time after which commands of each of several paths fail: soon, so that multipath takes
/// another path, if it keeps commands while there is none; otherwise that of open-iscsi.
const OF_MANY_PATHS: Patience = Patience::Seconds(5);
const OF_MANY_PATHS_UNKEPT: Patience = Patience::Seconds(120);
/// Feature of a multipath device that keeps commands while it has no path.
const QUEUEING: &str = "queue_if_no_path";

/// Reason for which there is no session with a portal.
enum NoLogin {
    /// The portal, or the way to it. Another portal, or another transport, may work.
    Portal(HostError),
    /// This node: the portal was not asked, and nothing is known of it. Without it the disk would
    /// have one path less, or come over another transport until its next stage.
    Node(HostError),
}

/// Logs in by the first transport that works, and returns the disk.
pub(super) async fn attach(
    node: &Node,
    publication: &Publication,
    target: &str,
    naa: &str,
) -> Result<Disk, Status> {
    remove_left(&*node.host, (target, naa)).await?;
    let mut reasons = Vec::new();
    for transport in &node.transports {
        let portals = publication.portals(*transport);
        let (mut sessions, failed_before) = (0, reasons.len());
        for portal in &portals {
            match login(node, target, portal).await {
                Ok(()) => sessions += 1,
                Err(NoLogin::Node(error)) => return Err(ours("no login", &error)),
                Err(NoLogin::Portal(error)) => {
                    tracing::warn!(target, portal = portal.authority(), %error, "no login");
                    reasons.push(format!("{}: {error}", portal.authority()));
                    forget(node, target, portal).await;
                }
            }
        }
        if sessions > 0 {
            if failed_before > 0 {
                tracing::warn!(
                    target,
                    interface = interface(*transport),
                    "the disk has another transport than it would have, until its next stage: no \
                     portal of that one took a login"
                );
            }
            let disk = disk(&*node.host, (target, naa), sessions).await?;
            set_patience(node, target, naa).await;
            return Ok(disk);
        }
    }
    Err(ours("no login", &reasons.join("; ")))
}

/// Has commands fail soon only where there is another path to take, whatever number of
/// portals there is: multipathd makes devices of one path, too.
async fn set_patience(node: &Node, target: &str, naa: &str) {
    let host = &*node.host;
    let map = host.multipath(target, naa);
    let device = map.map(|map| map.device.to_string_lossy().into_owned());
    if let Some(device) = &device {
        // An unstage that did not come to its end has told multipathd to fail its commands, and
        // multipathd does so at its next look, whatever the device says now.
        let restoring = ["restorequeueing", "map", device];
        if let Err(error) = host.run("multipathd", &restoring, COMMAND_SECONDS).await {
            tracing::info!(device, %error, "multipathd");
        }
    }
    let patience = match device.filter(|_| host.paths(target, naa).len() > 1) {
        Some(device) if keeps_commands(host, &device).await => OF_MANY_PATHS,
        Some(_) => OF_MANY_PATHS_UNKEPT,
        None => node.patience,
    };
    if let Err(error) = host.set_patience(target, patience) {
        tracing::warn!(target, %patience, %error, "recovery_tmo of a session stays as it is");
    }
}

/// Returns whether a multipath device keeps commands while all its paths are away. One that
/// does not fails them with its last path, and file systems with them: a gateway that
/// restarts takes all paths.
async fn keeps_commands(host: &dyn Host, device: &str) -> bool {
    let fault = match host.run("dmsetup", &["table", device], COMMAND_SECONDS).await {
        Ok(table) if table.split_whitespace().any(|word| word == QUEUEING) => return true,
        Ok(_) => "commands fail when all paths are away".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(
        device,
        fault,
        "a path that fails is waited for before another one is taken: set `no_path_retry queue` \
         for the vendor ZGATE in /etc/multipath.conf"
    );
    false
}

/// Removes the record of a portal that did not answer, so that nobody goes on trying. While many
/// others change records it stays: the next portal is not to wait for that.
async fn forget(node: &Node, target: &str, portal: &NodePortal) {
    let (authority, interface) = (portal.authority(), interface(portal.transport));
    let record = ["-m", "node", "-T", target, "-p", &authority, "-I", interface];
    let last_turn = Instant::now() + FORGET_TURN_SECONDS;
    if let Err(error) = node.record_turns.delete(&*node.host, &record, last_turn).await {
        tracing::info!(target, %error, "the record of a portal stays until the unstage");
    }
}

fn interface(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "default",
        Transport::Rdma => "iser",
    }
}

/// Makes the record of a portal. Whatever keeps this node from that says nothing about the portal,
/// which is not asked.
async fn make_record(node: &Node, record: &[&str]) -> Result<(), HostError> {
    let with = |more: &[&'static str]| [record, more].concat();
    let settings = SETTINGS.into_iter().flat_map(|(name, value)| ["-n", name, "-v", value]);
    let update: Vec<&'static str> = ["-o", "update"].into_iter().chain(settings).collect();
    // One turn for all of them: of many stages at once, the first ones come to their end.
    let turn = node.record_turns.take(&*node.host, Instant::now() + TURN_SECONDS).await?;
    turn.run_past_old_lock(&with(&["-o", "new"]), COMMAND_SECONDS).await?;
    // All at once, which open-iscsi takes since 2.0.873: each update goes through all records.
    turn.run(&with(&update), COMMAND_SECONDS).await?;
    Ok(())
}

async fn login(node: &Node, target: &str, portal: &NodePortal) -> Result<(), NoLogin> {
    let host = &*node.host;
    let authority = portal.authority();
    let record = ["-m", "node", "-T", target, "-p", &authority, "-I", interface(portal.transport)];
    make_record(node, &record).await.map_err(NoLogin::Node)?;
    // Without a turn: a login waits for the gateway.
    let arguments = [&record[..], &["--login"]].concat();
    let mut attempt = 1;
    loop {
        match host.run("iscsiadm", &arguments, LOGIN_SECONDS).await {
            Ok(_) => return Ok(()),
            Err(error) if error.status() == Some(SESSION_EXISTS) => return Ok(()),
            // A gateway that has just started refuses for a moment (status 8, 19). A record that
            // another volume's unstage removes meanwhile makes it fail, also after the login (6).
            Err(error) if error.status().is_some() && attempt < LOGIN_ATTEMPTS => {
                tracing::info!(target, %error, attempt, "login again");
                attempt += 1;
                sleep(LOGIN_PAUSE).await;
            }
            Err(error) => {
                let has_asked = has_asked(host, &error).await;
                return Err(if has_asked { NoLogin::Portal(error) } else { NoLogin::Node(error) });
            }
        }
    }
}

/// Returns whether a login that has failed has asked its portal: it has run, has read its record,
/// and has found iscsid.
async fn has_asked(host: &dyn Host, error: &HostError) -> bool {
    match error {
        HostError::TimedOut { .. } => !has_kept_login(host).await,
        HostError::Failed {
            status: DATABASE_FAILURE | NO_OBJECTS | DAEMON_WENT | NO_DAEMON,
            ..
        } => false,
        error => error.has_run(),
    }
}

/// Waits for the disk of sessions.
async fn disk(
    host: &dyn Host,
    (target, naa): (&str, &str),
    sessions: usize,
) -> Result<Disk, Status> {
    let look = || host.paths(target, naa).into_iter().find(|disk| disk.size_bytes > 0);
    let found = until(DISK_SECONDS, look);
    let Some(path) = found.await else {
        return Err(ours("no disk", &format!("{naa} of {target} did not appear after the login")));
    };
    if sessions < 2 || !multipathd_runs(host, naa).await {
        return Ok(host.multipath(target, naa).unwrap_or(path));
    }
    let device = path.device.to_string_lossy().into_owned();
    if let Err(error) = host.run("multipath", &["-v1", &device], COMMAND_SECONDS).await {
        tracing::warn!(%error, "multipath");
    }
    match until(MULTIPATH_SECONDS, || host.multipath(target, naa)).await {
        Some(disk) => {
            // The kernel looks for the disk in one session after the other.
            until(MULTIPATH_SECONDS, || (host.paths(target, naa).len() >= sessions).then_some(()))
                .await;
            Ok(disk)
        }
        None => {
            tracing::warn!(naa, "no multipath device: one path is used; see `multipath -v3`");
            Ok(path)
        }
    }
}

/// Returns whether somebody looks after multipath devices. `multipath` makes them without
/// the daemon, too; then a path that has failed never comes back.
async fn multipathd_runs(host: &dyn Host, naa: &str) -> bool {
    let said = host.run("multipathd", &["show", "daemon"], COMMAND_SECONDS).await;
    let runs = said.is_ok_and(|said| said.trim_start().starts_with("pid"));
    if !runs {
        tracing::warn!(naa, "no multipathd: one path is used; start it for several");
    }
    runs
}

async fn until<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        sleep(POLL_PAUSE).await;
    }
}

/// Returns the disk of a volume that is attached.
pub(super) fn attached(host: &dyn Host, target: &str, naa: &str) -> Option<Disk> {
    host.multipath(target, naa).or_else(|| host.paths(target, naa).into_iter().next())
}

/// Returns the condition of a volume's disk. It is in order if a session is logged in, and
/// the disk answers a read in time.
pub(super) async fn condition(host: &dyn Host, reads: &Probes, known: &DiskRecord) -> Condition {
    let Some(disk) = attached(host, &known.target, &known.naa) else {
        return Condition::Fault(
            "its disk is not attached; delete the pod, so that it is attached again".to_owned(),
        );
    };
    if !host.is_logged_in(&known.target) {
        return Condition::Fault(format!(
            "no session with {} is logged in; the volume goes on when the gateway is back",
            known.target
        ));
    }
    let device = disk.device.display();
    let place = match reads.begin(&known.naa).await {
        Ok(place) => place,
        Err(NoPlace::Busy) => {
            let reason = "earlier reads of disks still wait";
            return Condition::Unknown(format!("{device} was not examined: {reason}"));
        }
        Err(NoPlace::Overdue { since }) => {
            return Condition::Fault(format!(
                "{device} does not answer a read since {since}; look at the node's kernel log and \
                 at the gateway"
            ));
        }
    };
    let from = format!("if={device}");
    // Not what this machine remembers of the disk.
    let arguments = ["status=none", "iflag=direct", "bs=4096", "count=1", &from, "of=/dev/null"];
    match host.run_holding("dd", &arguments, STATS_SECONDS, Box::new(place)).await {
        Ok(_) => Condition::InOrder,
        Err(error) if !error.has_run() => {
            Condition::Unknown(format!("{device} was not examined: {error}"))
        }
        Err(error) => Condition::Fault(format!(
            "{device} cannot be read: {error}; look at the node's kernel log and at the gateway"
        )),
    }
}

/// Removes a multipath device. With what waits in it for paths that are gone, it could not be
/// removed; and what is left in it would reach the disk when another stage brings paths back,
/// over what others have written since. So it fails first, also if a session is logged in.
///
/// One of a dead gateway may still be in use when this returns: what has it open may wait for the
/// logout, see [`remove_rest`]. While the gateway answers, one that stays in use is an error, unless
/// other block devices of the node lie on it.
async fn remove_map(
    host: &dyn Host,
    (target, naa): (&str, &str),
    map: &Disk,
) -> Result<(), Status> {
    let device = map.device.to_string_lossy().into_owned();
    let failing = ["disablequeueing", "map", &device];
    let fault = match host.run("multipathd", &failing, MULTIPATH_FAIL_SECONDS).await {
        // A refusal may be told by its word alone, with status 0.
        Ok(said) if said.trim_start().starts_with("fail") => Some(said.trim().to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    // Fails while it is in use.
    let removed = host.run("multipath", &["-f", &device], MULTIPATH_REMOVE_SECONDS).await;
    if host.left_multipath(target, naa).is_none() {
        if let Some(fault) = fault {
            // Nothing waited in it: multipathd is not needed.
            tracing::warn!(device, fault, "multipathd");
        }
        return Ok(());
    }
    if let Some(fault) = fault {
        let what = format!("{device} may keep what waits for its paths");
        return Err(ours(&what, &format!("multipathd: {fault}")));
    }
    match removed {
        // Whoever uses it would lose it with the session, and what it writes. udev has it open
        // for a moment after an unmount.
        Err(error) if error.has_run() && host.is_logged_in(target) => {
            match remove_rest(host, (target, naa), Instant::now() + BRIEF_USE_SECONDS).await {
                // LVM of the node has found a volume group of the pod's and would have it open
                // for good. Nobody here writes to it, and no other node could have the volume.
                Err(in_use) if host.has_holders(map) => {
                    let hint = "keep LVM of the node from it: global_filter in lvm.conf";
                    tracing::warn!(
                        device,
                        reason = in_use.message(),
                        hint,
                        "logging out all the same"
                    );
                    Ok(())
                }
                ended => ended,
            }
        }
        Err(error) => {
            tracing::warn!(device, %error, "multipath");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

/// Removes what is left of a multipath device, until `last`. After the logout, what waited in it
/// has failed with its paths, and what had it open for that, such as the file system, ends a
/// moment later. multipathd removes a device with its last path, too, but tries that once.
async fn remove_rest(
    host: &dyn Host,
    (target, naa): (&str, &str),
    last: Instant,
) -> Result<(), Status> {
    let gone = || host.left_multipath(target, naa).is_none().then_some(());
    let mut reason = "no time was left to remove it".to_owned();
    loop {
        let pause = REMOVAL_PAUSE.min(last.saturating_duration_since(Instant::now()));
        if until(pause, gone).await.is_some() {
            return Ok(());
        }
        let Some(map) = host.left_multipath(target, naa) else { return Ok(()) };
        let device = map.device.to_string_lossy().into_owned();
        if Instant::now() >= last {
            return Err(ours(&still_in_use(&device), &reason));
        }
        let removed = host.run("multipath", &["-f", &device], MULTIPATH_REMOVE_SECONDS).await;
        reason = match removed {
            Ok(_) => "multipath has not removed it".to_owned(),
            Err(error) => error.to_string(),
        };
    }
}

/// Removes the multipath device that an unstage has left because it was in use. It would get the
/// paths of this stage, and has what the kernel remembers of the disk: others may have written
/// since.
async fn remove_left(host: &dyn Host, disk: (&str, &str)) -> Result<(), Status> {
    let (target, naa) = disk;
    // The paths of one with a session are this stage's, begun by an earlier call.
    if host.has_session(target) {
        return Ok(());
    }
    let Some(map) = host.left_multipath(target, naa) else { return Ok(()) };
    remove_map(host, disk, &map).await?;
    remove_rest(host, disk, Instant::now() + MULTIPATH_SECONDS).await
}

fn still_in_use(device: &str) -> String {
    format!("{device} is still in use; end what has it open (`lsblk {device}`)")
}

/// Logs out of a target.
async fn log_out(host: &dyn Host, target: &str) -> Result<(), Status> {
    let all = ["-m", "node", "-T", target, "--logout"];
    let mut ended = host.run("iscsiadm", &all, LOGOUT_SECONDS).await;
    if ended.as_ref().is_err_and(|error| error.status() == Some(NO_OBJECTS)) {
        // The kernel may have sessions without a record, as after the loss of /etc/iscsi.
        let end = Instant::now() + LOGOUT_SECONDS;
        for number in host.session_numbers(target) {
            let one = ["-m", "session", "-r", &number, "--logout"];
            let rest = end.saturating_duration_since(Instant::now());
            if let Err(error) = host.run("iscsiadm", &one, rest).await {
                ended = Err(error);
            }
        }
    }
    match ended {
        Err(error) if host.has_session(target) => {
            Err(ours(&format!("the session with {target} does not end"), &error))
        }
        _ => Ok(()),
    }
}

/// Ends the sessions with a target, in an unstage that has begun at `begun`.
pub(super) async fn detach(
    node: &Node,
    (target, naa): (&str, &str),
    begun: Instant,
) -> Result<(), Status> {
    let host = &*node.host;
    let map = host.left_multipath(target, naa);
    let paths = host.paths(target, naa);
    // The kernel goes on writing after an unmount, and in other mount name spaces. What was
    // mounted from a path does not have the multipath device that was made of the others.
    let mut disks = map.iter().chain(&paths);
    if let Some(disk) = disks.find(|disk| host.has_filesystem(&disk.device))
        && host.is_logged_in(target)
    {
        return Err(Status::unavailable(format!(
            "the file system on {} is still in use or being written; unstage it again",
            disk.device.display()
        )));
    }
    if let Some(map) = &map {
        remove_map(host, (target, naa), map).await?;
    }
    log_out(host, target).await?;
    let all = ["-m", "node", "-T", target];
    // The wait for a turn is not to take the time in which a multipath device can be removed.
    let (forgotten, removed) = tokio::join!(
        node.record_turns.delete(host, &all, begun + LAST_TURN_SECONDS),
        remove_rest(host, (target, naa), begun + LAST_REMOVAL_SECONDS),
    );
    match forgotten {
        Err(error) if error.status() != Some(NO_OBJECTS) => return Err(ours("iscsiadm", &error)),
        _ => {}
    }
    match removed {
        // Without a path nothing of it reaches the disk. A process that has it open may never
        // end, and keeps only the next stage on this machine out: see `remove_left`.
        Err(error) if !host.has_session(target) => {
            tracing::warn!(target, error = error.message(), "a multipath device is left");
            Ok(())
        }
        ended => ended,
    }
}

/// Reads the size of a disk that has grown.
pub(super) async fn rescan(
    host: &dyn Host,
    target: &str,
    naa: &str,
    required_bytes: u64,
) -> Result<Disk, Status> {
    let missing = || ours("no disk", &format!("{naa} is not attached"));
    let arguments = ["-m", "node", "-T", target, "-R"];
    host.run("iscsiadm", &arguments, LOGIN_SECONDS)
        .await
        .map_err(|error| ours("rescan", &error))?;
    if let Some(disk) = host.multipath(target, naa)
        && let Some(map) = disk.device.file_name().and_then(|name| name.to_str())
    {
        let arguments = ["resize", "map", map];
        if let Err(error) = host.run("multipathd", &arguments, COMMAND_SECONDS).await {
            tracing::warn!(%error, "multipathd");
        }
    }
    let grown = || attached(host, target, naa).filter(|disk| disk.size_bytes >= required_bytes);
    match until(GROWTH_SECONDS, grown).await {
        Some(disk) => Ok(disk),
        None => {
            let disk = attached(host, target, naa).ok_or_else(missing)?;
            let reason = format!("{} bytes of {required_bytes}", disk.size_bytes);
            Err(ours("the disk has not grown", &reason))
        }
    }
}
