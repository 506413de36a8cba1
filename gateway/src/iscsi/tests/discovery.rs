//! A discovery session without authentication cannot displace authenticated
//! ones.

use super::{Fixture, MAX_SESSIONS, Over, TARGET};
use std::io::ErrorKind;
use zgate_iscsi::limits::MAX_DISCOVERY_SESSIONS_PER_HOST;
use zgate_test_initiator::{Isid, LoginScript, Lun, Session};

#[test]
fn hosts_log_in_beside_all_discovery_sessions() {
    let fixture = Fixture::start();
    let discover = |isid: usize| {
        let mut script = LoginScript::discovery("iqn.2026-11.test.zgate:anybody");
        script.isid = Isid([0x80, 0, 0, 0, 1, isid as u8]);
        Session::login(fixture.tcp, &script)
    };
    let mut open = Vec::new();
    for isid in 0..MAX_DISCOVERY_SESSIONS_PER_HOST {
        open.push(discover(isid).unwrap());
    }
    assert!(open.len() > MAX_SESSIONS, "as many as would take every session");
    let refused = discover(MAX_DISCOVERY_SESSIONS_PER_HOST).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert_eq!(refused.to_string(), "login refused: 0302", "out of resources");
    let mut hosts: Vec<_> =
        (1..MAX_SESSIONS).map(|host| fixture.host(Over::Tcp, &format!("host{host}"))).collect();
    hosts.iter_mut().for_each(|host| assert_eq!(host.write(0, &super::block(1, 1)).status, 0));
    let patient = LoginScript::normal("iqn.2026-11.test.zgate:patient", TARGET);
    let patient = patient.with("ErrorRecoveryLevel", "2").with("DefaultTime2Wait", "3600");
    let patient = Session::login(fixture.tcp, &patient).unwrap();
    let script = LoginScript::normal("iqn.2026-11.test.zgate:one-more", TARGET);
    let refused = Session::login(fixture.tcp, &script).err().unwrap();
    assert_eq!(refused.to_string(), "login refused: 0302", "the bound holds for hosts");
    // A host that has lost its connection keeps its session only as long as there is room.
    drop(patient);
    let begun = std::time::Instant::now();
    let mut later = loop {
        match Session::login(fixture.tcp, &script) {
            Ok(session) => break session,
            Err(_) if begun.elapsed() < super::PATIENCE => {}
            Err(refused) => panic!("{refused}"),
        }
    };
    later.run(Lun(0), &[0; 6], 0, &bytes::Bytes::new()).unwrap();
    hosts.iter_mut().for_each(|host| assert_eq!(host.write(0, &super::block(1, 1)).status, 0));
}
