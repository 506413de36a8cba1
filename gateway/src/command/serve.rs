//! `zgate serve`: the gateway as a service.

use super::block::changed;
use crate::admin::{self, Handler, Reply, Request};
use crate::block::view;
use crate::follow::Follow;
use crate::follow::watch::Follower;
use crate::lifecycle::build;
use crate::lifecycle::run::Gateway;
use crate::lifecycle::systemd::{notify, start_watchdog};
use crate::listen::rpcbind;
use crate::observe::{http, pools, status};
use crate::schedule::{self, Schedule};
use crate::serve::service::Shared;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use zgate_config::{Change, Config, Effect};

/// What to serve.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What the main thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Reload,
    Stop,
}

const NO_CONFIG: &str = "serve needs a configuration: zgate serve --config zgate.toml
A first one:

    [[export]]
    path = \"/tank/models\"
    pseudo = \"/models\"
    clients = [{ match = \"192.168.1.0/24\", access = \"rw\" }]

`zgate config check --config zgate.toml` reads it without starting anything;
`zgate demo` shows a gateway at work without any configuration.";

/// Serves until it is told to stop. True: it ended in order.
///
/// # Errors
/// Naming the thing, the reason and the next step.
pub(crate) fn run(args: &ServeArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let Some(path) = &args.config else {
        eprintln!("zgate: {NO_CONFIG}");
        std::process::exit(2);
    };
    let config = zgate_config::load(path)?;
    super::config::check_directories(&config)?;
    let policies = schedule::policies(&config)?;
    let follow = Follow::new();
    let prepared = follow.prepare(&config)?;
    let gateway = Gateway::start(
        &build::settings(&config),
        &prepared.outcome.exports,
        &prepared.plan.block,
        &prepared.outcome.volumes,
    )?;
    follow.adopt(prepared);
    pools::start(&gateway.shared.pools, config.server.pool_sample_seconds)?;
    let http = http::start(config.server.metrics_listen, Arc::clone(&gateway.shared))
        .map_err(|error| format!("metrics_listen: {error}"))?;
    let (events, happened) = mpsc::channel();
    let current = Arc::new(Mutex::new(config.clone()));
    let gateway = Arc::new(gateway);
    let schedule = {
        let (block, views) = (&gateway.shared.block, &gateway.shared.schedules);
        Schedule::start(policies, Arc::clone(block), Arc::clone(views))?
    };
    let schedule = Arc::new(schedule);
    let follower = Follower::start(&follow, &gateway)?;
    let handler = handler(&gateway, path.clone(), &current, &schedule, &follow, events.clone());
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
        tracing::warn!("nothing is exported: name an [[export]] in the configuration");
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
                match reload(&gateway, path, &current, &schedule, &follow) {
                    Ok(changes) => {
                        tracing::info!(changes = changes.len(), "configuration reloaded");
                    }
                    Err(error) => {
                        tracing::error!(%error, "configuration not reloaded; nothing changed");
                    }
                }
                notify("READY=1");
            }
        }
    }
    notify("STOPPING=1");
    tracing::info!("draining: what runs is finished, nothing new is taken in");
    if registered {
        rpcbind::unregister();
    }
    drop(follower);
    gateway.stop();
    tracing::info!("stopped");
    // The socket of a gateway that ended in order leads nowhere any more.
    let _ = std::fs::remove_file(&config.server.admin_socket);
    Ok(true)
}

/// All or nothing: the new exports are opened before the old ones go.
fn reload(
    gateway: &Gateway,
    path: &Path,
    current: &Mutex<Config>,
    schedule: &Schedule,
    follow: &Follow,
) -> io::Result<Vec<Change>> {
    let invalid = |error: zgate_config::ConfigError| {
        io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
    };
    let new = zgate_config::load(path).map_err(invalid)?;
    let mut old = current.lock().unwrap_or_else(PoisonError::into_inner);
    let changes = zgate_config::diff(&old, &new);
    let policies = schedule::policies(&new)?;
    follow.replace(&new, |prepared| {
        let outcome = &prepared.outcome;
        gateway.replace(&outcome.exports, &prepared.plan.block, &outcome.volumes)
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
    Ok(changes)
}

fn handler(
    gateway: &Arc<Gateway>,
    path: PathBuf,
    current: &Arc<Mutex<Config>>,
    schedule: &Arc<Schedule>,
    follow: &Arc<Follow>,
    events: mpsc::Sender<Event>,
) -> Handler {
    let (gateway, follow) = (Arc::clone(gateway), Arc::clone(follow));
    let (current, schedule) = (Arc::clone(current), Arc::clone(schedule));
    let events = Mutex::new(events);
    Arc::new(move |request| {
        let value = match request {
            Request::Status => serde_json::to_value(status::status(&gateway.shared)),
            Request::Exports => serde_json::to_value(status::exports(&gateway.shared)),
            Request::Clients => serde_json::to_value(status::clients(&gateway.shared)),
            Request::Release { dataset, seconds } => {
                match follow.release(&gateway, &dataset, seconds) {
                    Ok(released) => serde_json::to_value(released),
                    Err(error) => return Reply::Error(error.to_string()),
                }
            }
            Request::Resume { dataset } => match follow.resume(&gateway, &dataset) {
                Ok(()) => Ok(serde_json::json!({ "resumed": dataset })),
                Err(error) => return Reply::Error(error.to_string()),
            },
            Request::Schedules => serde_json::to_value(schedule.views()),
            Request::Reload => match reload(&gateway, &path, &current, &schedule, &follow) {
                Ok(changes) => Ok(serde_json::json!({ "changes": changes })),
                Err(error) => return Reply::Error(format!("nothing changed: {error}")),
            },
            Request::Drain => {
                let events = events.lock().unwrap_or_else(PoisonError::into_inner);
                match events.send(Event::Stop) {
                    Ok(()) => Ok(serde_json::json!({ "draining": true })),
                    Err(_) => return Reply::Error("it is stopping already".to_owned()),
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

/// Requests about iSCSI.
fn about_targets(shared: &Shared, request: Request) -> io::Result<serde_json::Value> {
    let block = &shared.block;
    let pattern = |text: &str| {
        text.parse::<zgate_config::NamePattern>()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    };
    Ok(match request {
        Request::Targets => serde_json::to_value(view::targets(block, &shared.facts))?,
        Request::Sessions => serde_json::to_value(view::sessions(block))?,
        Request::Acl => serde_json::to_value(view::access(block))?,
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

/// SIGHUP reloads; SIGTERM and Ctrl-C drain.
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
