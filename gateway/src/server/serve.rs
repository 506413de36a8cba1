//! The gateway as a service: start, reload, requests and stop.

use super::absent::Source;
use super::activity;
use super::api::{self, CarryOut, credentials};
use super::check::absent_now;
use super::end::wind_down;
use super::events::{Event, Reload, until_stop, watch_abort, watch_hangup, watch_stop};
use super::handover;
use super::kept::ConfDirLock;
use super::left_connections::ConnectionList;
use super::limits::API_TOOL_SECONDS;
use super::listen::Awaited;
use super::live::LiveConfig;
use super::reconcile::{Prepared, Reconciler};
use super::retry::Retrier;
use super::run::Gateway;
use super::settings::{kerberos_settings, remove_old_replay_cache, settings};
use super::shared::Shared;
use super::status;
use super::systemd::{notify, start_watchdog};
use super::volumes::VolumeService;
use super::volumes::serving::LiveServing;
use super::watch::{DatasetWatcher, ReplacementRequests};
use super::web::{self, access};
use crate::admin::{self, Client, Handler, Reply, Request};
use crate::exports::open::Opening;
use crate::iscsi;
use crate::nfs::gss::kerberos::Offer;
use crate::nfs::rpcbind;
use crate::nfs::service::Nfs;
use crate::observe::audit::{self, Asker};
use crate::observe::http::{self, Http, TlsSource};
use crate::observe::pools;
use crate::schedule::{self, Schedule};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use zgate_config::{Config, InitiatorConfig, LiveChange, MetricsTransport};
use zgate_control::Tool;
use zgate_control::snapshot::Policy;
use zgate_control::tool::SystemTool;
use zgate_tls::{Certificates, TlsFault};

/// A gateway that serves a configuration.
pub struct Running {
    gateway: Arc<Gateway>,
    reconciler: Arc<Reconciler>,
    http: Http,
    /// Routes of the status address, without its access rules.
    reading: axum::Router,
    /// Listeners of the API, which nothing serves yet.
    api_listeners: Vec<TcpListener>,
}

impl Running {
    /// Opens everything, then listens. What is absent comes later, unless
    /// `strict`.
    ///
    /// # Errors
    /// The thing, the reason and the next step.
    pub fn start(config: &Config, strict: bool) -> io::Result<Self> {
        Self::start_after(config, strict, || Ok(()))
    }

    /// The same; `before_listening` runs when everything is open, before anything listens.
    fn start_after(
        config: &Config,
        strict: bool,
        before_listening: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let how = if strict { Opening::StrictStart } else { Opening::Start };
        let token = access::configured(config)?;
        let api_credentials = credentials::configured(config)?;
        let certificates = certificates(config)?;
        let kerberos = kerberos(config)?;
        let reconciler = Reconciler::new();
        let prepared = reconciler.prepare(config)?;
        let Prepared { block, outcome, .. } = &prepared;
        let disks = (outcome.volumes.as_slice(), outcome.granted.as_slice());
        let settings = settings(config);
        let (awaited, metrics) = (Awaited::default(), config.server.metrics_listen);
        let (mut api_listeners, mut metrics_listener) = (Vec::new(), None);
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("metrics_listen: {error}"));
        // Clients that come back after a restart ask for TLS at once; a refusal is final.
        let prepare = |shared: &Shared| {
            shared.network.tls.replace(certificates);
            if let Some(kerberos) = kerberos_settings(config) {
                kerberos.make_cache_dir()?;
            }
            remove_old_replay_cache(config);
            shared.nfs.kerberos.replace(kerberos);
            start_name_service(config, &shared.nfs)?;
            set_domain(config, &shared.nfs);
            shared.iscsi.await_targets(&outcome.awaited);
            before_listening()?;
            // An address that another program uses ends the start before a client is served.
            api_listeners = awaited.listen_all("API", &config.api.listen, how)?;
            metrics_listener = Some(awaited.listen("metrics", metrics, how).map_err(named)?);
            Ok(())
        };
        let gateway = Gateway::start(&settings, &outcome.exports, block, disks, how, prepare)?;
        reconciler.adopt(prepared);
        gateway.awaited.add(awaited);
        gateway.shared.absent.update(Source::Datasets, reconciler.missing());
        gateway.shared.absent.update(Source::Addresses, gateway.awaited.absent());
        let listener = metrics_listener.ok_or_else(|| io::Error::other("nothing listens"))?;
        let shared = &gateway.shared;
        shared.access.set_address(listener.local_addr()?);
        if token.is_none() && !listener.local_addr()?.ip().to_canonical().is_loopback() {
            tracing::warn!(
                address = %metrics,
                "other machines reach the status address, so the web page, the API and /status \
                 are refused there: set server.status_token_file"
            );
        }
        shared.access.set_token(token);
        shared.set_api_credentials(api_credentials);
        let web::Routes { guarded, reading } = web::routes(shared, api::document::with_changes)?;
        let tls = metrics_tls(config.server.metrics_transport, shared);
        let http = http::start(listener, Arc::clone(shared), guarded, tls).map_err(named)?;
        Ok(Self { gateway: Arc::new(gateway), reconciler, http, reading, api_listeners })
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

/// Returns the source of TLS for the address of metrics and status; `None`: it
/// speaks HTTP. A reload replaces the certificates of connections that begin later.
fn metrics_tls(transport: MetricsTransport, shared: &Arc<Shared>) -> Option<TlsSource> {
    let requires_certificate = match transport {
        MetricsTransport::Plain => return None,
        MetricsTransport::Tls => false,
        MetricsTransport::Mtls => true,
    };
    let shared = Arc::clone(shared);
    Some(Arc::new(move || Some(shared.api_credentials()?.for_metrics(requires_certificate))))
}

/// Reads the certificates of a configuration.
///
/// # Errors
/// The file that cannot be used, the reason and the next step.
pub(super) fn certificates(config: &Config) -> io::Result<Option<Certificates>> {
    let named = |TlsFault { key, problem, next_step }| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("tls.{key}: {problem}; {next_step}"))
    };
    config.tls.as_ref().map(Certificates::read).transpose().map_err(named)
}

