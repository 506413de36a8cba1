//! Checks of a configuration against this machine, without starting anything:
//! what is wrong, what is in doubt, and what is only absent now.

mod storage;

use super::api::credentials;
use super::listen;
use super::web::access;
use crate::admin::{foreign_file, next_step_for_foreign_file};
use crate::exports::absent::Fault;
use crate::exports::attempts::{Attempts, Job, Wake, Work};
use crate::exports::hosts::addresses;
use crate::exports::limits::NAME_PATIENCE;
use crate::iscsi::settings::settings;
use crate::net::accept::is_local;
use crate::nfs::gss::kerberos::KEYTAB_NEXT_STEP;
use crate::server::settings::kerberos_settings;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zgate_config::{ChapConfig, ClientMatch, Config, Place, Problem, TargetConfig};
use zgate_control::{DatasetPattern, SystemTool};
use zgate_tls::{Certificates, TlsFault, Validity};

pub use storage::missing_state_dir;

/// Returns all datasets, disks, secrets and certificates of a configuration that cannot
/// be used on this machine. The gateway does not start with them. What is only absent now
/// is not among them, nor is storage that hangs.
#[must_use]
pub fn check(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(config.exports.iter().enumerate().filter_map(|(index, export)| {
        let place = Place::root("export").item(index).key("dataset");
        check_pattern(export.dataset.as_ref()?, place)
    }));
    found.extend(check_discovery(config));
    found.extend(check_sockets(config));
    found.extend(check_token(config));
    found.extend(check_api(config));
    found.extend(check_tls(config));
    found.extend(check_kerberos(config));
    for (index, target) in config.targets.iter().enumerate() {
        found.extend(check_target(target, &Place::root("target").item(index)));
    }
    let tool = SystemTool { limit_seconds: storage::VERSION_SECONDS };
    found.extend(storage::without_zfs(config, &tool));
    found.extend(storage::unusable(config));
    found
}

