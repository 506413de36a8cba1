//! The gateway as a service: start, reload, requests and stop.

use super::activity;
use super::reconcile::{Prepared, Reconciler};
use super::run::Gateway;
use super::settings::settings;
use super::shared::Shared;
use super::status;
use super::systemd::{notify, start_watchdog};
use super::watch::DatasetWatcher;
use crate::admin::{self, Handler, Reply, Request};
use crate::exports::settings::check_directories;
use crate::iscsi;
use crate::net::accept::bind;
use crate::nfs::rpcbind;
use crate::observe::http::{self, Http};
use crate::observe::pools;
use crate::schedule::{self, Schedule};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use zgate_config::{Change, Config, Effect, EntryChange};
use zgate_control::Tool;
use zgate_control::snapshot::Policy;

/// Note for changes that do not outlive the process.
const RUNTIME_ONLY: &str =
    "in effect until the next reload or restart; change the configuration file to keep it";

/// Event for the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Reload,
    Stop,
}

/// Result of a reload.
#[derive(Debug, Serialize)]
struct Reloaded {
    /// Keys that differ.
    changes: Vec<Change>,
    /// Exports, rules, targets and logical units that were added, removed or
    /// changed.
    entries: Vec<EntryChange>,
}

/// A gateway that serves a configuration.
pub struct Running {
    gateway: Arc<Gateway>,
    reconciler: Arc<Reconciler>,
    http: Http,
}

impl Running {
    /// Opens everything, then listens.
    ///
    /// # Errors
    /// The thing, the reason and the next step.
    pub fn start(config: &Config) -> io::Result<Self> {
        let reconciler = Reconciler::new();
        let prepared = reconciler.prepare(config)?;
        let Prepared { block, outcome, .. } = &prepared;
        let gateway = Gateway::start(&settings(config), &outcome.exports, block, &outcome.volumes)?;
        reconciler.adopt(prepared);
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("metrics_listen: {error}"));
        let listener = bind(config.server.metrics_listen).map_err(named)?;
        let http = http::start(listener, Arc::clone(&gateway.shared)).map_err(named)?;
        Ok(Self { gateway: Arc::new(gateway), reconciler, http })
    }

    /// Returns the addresses of NFS.
    pub fn nfs_addresses(&self) -> &[SocketAddr] {
        &self.gateway.addresses
    }

    /// Returns the addresses of iSCSI.
    pub fn portals(&self) -> impl Iterator<Item = SocketAddr> {
        self.gateway.shared.iscsi.portals().iter().map(|portal| portal.address)
    }

    /// Returns the address of metrics and status.
    pub fn http_address(&self) -> SocketAddr {
        self.http.address
    }

    /// Finishes running requests, closes the connections and ends.
    pub fn stop(&self) {
        self.gateway.stop();
    }
}

