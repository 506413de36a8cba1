//! Sessions belong to the rule that admitted them.

use super::{Fixture, Over, TARGET, block};
use crate::iscsi::change::NotKept;
use crate::iscsi::settings::InitiatorRule;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use zgate_config::{ChapConfig, Cidr, InitiatorConfig};
use zgate_iscsi::auth::ChapAlgorithm;
use zgate_iscsi::names::Tsih;
use zgate_test_initiator::{Isid, LoginScript, Session, Stream};

const ONE: &str = "iqn.2026-11.test.zgate:one";
const SECRET: &str = "correct horse battery";
const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

fn rule(name: &str, clients: &[[u8; 4]]) -> InitiatorRule {
    InitiatorRule {
        name: name.parse().unwrap(),
        clients: clients.iter().map(|&host| Cidr(IpAddr::from(host).into())).collect(),
        chap: None,
        mutual: None,
        luns: None,
        read_only: false,
    }
}

fn set_rules(fixture: &Fixture, rules: Vec<InitiatorRule>) {
    let changed = fixture.gateway.shared.iscsi.change(TARGET, |target| {
        target.settings.allow_any_initiator = false;
        target.settings.rules = rules;
        Ok(())
    });
    changed.unwrap();
}

/// Logs in as the only port of the host from an address of this machine.
fn login_from(fixture: &Fixture, source: [u8; 4], tsih: Tsih) -> io::Result<Stream> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&fixture.tcp.into())?;
    let mut script = LoginScript::normal(ONE, TARGET);
    (script.isid, script.tsih) = (Isid([0x80, 0, 0, 0, 0, 1]), tsih);
    Stream::login_over(TcpStream::from(socket), &script).map(|(stream, _)| stream)
}

#[test]
fn a_host_under_another_rule_takes_no_session_over() {
    let fixture = Fixture::start();
    let masked = InitiatorRule { luns: Some(vec![5]), ..rule(ONE, &[ELSEWHERE]) };
    set_rules(&fixture, vec![rule(ONE, &[HERE]), masked]);
    let mut host = fixture.host(Over::Tcp, "one");
    let tsih = fixture.gateway.shared.iscsi.sessions()[0].tsih;
    // It would join the session, and end it.
    for (tsih, status) in [(tsih, "0208"), (Tsih(0), "0301")] {
        let refused = login_from(&fixture, ELSEWHERE, tsih).err().unwrap();
        assert_eq!(refused.to_string(), format!("login refused: {status}"));
    }
    assert_eq!(host.write(8, &block(1, 0)).status, 0, "the session lives");
    assert!(login_from(&fixture, HERE, Tsih(0)).is_ok(), "its own host ends it");
}

#[test]
fn a_host_with_two_addresses_under_one_rule_takes_its_session_over() {
    let fixture = Fixture::start();
    set_rules(&fixture, vec![rule(ONE, &[HERE, ELSEWHERE])]);
    let _host = fixture.host(Over::Tcp, "one");
    assert!(login_from(&fixture, ELSEWHERE, Tsih(0)).is_ok());
}

#[test]
fn a_host_under_two_rules_that_allow_the_same_takes_its_session_over() {
    let fixture = Fixture::start();
    set_rules(&fixture, vec![rule(ONE, &[HERE]), rule(ONE, &[ELSEWHERE])]);
    let _host = fixture.host(Over::Tcp, "one");
    let _moved = login_from(&fixture, ELSEWHERE, Tsih(0)).unwrap();
    // Anything else that tells them apart makes two hosts of them.
    let read_only = InitiatorRule { read_only: true, ..rule(ONE, &[HERE]) };
    set_rules(&fixture, vec![read_only, rule(ONE, &[ELSEWHERE])]);
    let refused = login_from(&fixture, HERE, Tsih(0)).err().unwrap();
    assert_eq!(refused.to_string(), "login refused: 0301");
}

#[test]
fn nodes_with_access_by_the_api_are_hosts_of_their_own() {
    let fixture = Fixture::start();
    set_rules(&fixture, vec![rule(ONE, &[HERE]), rule(ONE, &[ELSEWHERE])]);
    let changed = fixture.gateway.shared.iscsi.change(TARGET, |target| {
        target.settings.granted = true;
        Ok(())
    });
    changed.unwrap();
    let _host = fixture.host(Over::Tcp, "one");
    let refused = login_from(&fixture, ELSEWHERE, Tsih(0)).err().unwrap();
    assert_eq!(refused.to_string(), "login refused: 0301");
}

#[test]
fn a_session_ends_that_has_not_proved_what_its_new_rule_requires() {
    let fixture = Fixture::start();
    let iscsi = &fixture.gateway.shared.iscsi;
    set_rules(&fixture, vec![rule("iqn.2026-11.test.zgate:*", &[])]);
    let _host = fixture.host(Over::Tcp, "one");
    let mut other = fixture.host(Over::Tcp, "other");
    let secret_file = fixture._dir.path().join("secret");
    std::fs::write(&secret_file, SECRET).unwrap();
    let wanted = InitiatorConfig {
        name: ONE.parse().unwrap(),
        clients: Vec::new(),
        chap: Some(ChapConfig { user: "joe".into(), secret_file }),
        mutual_chap: None,
        luns: None,
        read_only: false,
    };
    iscsi.allow(TARGET, &wanted, &mut NotKept).unwrap();
    fixture.until_sessions(1);
    assert_eq!(other.write(8, &block(2, 0)).status, 0, "the pattern still admits it");
    // One that has proved it stays when rules change.
    let mut script = LoginScript::normal(ONE, TARGET);
    script.chap = Some(("joe".into(), SECRET.into(), ChapAlgorithm::ALL[0]));
    let _proved = Session::login(fixture.tcp, &script).unwrap();
    iscsi.change(TARGET, |_| Ok(())).unwrap();
    assert_eq!(iscsi.sessions().len(), 2);
}

/// The next host may have the disk only then.
#[test]
fn a_target_is_settled_when_the_writes_of_its_ended_sessions_have_ended() {
    let fixture = Fixture::start();
    let iscsi = &fixture.gateway.shared.iscsi;
    let mut host = fixture.host(Over::Tcp, "one");
    fixture.start_held(&mut host, 8, &block(1, 0));
    assert!(iscsi.is_settled(TARGET), "it may write");
    set_rules(&fixture, vec![rule("iqn.2026-11.test.zgate:other", &[])]);
    assert!(iscsi.sessions().is_empty() && !iscsi.is_settled(TARGET));
    assert!(iscsi.is_settled("iqn.2026-11.test.zgate:another"));
    fixture.gate.open();
    fixture.until("the write ends", || iscsi.is_settled(TARGET));
}