/// Starts the name service if a configuration needs it. It changes no answer.
///
/// # Errors
/// The system's, for threads.
pub(super) fn start_name_service(config: &Config, nfs: &Nfs) -> io::Result<()> {
    let mut clients = config.exports.iter().flat_map(|export| &export.clients);
    if config.server.id_domain.is_some() || clients.any(|client| client.manage_groups) {
        nfs.runtime.name_service.start()?;
    }
    Ok(())
}

/// Sets the domain of names to that of a configuration that takes effect. The name
/// service must have been started for it.
pub(super) fn set_domain(config: &Config, nfs: &Nfs) {
    nfs.runtime.name_service.set_domain(config.server.id_domain.as_deref());
}

/// Finds the keys of a configuration's Kerberos, and starts its workers.
///
/// # Errors
/// The setting, the reason and the next step.
pub(super) fn kerberos(config: &Config) -> io::Result<Option<Offer>> {
    kerberos_settings(config).as_ref().map(Offer::new).transpose()
}

/// Serves the configuration at `path` until it is told to stop. True: it
/// stopped in order. If `strict`, absent paths, devices, host names and addresses
/// are errors, also in a reload.
///
/// # Errors
/// The thing, the reason and the next step.
pub fn serve(path: &Path, strict: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let (events, happened) = mpsc::channel();
    // First: a reload may be asked for at any time, and comes after the start.
    watch_hangup(&events)?;
    watch_abort()?;
    // Live commands write beside it, whatever the working directory is then.
    let path = std::path::absolute(path)?;
    let absent = |config: &Config| if strict { absent_now(config) } else { Vec::new() };
    let config = zgate_config::examine(&path, absent)?;
    let policies = schedule::policies(&config)?;
    let mut conf_dir = ConfDirLock::default();
    conf_dir.hold(&path)?;
    // Not before: a start whose storage hangs can be ended. Clients are owed a drain.
    let mut running = Running::start_after(&config, strict, || watch_stop(&events))?;
    let api_listeners = std::mem::take(&mut running.api_listeners);
    let Running { gateway, reconciler, http, .. } = &running;
    // Before all else: the clients of the gateway before wait for it.
    let connection_list = ConnectionList::start(gateway)?;
    pools::start(&gateway.shared.pools, config.server.pool_sample_seconds)?;
    let schedule = {
        let (iscsi, views) =
            (Arc::clone(&gateway.shared.iscsi), Arc::clone(&gateway.shared.schedules));
        let flush = move |tool: &dyn Tool, policy: &Policy| iscsi.flush_policy(tool, policy);
        Schedule::start(policies, Box::new(flush), views)?
    };
    let watcher = DatasetWatcher::start(reconciler, gateway)?;
    let retrier = Retrier::start(reconciler, gateway)?;
    let examined = path.clone();
    let live =
        Arc::new(LiveConfig::new(gateway, reconciler, schedule, path, config.clone(), conf_dir));
    gateway.shared.doctor.open(&examined, &config.server.admin_socket)?;
    let carry_out = carry_out(Arc::clone(&live), watcher.requests(), events.clone());
    admin::start(&config.server.admin_socket, handler(Arc::clone(&carry_out)))?;
    start_api(&running, &config, api_listeners, carry_out)?;
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
    if registered {
        rpcbind::register(&gateway.addresses);
    }
    start_watchdog(Arc::clone(&gateway.shared))?;
    notify("READY=1");
    let reload: Reload = Arc::new(move || {
        if let Err(error) = live.reload(&Asker::Signal, false) {
            tracing::error!(%error, "cannot reload the configuration; nothing changed");
        }
    });
    let is_reloading = until_stop(&events, &happened, &reload);
    wind_down(gateway, || {
        if registered {
            rpcbind::unregister(&gateway.addresses);
        }
        drop(retrier);
        drop(watcher);
        drop(connection_list);
    });
    if is_reloading {
        tracing::warn!("a reload had not ended: the next start reads the configuration");
    }
    // The socket of a stopped gateway is of no use any more.
    let _ = std::fs::remove_file(&config.server.admin_socket);
    let _ = std::fs::remove_file(config.api.socket_path(&config.server.admin_socket));
    Ok(true)
}

