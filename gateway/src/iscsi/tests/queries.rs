//! QUERY ASYNCHRONOUS EVENT (RFC 7144, SAM-5): an initiator asks for unit attentions, and which
//! functions there are.

use super::{Fixture, TARGET};
use bytes::Bytes;
use zgate_test_initiator::pdu::{Itt, TaskFunction, TaskResult};
use zgate_test_initiator::{LoginScript, Lun, Session};

const LUN: Lun = Lun(0);

fn query(session: &mut Session) -> TaskResult {
    let itt = session.function(TaskFunction::QUERY_ASYNC_EVENT, LUN, Itt::NONE).unwrap();
    session.function_result(itt).unwrap()
}

#[test]
fn a_pending_unit_attention_is_told_when_asked_for() {
    let fixture = Fixture::start();
    let script = LoginScript::normal("iqn.2026-11.test.zgate:one", TARGET);
    let script = script.with("iSCSIProtocolLevel", "2");
    let mut session = Session::login(fixture.tcp, &script).unwrap();
    assert_eq!(query(&mut session), TaskResult::SUCCEEDED, "that of a new session");
    session.run(LUN, &[0; 6], 0, &Bytes::new()).unwrap();
    assert_eq!(query(&mut session), TaskResult::COMPLETE, "it has been told");
    let rules = fixture.gateway.shared.iscsi.rules();
    rules.catalog.units().for_each(|unit| unit.disk.capacity_changed());
    assert_eq!(query(&mut session), TaskResult::SUCCEEDED);
    assert_eq!(query(&mut session), TaskResult::SUCCEEDED, "the question does not withdraw it");
}

#[test]
fn the_functions_of_the_negotiated_level_are_told() {
    const REPORT: [u8; 12] = [0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0];
    let fixture = Fixture::start();
    let script = || LoginScript::normal("iqn.2026-11.test.zgate:one", TARGET);
    let told = |script: &LoginScript| {
        let mut session = Session::login(fixture.tcp, script).unwrap();
        session.run(LUN, &REPORT, 4, &Bytes::new()).unwrap()
    };
    assert_eq!(told(&script()), &[0xDA, 0, 0, 0][..]);
    let queries = script().with("iSCSIProtocolLevel", "2");
    assert_eq!(told(&queries), &[0xDE, 0x07, 0, 0][..]);
}