/// Serves the configuration at `path` until it is told to stop. True: it
/// stopped in order.
///
/// # Errors
/// The thing, the reason and the next step.
pub fn serve(path: &Path) -> Result<bool, Box<dyn std::error::Error>> {
    let config = zgate_config::examine(path, check_directories)?;
    let policies = schedule::policies(&config)?;
    let running = Running::start(&config)?;
    let Running { gateway, reconciler, http } = &running;
    pools::start(&gateway.shared.pools, config.server.pool_sample_seconds)?;
    let (events, happened) = mpsc::channel();
    let current = Arc::new(Mutex::new(config.clone()));
    let schedule = {
        let (iscsi, views) =
            (Arc::clone(&gateway.shared.iscsi), Arc::clone(&gateway.shared.schedules));
        let flush = move |tool: &dyn Tool, policy: &Policy| iscsi.flush_policy(tool, policy);
        Arc::new(Schedule::start(policies, Box::new(flush), views)?)
    };
    let watcher = DatasetWatcher::start(reconciler, gateway)?;
    let handler =
        handler(gateway, path.to_owned(), &current, &schedule, reconciler, events.clone());
    admin::start(&config.server.admin_socket, handler)?;
    watch_signals(events)?;
    tracing::info!(
        addresses = ?gateway.addresses,
        exports = config.exports.len(),
        targets = config.targets.len(),
        metrics = %http.address,
        "serving"
    );
    if config.exports.is_empty() && config.targets.is_empty() {
        tracing::warn!("nothing is exported: add an [[export]] to the configuration");
    }
    let registered = config.server.rpcbind;
    if let (true, Some(address)) = (registered, gateway.addresses.first()) {
        rpcbind::register(address.port());
    }
    start_watchdog(Arc::clone(&gateway.shared))?;
    notify("READY=1");
    while let Ok(event) = happened.recv() {
        match event {
            Event::Stop => break,
            Event::Reload => {
                match reload(gateway, path, &current, &schedule, reconciler) {
                    Ok(reloaded) => {
                        for EntryChange { entry, event, detail, .. } in &reloaded.entries {
                            tracing::info!(entry, detail, "{event}");
                        }
                        let changes = reloaded.changes.len();
                        tracing::info!(changes, "configuration reloaded");
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot reload the configuration; nothing changed");
                    }
                }
                notify("READY=1");
            }
        }
    }
    notify("STOPPING=1");
    tracing::info!("draining: running requests are finished, new ones are not accepted");
    if registered {
        rpcbind::unregister();
    }
    drop(watcher);
    gateway.stop();
    tracing::info!("stopped");
    // The socket of a stopped gateway is of no use any more.
    let _ = std::fs::remove_file(&config.server.admin_socket);
    Ok(true)
}

/// Reloads, all or nothing: the new exports are opened before the old ones are
/// closed.
fn reload(
    gateway: &Gateway,
    path: &Path,
    current: &Mutex<Config>,
    schedule: &Schedule,
    reconciler: &Reconciler,
) -> io::Result<Reloaded> {
    let invalid = |error: zgate_config::ConfigError| {
        io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
    };
    let new = zgate_config::load(path).map_err(invalid)?;
    let mut old = current.lock().unwrap_or_else(PoisonError::into_inner);
    let changes = zgate_config::diff(&old, &new);
    let entries = zgate_config::changed_entries(&old, &new);
    let policies = schedule::policies(&new)?;
    reconciler.replace(&new, |prepared| {
        let outcome = &prepared.outcome;
        gateway.replace(&outcome.exports, &prepared.block, &outcome.volumes)
    })?;
    for change in changes.iter().filter(|change| change.effect == Effect::Restart) {
        tracing::warn!(
            key = change.key,
            old = change.old,
            new = change.new,
            "takes effect after a restart"
        );
    }
    schedule.replace(policies);
    *old = zgate_config::after_reload(&old, new);
    Ok(Reloaded { changes, entries })
}

fn handler(
    gateway: &Arc<Gateway>,
    path: PathBuf,
    current: &Arc<Mutex<Config>>,
    schedule: &Arc<Schedule>,
    reconciler: &Arc<Reconciler>,
    events: mpsc::Sender<Event>,
) -> Handler {
    let (gateway, reconciler) = (Arc::clone(gateway), Arc::clone(reconciler));
    let (current, schedule) = (Arc::clone(current), Arc::clone(schedule));
    let events = Mutex::new(events);
    Arc::new(move |request| {
        let value = match request {
            Request::Status => {
                let silent = silent_cores(&gateway.shared);
                serde_json::to_value(status::status(&gateway.shared, &silent))
            }
            Request::Activity => serde_json::to_value(activity::activity(&gateway.shared)),
            Request::Exports => serde_json::to_value(status::exports(&gateway.shared)),
            Request::Clients => serde_json::to_value(status::clients(&gateway.shared)),
            Request::Release { dataset, seconds } => {
                match reconciler.release(&gateway, &dataset, seconds) {
                    Ok(released) => serde_json::to_value(released),
                    Err(error) => return Reply::Error(error.to_string()),
                }
            }
            Request::Resume { dataset } => match reconciler.resume(&gateway, &dataset) {
                Ok(()) => Ok(serde_json::json!({ "resumed": dataset })),
                Err(error) => return Reply::Error(error.to_string()),
            },
            Request::Schedules => serde_json::to_value(schedule.views()),
            Request::Reload => match reload(&gateway, &path, &current, &schedule, &reconciler) {
                Ok(reloaded) => serde_json::to_value(reloaded),
                Err(error) => return Reply::Error(format!("nothing changed: {error}")),
            },
            Request::Drain => {
                let events = events.lock().unwrap_or_else(PoisonError::into_inner);
                match events.send(Event::Stop) {
                    Ok(()) => Ok(serde_json::json!({ "draining": true })),
                    Err(_) => return Reply::Error("the gateway is stopping already".to_owned()),
                }
            }
            request => match about_targets(&gateway.shared, request) {
                Ok(value) => Ok(value),
                Err(error) => return Reply::Error(error.to_string()),
            },
        };
        value.map_or_else(|error| Reply::Error(error.to_string()), Reply::Ok)
    })
}