/// Carries out requests of the admin socket and of the API.
fn carry_out(
    live: Arc<LiveConfig>,
    replacements: Arc<ReplacementRequests>,
    events: mpsc::Sender<Event>,
) -> CarryOut {
    let events = Mutex::new(events);
    Arc::new(move |request, by| {
        let what = requested(&request);
        let answer = answer(&live, &replacements, &events, request, &by);
        if let Some(what) = what {
            match &answer {
                Ok(answer) => audit::change(&by, &what, Ok(&outcome(answer))),
                Err(error) => audit::change(&by, &what, Err(&error.to_string())),
            }
        }
        answer
    })
}

fn handler(carry_out: CarryOut) -> Handler {
    Arc::new(move |request, client| {
        let by = client.map_or(Asker::Unknown, |Client { uid, pid }| Asker::Process { uid, pid });
        match carry_out(request, by) {
            Ok(value) => Reply::Ok(value),
            Err(error) => Reply::Error(error.to_string()),
        }
    })
}

/// Serves the API at its listeners and at its socket.
fn start_api(
    running: &Running,
    config: &Config,
    listeners: Vec<TcpListener>,
    carry_out: CarryOut,
) -> io::Result<()> {
    let Running { gateway, reconciler, reading, .. } = running;
    for listener in &listeners {
        listener.set_nonblocking(true)?;
        tracing::info!(address = %listener.local_addr()?, "the API listens with TLS");
    }
    let tool = Arc::new(SystemTool { limit_seconds: API_TOOL_SECONDS });
    let serving = Arc::new(LiveServing::new(gateway, reconciler));
    let volumes = VolumeService::new(tool, serving);
    let router = api::router(volumes, carry_out, reading.clone());
    let shared = Arc::clone(&gateway.shared);
    let credentials = Arc::new(move || shared.api_credentials());
    api::start(&config.api.socket_path(&config.server.admin_socket), listeners, credentials, router)
}

/// Returns the words of the audit line of a request; none if it changes nothing,
/// or if it is logged where it is carried out.
fn requested(request: &Request) -> Option<String> {
    let kept = |runtime_only: &bool| if *runtime_only { " --runtime-only" } else { "" };
    Some(match request {
        Request::Release { dataset, seconds } => format!("release {dataset} for {seconds} s"),
        Request::Resume { dataset } => format!("resume {dataset}"),
        Request::Drain => "drain".to_owned(),
        Request::Handover { seconds } => format!("handover for {seconds} s"),
        Request::LunAdd { target, lun, runtime_only } => {
            let (number, path) = (lun.number, lun.path.display());
            let read_only = if lun.read_only { " --read-only" } else { "" };
            format!("lun add {target} {number} {path}{read_only}{}", kept(runtime_only))
        }
        Request::LunResize { target, number, size_bytes } => {
            let size = size_bytes.map(|bytes| format!(" {bytes}")).unwrap_or_default();
            format!("lun resize {target} {number}{size}")
        }
        Request::LunRemove { target, number, runtime_only } => {
            format!("lun remove {target} {number}{}", kept(runtime_only))
        }
        Request::AclAdd { target, rule, runtime_only } => {
            format!("acl add {target} {}{}{}", rule.name, limits(rule), kept(runtime_only))
        }
        Request::AclRemove { target, initiator, runtime_only } => {
            format!("acl remove {target} {initiator}{}", kept(runtime_only))
        }
        _ => return None,
    })
}

