//! Logins that succeed, and every way in which they fail.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::auth::ChapAlgorithm;
use zgate_iscsi::directory::Claim;
use zgate_iscsi::initiator::LoginScript;
use zgate_iscsi::limits::DISCOVERY_SESSION_TIMEOUT;
use zgate_iscsi::login::{Login, LoginState, LoginStatus, Offer};
use zgate_iscsi::names::{Cid, Isid, PortalGroup, Tsih};
use zgate_iscsi::pdu::{Itt, LoginRequest, LoginResponse, Stage};
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::{CloseReason, EndReason, Event, Session, SessionConfig};
use zgate_iscsi::time::Timestamp;
use zgate_test_harness::iscsi::{INITIATOR, TARGET, Target, plain};

fn target() -> Target {
    Target::new(Offer::default())
}

fn to(name: &str) -> LoginScript {
    LoginScript::normal(INITIATOR, &format!("iqn.2026-01.test:{name}"))
}

#[test]
fn open_login_negotiates() {
    let script = LoginScript::normal(INITIATOR, TARGET)
        .with("HeaderDigest", "CRC32C,None")
        .with("ErrorRecoveryLevel", "1")
        .with("MaxRecvDataSegmentLength", "65536")
        .with("X-com.example.thing", "1");
    let (outcome, done) = target().login_ok(&script);
    assert_eq!(outcome.status, (0, 0));
    assert!(done.params.header_digest && outcome.params.header_digest);
    assert_eq!(done.params.initiator_recv_bytes, 65536);
    assert_eq!(outcome.params.target_recv_bytes, 256 << 10);
    let answered = |key: &str, value: &str| outcome.answers.contains(&(key.into(), value.into()));
    assert!(answered("TargetPortalGroupTag", "1") && answered("AuthMethod", "None"));
    assert!(answered("TargetAlias", "a disk") && answered("X-com.example.thing", "NotUnderstood"));
    assert_ne!(outcome.tsih, Tsih(0));
    assert_eq!(outcome.max_cmd_sn, Sn(128));
}

#[test]
fn the_policy_decides() {
    for (name, status) in [
        ("nobody", LoginStatus::NOT_FOUND),
        ("refused", LoginStatus::AUTHORIZATION_FAILED),
        ("removed", LoginStatus::TARGET_REMOVED),
        ("busy", LoginStatus::UNAVAILABLE),
        ("moved", LoginStatus::MOVED_PERMANENTLY),
        ("chap", LoginStatus::AUTHENTICATION_FAILED),
    ] {
        let mut script = to(name);
        if name == "chap" {
            script.identity.retain(|(key, _)| key != "AuthMethod");
            script.identity.push(("AuthMethod".into(), "None".into()));
        }
        assert_eq!(target().login_status(&script), status, "{name}");
    }
    let stranger = LoginScript::discovery("iqn.2026-01.test:stranger");
    assert_eq!(target().login_status(&stranger), LoginStatus::AUTHORIZATION_FAILED);
    target().login_ok(&LoginScript::discovery(INITIATOR).with("MaxBurstLength", "4096"));
}

#[test]
fn a_discovery_session_has_error_recovery_level_0() {
    let script = LoginScript::discovery(INITIATOR).with("ErrorRecoveryLevel", "2");
    let (outcome, done) = target().login_ok(&script);
    assert_eq!(done.params.error_recovery_level, 0);
    assert!(outcome.answers.contains(&("ErrorRecoveryLevel".into(), "0".into())));
}