/// Returns the certificates and lists of a configuration that are out of date, and the
/// authorities that it requires and does not know. The gateway starts with them: they
/// refuse some clients, and a gateway that does not start refuses all.
#[must_use]
pub fn doubtful(config: &Config) -> Vec<Problem> {
    // What cannot be read is wrong.
    let Some(Ok(read)) = config.tls.as_ref().map(Certificates::read) else { return Vec::new() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let dates = read.validities.iter().filter_map(|one| one.fault(now)).map(tls_problem);
    dates.chain(unknown_authorities(config, &read)).collect()
}

/// Returns the directories, host names, devices, files and addresses of a
/// configuration that are absent now: the gateway starts without them, unless it
/// is told to be strict. Storage or a name server that hangs is absent, too, and so is the
/// device or file of a logical unit that another one has.
#[must_use]
pub fn absent_now(config: &Config) -> Vec<Problem> {
    let mut names = Vec::new();
    for (index, export) in config.exports.iter().enumerate() {
        let place = Place::root("export").item(index);
        for (index, client) in export.clients.iter().enumerate() {
            if let ClientMatch::Host(name) = client.matches.clone() {
                let place = place.key("clients").item(index).key("match");
                names.push((
                    place,
                    boxed(move || {
                        let named = |fault: Fault| Fault {
                            reason: format!("host {name}: {}", fault.reason),
                            ..fault
                        };
                        addresses(&name).map(drop).map_err(named)
                    }),
                ));
            }
        }
    }
    let mut found = storage::absent(config);
    found.extend(attempted(names, NAME_PATIENCE));
    found.extend(absent_addresses(config));
    found
}

fn boxed(work: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Work<()> {
    Box::new(work)
}

/// Carries out checks at the same time; returns the problems.
fn attempted(checks: Vec<(Place, Work<()>)>, patience: Duration) -> Vec<Problem> {
    let (places, work): (Vec<_>, Vec<_>) = checks.into_iter().unzip();
    let results = results(work, patience);
    let problems = places.into_iter().zip(results).filter_map(|(place, result)| {
        let Fault { reason, next_step, .. } = result.err()?;
        Some(Problem { place, problem: reason, next_step })
    });
    problems.collect()
}

/// Carries out work at the same time; returns the results in order. What takes longer than
/// `patience` is absent.
fn results<T: Send + 'static>(work: Vec<Work<T>>, patience: Duration) -> Vec<Result<T, Fault>> {
    let jobs = work.into_iter().enumerate();
    let jobs = jobs.map(|(at, work)| Job { key: at.to_string(), work, begins: true }).collect();
    Attempts::new(Wake::default()).attempt(jobs, patience)
}

fn absent_addresses(config: &Config) -> Vec<Problem> {
    let root = |key| Place::root(key).key("listen");
    let nfs = config.server.listen.iter().map(|address| (root("server"), "NFS", address));
    let iscsi = config.iscsi.listen.iter().map(|address| (root("iscsi"), "iSCSI", address));
    let groups = config.iscsi.groups.iter().enumerate().flat_map(|(index, group)| {
        let place = Place::root("iscsi").key("group").item(index).key("listen");
        group.listen.iter().map(move |address| (place.clone(), "iSCSI", address))
    });
    let metrics = Place::root("server").key("metrics_listen");
    // Portals that this machine lacks are the other machine's.
    let portals = iscsi.chain(groups).filter(|_| !config.iscsi.asymmetric);
    let all = nfs.chain(portals);
    let all = all.chain([(metrics, "metrics", &config.server.metrics_listen)]);
    let absent = all.filter(|(_, _, address)| !is_local(address.ip()));
    let problem = |(place, service, address): (Place, &str, &SocketAddr)| {
        let item = listen::absent_item(service, *address);
        Problem { place, problem: format!("{address}: {}", item.reason), next_step: item.next_step }
    };
    absent.map(problem).collect()
}

fn check_tls(config: &Config) -> Option<Problem> {
    Certificates::read(config.tls.as_ref()?).err().map(tls_problem)
}

fn tls_problem(TlsFault { key, problem: fault, next_step }: TlsFault) -> Problem {
    problem(Place::root("tls").key(key), fault, next_step)
}

/// Returns the authorities that client entries require and `tls.client_ca` lacks:
/// such an entry admits nobody.
fn unknown_authorities(config: &Config, read: &Certificates) -> Vec<Problem> {
    let mut found = Vec::new();
    for (index, export) in config.exports.iter().enumerate() {
        let clients = Place::root("export").item(index).key("clients");
        for (index, client) in export.clients.iter().enumerate() {
            let place = clients.item(index).key("certificate").key("authorities");
            let required = client.certificate.authorities.iter();
            for authority in required.filter(|authority| !read.trusts(&authority.0)) {
                let fault =
                    format!("no authority of tls.client_ca has the fingerprint {authority}");
                let next = "add its certificate to tls.client_ca, or correct the fingerprint";
                found.push(problem(place.clone(), fault, next));
            }
        }
    }
    found
}

fn check_kerberos(config: &Config) -> Option<Problem> {
    let reason = kerberos_settings(config)?.mechanism().err()?;
    Some(problem(Place::root("kerberos").key("keytab"), reason, KEYTAB_NEXT_STEP))
}

/// Reads the files of `[tls]`; returns the validity of their certificates.
///
/// # Errors
/// The first file that cannot be used.
pub fn certificates(config: &Config) -> Result<Vec<Validity>, TlsFault> {
    let read = config.tls.as_ref().map(Certificates::read).transpose()?;
    Ok(read.map_or_else(Vec::new, |read| read.validities))
}

fn check_pattern(text: &str, place: Place) -> Option<Problem> {
    let error = text.parse::<DatasetPattern>().err()?;
    Some(problem(place, error.to_string(), "correct the dataset or pattern"))
}

fn check_discovery(config: &Config) -> Option<Problem> {
    let place = Place::root("iscsi").key("discovery_chap");
    let chap = config.iscsi.discovery_chap.as_ref()?;
    check_secret(chap, &place).or_else(|| {
        let alone = Config { iscsi: config.iscsi.clone(), ..Config::default() };
        let error = settings(&alone).err()?;
        Some(problem(place.key("secret_file"), error.to_string(), "correct the file"))
    })
}

/// Finds files in the places of the sockets: the gateway replaces sockets only.
fn check_sockets(config: &Config) -> Vec<Problem> {
    let admin = &config.server.admin_socket;
    let sockets = [
        (Place::root("server").key("admin_socket"), "admin_socket", admin.clone()),
        (Place::root("api").key("socket"), "api.socket", config.api.socket_path(admin)),
    ];
    let faults = sockets.into_iter().filter_map(|(place, key, path)| {
        Some(problem(place, foreign_file(&path)?, &next_step_for_foreign_file(key)))
    });
    faults.collect()
}

fn check_token(config: &Config) -> Option<Problem> {
    let error = access::configured(config).err()?;
    let place = Place::root("server").key("status_token_file");
    Some(problem(place, error.to_string(), "correct the file"))
}

fn check_api(config: &Config) -> Option<Problem> {
    let error = credentials::configured(config).err()?;
    Some(problem(Place::root("api"), error.to_string(), "correct the file"))
}

fn check_target(target: &TargetConfig, place: &Place) -> Vec<Problem> {
    let mut found = Vec::new();
    for (index, volumes) in target.volumes.iter().enumerate() {
        let place = place.key("volumes").item(index).key("dataset");
        found.extend(check_pattern(&volumes.dataset, place));
    }
    for (index, initiator) in target.initiators.iter().enumerate() {
        let place = place.key("initiator").item(index);
        let chaps = [("chap", &initiator.chap), ("mutual_chap", &initiator.mutual_chap)];
        let chaps = chaps.iter().filter_map(|(key, chap)| Some((key, chap.as_ref()?)));
        found.extend(chaps.filter_map(|(key, chap)| check_secret(chap, &place.key(key))));
    }
    // The rest concerns several values; the log has its warnings.
    if found.is_empty() {
        let alone = Config { targets: vec![target.clone()], ..Config::default() };
        let error = settings(&alone).err();
        let wrong = |error: io::Error| problem(place.clone(), error.to_string(), "correct it");
        found.extend(error.map(wrong));
    }
    found
}

fn check_secret(chap: &ChapConfig, place: &Place) -> Option<Problem> {
    let error = File::open(&chap.secret_file).err()?;
    let next_step = "put the secret there on one line, mode 0600";
    let fault = format!("cannot read {}: {error}", chap.secret_file.display());
    Some(problem(place.key("secret_file"), fault, next_step))
}

fn problem(place: Place, problem: String, next_step: &str) -> Problem {
    Problem { place, problem, next_step: next_step.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    pub(super) fn parsed(text: &str) -> Config {
        zgate_config::parse(text, Path::new("x")).unwrap()
    }

    /// The places and texts of problems, one a line.
    pub(super) fn lines(problems: &[Problem]) -> String {
        let line = |one: &Problem| format!("{}: {}; {}\n", one.place, one.problem, one.next_step);
        problems.iter().map(line).collect()
    }

    #[test]
    fn a_file_in_the_place_of_a_socket_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (admin, api) = (dir.path().join("a.sock"), dir.path().join("data.img"));
        let config =
            parsed(&format!("[server]\nadmin_socket = {admin:?}\n[api]\nsocket = {api:?}\n"));
        assert_eq!(lines(&check(&config)), "");
        std::fs::write(&api, "precious").unwrap();
        let said = lines(&check(&config));
        assert!(
            said.starts_with("api.socket: ") && said.contains("is no socket; remove"),
            "{said}"
        );
        // A socket is that of an earlier gateway, or of the one that serves.
        std::fs::remove_file(&api).unwrap();
        let _listening =
            [&admin, &api].map(|path| std::os::unix::net::UnixListener::bind(path).unwrap());
        assert_eq!(lines(&check(&config)), "");
    }
}