/// Returns the words of the audit line about a change that was made.
fn outcome(answer: &serde_json::Value) -> String {
    let kept = answer["kept_in"].as_str().map(|file| format!(", kept in {file}"));
    let note = answer["note"].as_str().map(|note| format!("; {note}"));
    format!("done{}{}", kept.unwrap_or_default(), note.unwrap_or_default())
}

/// Returns the words of what a rule requires and allows; its secrets are not
/// among them.
fn limits(rule: &InitiatorConfig) -> String {
    let mut words = String::new();
    if let Some(luns) = &rule.luns {
        words += &format!(" --luns {luns:?}");
    }
    if rule.read_only {
        words += " --read-only";
    }
    for network in &rule.clients {
        words += &format!(" --client {network}");
    }
    for (option, chap) in [("chap", &rule.chap), ("mutual", &rule.mutual_chap)] {
        if let Some(chap) = chap {
            words += &format!(" --{option}-user {}", chap.user);
        }
    }
    words
}

fn answer(
    live: &LiveConfig,
    replacements: &ReplacementRequests,
    events: &Mutex<mpsc::Sender<Event>>,
    request: Request,
    by: &Asker,
) -> io::Result<serde_json::Value> {
    let LiveConfig { gateway, reconciler, schedule, .. } = live;
    Ok(match request {
        Request::Status => {
            let silent = silent_cores(&gateway.shared, http::ANSWER_TIMEOUT);
            serde_json::to_value(status::status(&gateway.shared, &silent))?
        }
        Request::Alive { seconds } => {
            let limit = Duration::from_secs(seconds.min(admin::MAX_ALIVE_SECONDS));
            serde_json::json!({ "silent_cores": silent_cores(&gateway.shared, limit) })
        }
        Request::Activity => serde_json::to_value(activity::activity(&gateway.shared))?,
        Request::Exports => serde_json::to_value(status::exports(&gateway.shared))?,
        Request::Clients => serde_json::to_value(status::clients(&gateway.shared))?,
        Request::Release { dataset, seconds } => {
            serde_json::to_value(reconciler.release(gateway, &dataset, seconds)?)?
        }
        Request::Resume { dataset } => {
            reconciler.resume(gateway, &dataset)?;
            serde_json::json!({ "resumed": dataset })
        }
        Request::Replaced { dataset } => serde_json::to_value(replacements.tell(by, &dataset)?)?,
        Request::Schedules => serde_json::to_value(schedule.views())?,
        Request::Reload { force } => {
            let unchanged = |error: io::Error| {
                io::Error::new(error.kind(), format!("nothing changed: {error}"))
            };
            serde_json::to_value(live.reload(by, force).map_err(unchanged)?)?
        }
        Request::Drain => {
            let events = events.lock().unwrap_or_else(PoisonError::into_inner);
            let stopping = |_| io::Error::other("the gateway is stopping already");
            events.send(Event::Stop).map_err(stopping)?;
            serde_json::json!({ "draining": true })
        }
        Request::Handover { seconds } => {
            let paths = gateway.export_paths();
            serde_json::to_value(handover::hand_over(&gateway.shared, paths, seconds)?)?
        }
        Request::LunAdd { target, lun, runtime_only } => {
            live.change(LiveChange::AddLun { target, lun: *lun }, runtime_only)?
        }
        Request::LunResize { target, number, size_bytes } => {
            live.resize(&target, number, size_bytes)?
        }
        Request::LunRemove { target, number, runtime_only } => {
            live.change(LiveChange::RemoveLun { target, number }, runtime_only)?
        }
        Request::AclAdd { target, rule, runtime_only } => {
            live.change(LiveChange::AddRule { target, rule: *rule }, runtime_only)?
        }
        Request::AclRemove { target, initiator, runtime_only } => {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
            let name = initiator.parse().map_err(invalid)?;
            live.change(LiveChange::RemoveRule { target, name }, runtime_only)?
        }
        request => about_targets(&gateway.shared, request)?,
    })
}

/// Returns the cores that do not answer a ping in time.
fn silent_cores(shared: &Shared, limit: Duration) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let asked =
        runtime.map(|runtime| runtime.block_on(async { shared.health.silent_cores(limit).await }));
    asked.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot ping the cores");
        Vec::new()
    })
}