#[test]
fn identity_keys_are_checked() {
    let without = |key: &str| {
        let mut script = to("open");
        script.identity.retain(|(k, _)| k != key);
        script
    };
    assert_eq!(target().login_status(&without("InitiatorName")), LoginStatus::MISSING_PARAMETER);
    assert_eq!(target().login_status(&without("TargetName")), LoginStatus::MISSING_PARAMETER);
    let mut script = without("SessionType");
    script.identity.push(("SessionType".into(), "Other".into()));
    assert_eq!(target().login_status(&script), LoginStatus::SESSION_TYPE);
    let mut script = to("open");
    script.tsih = Tsih(77);
    assert_eq!(target().login_status(&script), LoginStatus::NO_SUCH_SESSION);
    let twice = to("open").with("InitiatorName", INITIATOR);
    assert_eq!(target().login_status(&twice), LoginStatus::INITIATOR_ERROR);
    let malformed = to("open").with("lowercase", "x");
    assert_eq!(target().login_status(&malformed), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn chap_one_way_and_mutual() {
    for algorithm in ChapAlgorithm::ALL {
        let mut script = to("chap");
        script.chap = Some(("joe".into(), b"joe's long secret".to_vec(), algorithm));
        let (_, done) = target().login_ok(&script);
        assert_eq!(done.authenticated.as_deref(), Some("joe"));
        script.mutual = Some(b"the gate's secret".to_vec());
        target().login_ok(&script);
        script.mutual = Some(b"another secret".to_vec());
        assert!(target().login(&script).0.is_none(), "the initiator notices");
        script.mutual = None;
        script.chap = Some(("joe".into(), b"wrong".to_vec(), algorithm));
        assert_eq!(target().login_status(&script), LoginStatus::AUTHENTICATION_FAILED);
    }
}

fn request(current: Stage, transit: Option<Stage>, continues: bool) -> LoginRequest {
    LoginRequest {
        continues,
        current,
        transit,
        version_max: 0,
        version_min: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
    }
}

fn fresh() -> Login {
    Login::new(Offer::default(), None, PortalGroup(1))
}

#[test]
fn the_offer_may_change_until_the_target_is_known() {
    let names = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    let (begin, end) = names.split_at(names.len() - 4);
    let last = Some(Stage::FullFeature);
    let level = |requests: [(&str, Option<Stage>, bool); 2]| {
        let (mut target, mut login) = (target(), fresh());
        for (number, (text, transit, continues)) in requests.into_iter().enumerate() {
            if number == 1 {
                login.set_offer(Offer { error_recovery_level: 0, ..Offer::default() });
            }
            let pdu = request(Stage::Operational, transit, continues);
            target.feed(&mut login, &plain(pdu.encode(text.to_owned().into())));
            login.poll_transmit().unwrap();
        }
        match login.state() {
            LoginState::Done(done) => done.params.error_recovery_level,
            other => panic!("login failed: {other:?}"),
        }
    };
    let key = "ErrorRecoveryLevel=2\0";
    assert_eq!(level([(begin, None, true), (&format!("{end}{key}"), last, false)]), 0);
    assert_eq!(level([(&names, None, false), (key, last, false)]), 2);
}

#[test]
fn leaving_out_security_is_no_way_around_it() {
    let mut target = target();
    let mut login = fresh();
    let text = format!("InitiatorName={INITIATOR}\0TargetName=iqn.2026-01.test:chap\0");
    let pdu = request(Stage::Operational, Some(Stage::FullFeature), false).encode(text.into());
    target.feed(&mut login, &plain(pdu));
    assert!(matches!(login.state(), LoginState::Failed(LoginStatus::AUTHENTICATION_FAILED)));
    // A request to leave the stage without authentication keeps the stage.
    let mut login = fresh();
    let text =
        format!("InitiatorName={INITIATOR}\0TargetName=iqn.2026-01.test:chap\0AuthMethod=CHAP\0");
    let pdu = request(Stage::Security, Some(Stage::FullFeature), false).encode(text.into());
    target.feed(&mut login, &plain(pdu));
    let response = LoginResponse::parse(&login.poll_transmit().unwrap().bhs).unwrap();
    assert_eq!((response.status, response.transit), ((0, 0), None));
}

#[test]
fn straight_to_full_feature_uses_the_defaults() {
    let mut target = target();
    let mut login = fresh();
    let text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    let pdu = request(Stage::Security, Some(Stage::FullFeature), false).encode(text.into());
    target.feed(&mut login, &plain(pdu));
    let LoginState::Done(done) = login.state() else { panic!("done") };
    assert_eq!(done.params, zgate_iscsi::login::Operational::default());
}

#[test]
fn text_in_pieces_is_gathered_within_bounds() {
    let mut target = target();
    let mut login = fresh();
    let text = Bytes::from(format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0"));
    let first = request(Stage::Operational, None, true).encode(text.slice(..20));
    target.feed(&mut login, &plain(first));
    let empty = login.poll_transmit().unwrap();
    assert_eq!(empty.data_bytes(), 0);
    let last =
        request(Stage::Operational, Some(Stage::FullFeature), false).encode(text.slice(20..));
    target.feed(&mut login, &plain(last));
    assert!(matches!(login.state(), LoginState::Done(_)));

    let mut login = fresh();
    for _ in 0..9 {
        let more = request(Stage::Operational, None, true).encode(vec![b'a'; 8192].into());
        target.feed(&mut login, &plain(more));
    }
    assert!(matches!(login.state(), LoginState::Failed(LoginStatus::INITIATOR_ERROR)));
}

#[test]
fn a_long_answer_goes_in_pieces() {
    let mut target = target();
    let mut login = fresh();
    let mut text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    for i in 0..120 {
        text.push_str(&format!("X-com.example.{:a>45}=1\0", i));
    }
    let mut bytes = Bytes::from(text);
    while bytes.len() > 4000 {
        let part = request(Stage::Operational, None, true).encode(bytes.split_to(4000));
        target.feed(&mut login, &plain(part));
        login.poll_transmit().unwrap();
    }
    let last = request(Stage::Operational, Some(Stage::FullFeature), false).encode(bytes);
    target.feed(&mut login, &plain(last));
    let first = login.poll_transmit().unwrap();
    assert!(LoginResponse::parse(&first.bhs).unwrap().continues && first.data_bytes() == 8192);
    let empty = request(Stage::Operational, Some(Stage::FullFeature), false).encode(Bytes::new());
    target.feed(&mut login, &plain(empty));
    let second = LoginResponse::parse(&login.poll_transmit().unwrap().bhs).unwrap();
    assert_eq!((second.continues, second.transit), (false, Some(Stage::FullFeature)));
}

#[test]
fn what_is_no_login_is_refused() {
    let mut target = target();
    let mut login = fresh();
    let mut pdu = request(Stage::Security, None, false).encode(Bytes::new());
    pdu.bhs.0[0] = 1;
    target.feed(&mut login, &plain(pdu));
    assert!(matches!(login.state(), LoginState::Failed(LoginStatus::INVALID_DURING_LOGIN)));
    let mut login = fresh();
    let mut pdu = request(Stage::Security, None, false);
    pdu.version_min = 1;
    target.feed(&mut login, &plain(pdu.encode(Bytes::new())));
    assert!(matches!(login.state(), LoginState::Failed(LoginStatus::UNSUPPORTED_VERSION)));
}

#[test]
fn endless_logins_end() {
    let mut target = target();
    let mut login = fresh();
    let text = Bytes::from(format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0"));
    target.feed(&mut login, &plain(request(Stage::Security, None, false).encode(text)));
    for _ in 0..100 {
        target.feed(&mut login, &plain(request(Stage::Security, None, false).encode(Bytes::new())));
    }
    assert!(matches!(login.state(), LoginState::Failed(LoginStatus::INITIATOR_ERROR)));
}

#[test]
fn reinstatement_and_more_connections() {
    let mut target = target();
    let script = to("open").with("MaxConnections", "2");
    let (outcome, first) = target.login_ok(&script);
    let mut joining = to("open");
    joining.tsih = outcome.tsih;
    joining.cid = Cid(1);
    assert_eq!(target.login_ok(&joining).1.claim, Claim::Joins(outcome.tsih));
    joining.cid = Cid(2);
    assert_eq!(target.login_status(&joining), LoginStatus::TOO_MANY_CONNECTIONS);
    joining.cid = Cid(1);
    joining.operational.push(("MaxBurstLength".into(), "4096".into()));
    assert_eq!(target.login_status(&joining), LoginStatus::INITIATOR_ERROR);
    let (_, again) = target.login_ok(&script);
    let Claim::New(old) = first.claim else { panic!("new") };
    assert!(matches!(again.claim, Claim::Reinstates { old: o, .. } if o == old));
}

#[test]
fn a_connection_needs_a_place_unless_it_takes_that_of_another() {
    let mut target = target();
    let script = to("open").with("MaxConnections", "2");
    let (outcome, _) = target.login_ok(&script);
    target.has_place = false;
    let mut joining = to("open");
    (joining.tsih, joining.cid) = (outcome.tsih, Cid(7));
    assert_eq!(target.login_status(&joining), LoginStatus::OUT_OF_RESOURCES);
    joining.cid = script.cid;
    assert_eq!(target.login_ok(&joining).1.claim, Claim::Joins(outcome.tsih));
    let mut other = to("open");
    other.isid = Isid([0x80, 0, 0, 0, 0, 9]);
    assert_eq!(target.login_status(&other), LoginStatus::OUT_OF_RESOURCES);
    assert!(matches!(target.login_ok(&script).1.claim, Claim::Reinstates { .. }));
    target.login_ok(&LoginScript::discovery(INITIATOR));
}

/// Discovery sessions end by timeout: an idle one does not keep its place.
#[test]
fn discovery_sessions_end_by_themselves() {
    let mut target = target();
    let (_, done) = target.login_ok(&LoginScript::discovery(INITIATOR));
    let Claim::New(tsih) = done.claim else { panic!("new") };
    let config = SessionConfig { ping_after: Duration::ZERO, ..SessionConfig::default() };
    let mut session = Session::new(&done, tsih, config, Timestamp(0));
    let handle = session.attach(&done, Timestamp(0)).unwrap();
    let end = Timestamp(0).after(DISCOVERY_SESSION_TIMEOUT);
    assert_eq!(session.poll_timeout(), Some(end));
    session.handle_timeout(end);
    assert!(session.is_ended());
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    assert!(matches!(events[0], Event::Close(closed, CloseReason::Dropped) if closed == handle));
    assert!(matches!(events[1], Event::Ended(EndReason::Terminated)));
}