/// Returns the cores that do not answer a ping in time.
fn silent_cores(shared: &Shared) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let asked = runtime.map(|runtime| {
        runtime.block_on(async { shared.health.silent_cores(http::ANSWER_TIMEOUT).await })
    });
    asked.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot ping the cores");
        Vec::new()
    })
}

/// Handles requests about iSCSI.
fn about_targets(shared: &Shared, request: Request) -> io::Result<serde_json::Value> {
    let block = &shared.iscsi;
    let pattern = |text: &str| {
        text.parse::<zgate_config::NamePattern>()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    };
    Ok(match request {
        Request::Targets => serde_json::to_value(iscsi::status::targets(block, &shared.facts))?,
        Request::Sessions => serde_json::to_value(iscsi::status::sessions(block))?,
        Request::Acl => serde_json::to_value(iscsi::status::access(block))?,
        Request::FlushVolumes { zvols } => {
            let names = zvols.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>();
            let names =
                names.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            serde_json::to_value(block.flush_volumes(&names)?)?
        }
        Request::LunAdd { target, lun } => {
            block.add_lun(&target, &lun)?;
            changed(serde_json::json!({ "target": target, "added_lun": lun.number }))
        }
        Request::LunRemove { target, number } => {
            block.remove_lun(&target, number)?;
            changed(serde_json::json!({ "target": target, "removed_lun": number }))
        }
        Request::LunResize { target, number, size_bytes } => {
            let size = block.resize_lun(&target, number, size_bytes)?;
            serde_json::json!({ "target": target, "lun": number, "size_bytes": size })
        }
        Request::AclAdd { target, rule } => {
            block.allow(&target, &rule)?;
            changed(serde_json::json!({ "target": target, "allowed": rule.name }))
        }
        Request::AclRemove { target, initiator } => {
            block.deny(&target, &pattern(&initiator)?)?;
            changed(serde_json::json!({ "target": target, "withdrawn": initiator }))
        }
        other => return Err(io::Error::other(format!("{other:?} is not about targets"))),
    })
}

/// Watches signals: SIGHUP reloads; SIGTERM and Ctrl-C drain.
fn watch_signals(events: mpsc::Sender<Event>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut hangup, mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::hangup())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        )
    };
    std::thread::Builder::new().name("zgate-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                let event = tokio::select! {
                    _ = hangup.recv() => Event::Reload,
                    _ = terminate.recv() => Event::Stop,
                    _ = interrupt.recv() => Event::Stop,
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        });
    })?;
    Ok(())
}

/// Returns the answer of a change.
fn changed(what: serde_json::Value) -> serde_json::Value {
    let mut answer = serde_json::json!({ "changed": what, "note": RUNTIME_ONLY });
    if answer["changed"].is_null()
        && let Some(fields) = answer.as_object_mut()
    {
        fields.remove("changed");
    }
    answer
}