/// Handles requests about iSCSI.
fn about_targets(shared: &Shared, request: Request) -> io::Result<serde_json::Value> {
    let block = &shared.iscsi;
    Ok(match request {
        Request::Targets => serde_json::to_value(iscsi::status::targets(block, &shared.datasets))?,
        Request::Sessions => serde_json::to_value(iscsi::status::sessions(block))?,
        Request::Acl => serde_json::to_value(iscsi::status::access(block))?,
        Request::FlushVolumes { zvols } => {
            let names = zvols.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>();
            let names =
                names.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            serde_json::to_value(block.flush_volumes(&names)?)?
        }
        other => return Err(io::Error::other(format!("{other:?} is not about targets"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::tcp::tests::gateway_with;
    use crate::server::check::check;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use zgate_test_harness::certificates::{Authority, server_files};

    #[test]
    fn a_token_that_others_may_read_is_told_before_anything_starts() {
        let dir = tempfile::tempdir().unwrap();
        let files = server_files(dir.path(), &Authority::new(), None);
        let (token, state) = (dir.path().join("token"), dir.path().join("state"));
        fs::write(&token, "token-of-an-admin-32-characters-").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nmetrics_listen = \"127.0.0.1:0\"\n\
             state_dir = {state:?}\ncores = 1\n\
             [api]\nlisten = [\"127.0.0.1:9470\"]\ncertificate = {:?}\nkey = {:?}\n\
             admin_token_file = {token:?}\n",
            files.certificate, files.key,
        );
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        let found = check(&config);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].place.to_string(), "api");
        let refusal = Running::start(&config, false).err().unwrap().to_string();
        for said in [&found[0].problem, &refusal] {
            assert!(
                said.contains(&format!("token file {}: users other", token.display())),
                "{said}"
            );
            assert!(said.contains("mode 0600"), "{said}");
        }
        assert!(!state.join("epoch").exists(), "nothing has started");
        fs::remove_file(&files.key).unwrap();
        let found = check(&config);
        assert!(found[0].problem.starts_with("api.key: cannot read"), "{found:?}");
    }

    #[test]
    fn an_address_of_the_api_that_is_taken_is_told_before_anything_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let files = server_files(dir.path(), &Authority::new(), None);
        let (token, state) = (dir.path().join("token"), dir.path().join("state"));
        fs::write(&token, "token-of-an-admin-32-characters-").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = other.local_addr().unwrap();
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nmetrics_listen = \"127.0.0.1:0\"\n\
             state_dir = {state:?}\ncores = 1\n\
             [api]\nlisten = [\"{taken}\"]\ncertificate = {:?}\nkey = {:?}\n\
             admin_token_file = {token:?}\n",
            files.certificate, files.key,
        );
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        let refusal = Running::start(&config, false).err().unwrap().to_string();
        assert!(refusal.contains(&format!("cannot listen on {taken}")), "{refusal}");
    }

    #[test]
    fn a_stop_takes_no_more_requests_before_it_waits_for_anything() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let drain = &gateway.shared.network.drain;
        assert!(!drain.is_wanted());
        wind_down(&gateway, || assert!(drain.is_wanted()));
    }

    #[test]
    fn a_stop_is_heeded_before_anything_listens() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let address = format!("127.0.0.1:{}", zgate_test_initiator::ports::free_port().unwrap());
        let text = format!(
            "[server]\nlisten = [\"{address}\"]\nmetrics_listen = \"127.0.0.1:0\"\n\
             state_dir = {state:?}\ncores = 1\n"
        );
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        let mut listens = None;
        let refusal = Running::start_after(&config, false, || {
            listens = Some(std::net::TcpStream::connect(&address).is_ok());
            Err(io::Error::other("told to"))
        });
        assert_eq!(refusal.err().unwrap().to_string(), "told to");
        assert_eq!(listens, Some(false));
    }

    #[test]
    fn an_audit_line_says_what_a_rule_allows() {
        let rule = "name = \"iqn.2026-11.test:h\"\nluns = [1, 2]\nclients = [\"10.0.0.0/8\"]\n\
            read_only = true\nchap = { user = \"joe\", secret_file = \"/etc/secret\" }\n";
        let rule = Box::new(toml::from_str(rule).unwrap());
        let target = "iqn.2026-11.test:t".to_owned();
        let request = Request::AclAdd { target, rule, runtime_only: true };
        assert_eq!(
            requested(&request).unwrap(),
            "acl add iqn.2026-11.test:t iqn.2026-11.test:h --luns [1, 2] --read-only \
             --client 10.0.0.0/8 --chap-user joe --runtime-only"
        );
        assert_eq!(requested(&Request::Status), None);
        let answer = serde_json::json!({ "changed": {}, "kept_in": "/f", "note": "but" });
        assert_eq!(outcome(&answer), "done, kept in /f; but");
        assert_eq!(outcome(&serde_json::json!({ "draining": true })), "done");
    }
}
