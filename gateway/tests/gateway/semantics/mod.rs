//! The examples of docs/SEMANTICS.md: every one is carried out against a gateway,
//! and what the document says of it has to come true.

mod disk;
mod document;
mod local;
mod nfs3;
mod nfs4;
mod reader;

use document::{Example, Step, Word};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use zgate_test_harness::{Gateway, free_port, handles_survive_restarts};

/// The result of a step: what it answers, or the error's name.
type Outcome = Result<String, String>;

/// Exports beside the harness's own, and a disk.
const CONFIGURATION: &str = "[[export]]\npath = \"{dir}/data\"\npseudo = \"/data\"\n\
    clients = [{ match = \"127.0.0.1\", access = \"rw\", squash = \"root\" }]\n\
    [[export]]\npath = \"{dir}/closed\"\npseudo = \"/closed\"\n\
    clients = [{ match = \"192.0.2.0/24\", access = \"rw\" }]\n\
    [iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
    [[target]]\nname = \"iqn.2026-11.test.zgate:disk\"\nallow_any_initiator = true\n\
    [[target.lun]]\nnumber = 0\npath = \"{dir}/disk.img\"\nsize = \"16MiB\"\n";
/// Clients of NFSv4.2 and the user each works as.
const NFS4_CLIENTS: [(&str, u32); 3] = [("alice", 1000), ("bob", 1001), ("root", 0)];
/// Shortest lease that a gateway accepts.
const LEASE_SECONDS: u32 = 5;
/// The errors that ask for a retry.
const RETRY: [&str; 2] = ["NFS4ERR_DELAY", "NFS3ERR_JUKEBOX"];
/// The longest a step is retried. Longer than a recall takes, shorter than a lease, after which
/// the server revokes what was recalled.
const RETRY_TIMEOUT: Duration = Duration::from_secs(4);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A gateway and those who take part in an example.
struct Participants {
    gateway: Gateway,
    nfs4: BTreeMap<&'static str, nfs4::NamedClient>,
    nfs3: Option<nfs3::Client>,
    reader: Option<reader::Reader>,
    disk: Option<disk::Host>,
    portal: SocketAddr,
}

impl Participants {
    fn new() -> Self {
        let port = free_port();
        let more = CONFIGURATION.replace("{port}", &port.to_string());
        let gateway = Gateway::start_prepared(LEASE_SECONDS, &more, |dir| {
            for name in ["data", "closed"] {
                fs::create_dir(dir.join(name)).unwrap();
            }
            // Everybody may create there, as in /tmp.
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
            let everybody = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(dir.join("data"), everybody).unwrap();
        });
        let portal = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { gateway, nfs4: BTreeMap::new(), nfs3: None, reader: None, disk: None, portal }
    }

    /// Executes a step, again while the server asks for a retry, as clients do; at once if the
    /// document expects an error. `None` if the step is unknown.
    fn act_patiently(&mut self, step: &Step) -> Option<Outcome> {
        let until = Instant::now() + RETRY_TIMEOUT;
        loop {
            let outcome = self.act(step)?;
            let told_to_retry = matches!(&outcome, Err(error) if RETRY.contains(&error.as_str()));
            if step.expected.is_some() || !told_to_retry || Instant::now() >= until {
                return Some(outcome);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Executes a step once; `None` if it is unknown.
    fn act(&mut self, step: &Step) -> Option<Outcome> {
        let (verb, arguments) = step.words.split_first()?;
        let verb = std::str::from_utf8(&verb.0).ok()?;
        if let Some((name, uid)) = NFS4_CLIENTS.iter().find(|(name, _)| *name == step.actor) {
            let gateway = &self.gateway;
            let actor = self
                .nfs4
                .entry(*name)
                .or_insert_with(|| nfs4::NamedClient::new(gateway, name, *uid));
            return actor.act(gateway, verb, arguments);
        }
        match step.actor.as_str() {
            "server" => self.on_server(verb, arguments),
            "carol" => {
                let gateway = &self.gateway;
                self.nfs3
                    .get_or_insert_with(|| nfs3::Client::new(gateway, 1000))
                    .act(verb, arguments)
            }
            "dora" => {
                let gateway = &self.gateway;
                self.reader.get_or_insert_with(|| reader::Reader::new(gateway)).act(verb, arguments)
            }
            "host" => {
                let portal = self.portal;
                self.disk.get_or_insert_with(|| disk::Host::new(portal)).act(verb, arguments)
            }
            _ => None,
        }
    }

    fn on_server(&mut self, verb: &str, arguments: &[Word]) -> Option<Outcome> {
        match verb {
            "restart" => {
                assert!(self.gateway.stop(), "an orderly end");
                self.gateway.restart();
            }
            "kill" => {
                self.gateway.kill();
                self.gateway.restart();
            }
            _ => return local::act(&self.gateway.dir.path().join("data"), verb, arguments),
        }
        self.nfs4.values_mut().for_each(nfs4::NamedClient::disconnect);
        (self.nfs3, self.disk) = (None, None);
        Some(Ok(String::new()))
    }
}

/// Carries out an example; what is wrong with it.
fn carry_out(example: &Example) -> Option<String> {
    let mut stage = Participants::new();
    for step in &example.steps {
        let at = format!("line {}, {} {:?}", step.line, step.actor, step.words);
        let Some(outcome) = stage.act_patiently(step) else {
            return Some(format!("{at}: unknown step"));
        };
        let is_true = match (&step.expected, &outcome) {
            (None, outcome) => outcome.is_ok(),
            (Some(expected), Ok(got) | Err(got)) => expected == got,
        };
        if !is_true {
            let expected = step.expected.as_deref().unwrap_or("success");
            return Some(format!("{at}: {outcome:?}, the document says {expected}"));
        }
    }
    None
}

#[test]
fn every_section_has_an_example_and_every_example_is_true() {
    let test = "every_section_has_an_example_and_every_example_is_true";
    if !handles_survive_restarts(test) {
        return;
    }
    let text = include_str!("../../../../docs/SEMANTICS.md");
    let (sections, examples) = document::read(text).unwrap();
    let without = |section: &&String| examples.iter().all(|one| one.section != **section);
    let missing: Vec<_> = sections.iter().filter(without).collect();
    assert!(missing.is_empty(), "sections without an example: {missing:?}");
    let wrong: Vec<_> = examples.iter().filter_map(carry_out).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_example_that_is_not_true_is_found() {
    if !handles_survive_restarts("an_example_that_is_not_true_is_found") {
        return;
    }
    for (steps, found) in [
        ("alice: write f \"a\"\nbob: read f -> \"b\"", "the document says \"b\""),
        ("alice: read f", "the document says success"),
        ("alice: fly", "unknown step"),
        ("mallory: read f", "unknown step"),
        ("alice: read", "unknown step"),
    ] {
        let (_, examples) = document::read(&format!("## S\n```example\n{steps}\n```\n")).unwrap();
        let wrong = carry_out(&examples[0]).unwrap_or_default();
        assert!(wrong.contains(found), "{steps}: {wrong}");
    }
}

/// Text as it stands behind an arrow.
fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn number(word: &Word) -> Option<u64> {
    std::str::from_utf8(&word.0).ok()?.parse().ok()
}
