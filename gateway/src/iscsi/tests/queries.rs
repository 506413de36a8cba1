//! QUERY ASYNCHRONOUS EVENT (RFC 7144, SAM-5): an initiator asks for unit attentions.

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
