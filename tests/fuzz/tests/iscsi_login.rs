//! Login streams (RFC 7143 §6.3, §12, §13): any sequence of requests with any
//! keys ends in a login, a refusal, or a wait for more; the negotiated values
//! are within the offered ones.
#![allow(dead_code, reason = "the harness serves other tests, too")]

use bytes::Bytes;
use zgate_fuzz::{Dice, target};
use zgate_iscsi::limits;
use zgate_iscsi::login::{Login, LoginState, Offer};
use zgate_iscsi::names::{Cid, Isid, PortalGroup, Tsih};
use zgate_iscsi::pdu::{Bhs, Frame, Itt, LoginRequest, LoginResponse, Stage};
use zgate_iscsi::serial::Sn;
use zgate_iscsi::text::parse_text;
use zgate_test_harness::iscsi::{INITIATOR, Target};

target!(iscsi_login, 3000, login);

const KEYS: &[&str] = &[
    "InitiatorName",
    "TargetName",
    "SessionType",
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
    "HeaderDigest",
    "DataDigest",
    "MaxConnections",
    "SendTargets",
    "TargetPortalGroupTag",
    "InitialR2T",
    "ImmediateData",
    "MaxRecvDataSegmentLength",
    "MaxBurstLength",
    "FirstBurstLength",
    "DefaultTime2Wait",
    "DefaultTime2Retain",
    "MaxOutstandingR2T",
    "DataPDUInOrder",
    "DataSequenceInOrder",
    "ErrorRecoveryLevel",
    "iSCSIProtocolLevel",
    "TaskReporting",
    "X-com.example.key",
    "IFMarker",
    "InitiatorAlias",
    "RDMAExtensions",
    "TargetRecvDataSegmentLength",
];

const VALUES: &[&str] = &[
    "Yes",
    "No",
    "None",
    "CRC32C",
    "CRC32C,None",
    "None,CRC32C",
    "CHAP",
    "CHAP,None",
    "5,6,7,8",
    "5",
    "0",
    "1",
    "2",
    "512",
    "8192",
    "65536",
    "16777215",
    "16777216",
    "4294967296",
    "0x10",
    "0X1F",
    "0b",
    "0bAAAA",
    "Normal",
    "Discovery",
    "All",
    "Irrelevant",
    "Reject",
    "NotUnderstood",
    "joe",
    "",
    "-1",
    "1~2",
    "RFC3720,FastAbort",
    "iqn.2026-01.test:open",
    "iqn.2026-01.test:chap",
    "iqn.2026-01.test:moved",
    INITIATOR,
];

fn text(dice: &mut Dice<'_>, first: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut push = |key: &str, value: &[u8]| {
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value);
        out.push(0);
    };
    if first && !dice.once_in(8) {
        let target = dice.pick(&["open", "chap", "chap", "open", "moved", "unknown"]);
        push("InitiatorName", INITIATOR.as_bytes());
        push("TargetName", format!("iqn.2026-01.test:{target}").as_bytes());
        push("AuthMethod", dice.pick(&["CHAP,None", "CHAP", "None"]).as_bytes());
    }
    for _ in 0..dice.below(10) {
        let key = *dice.pick(KEYS);
        match dice.below(8) {
            0 => push(key, &dice.blob(300)),
            1 => push(key, dice.number().to_string().as_bytes()),
            2 => push(key, format!("0x{:x}", dice.number()).as_bytes()),
            _ => push(key, dice.pick(VALUES).as_bytes()),
        }
    }
    if dice.once_in(16) {
        out.extend_from_slice(&dice.blob(60));
    }
    out
}

fn request(dice: &mut Dice<'_>, stage: Stage, first: bool) -> Frame {
    let next = match dice.below(6) {
        0 => None,
        1 => Some(Stage::FullFeature),
        _ if stage == Stage::Security => Some(Stage::Operational),
        _ => Some(Stage::FullFeature),
    };
    let request = LoginRequest {
        continues: dice.once_in(10),
        current: stage,
        transit: next,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih(if dice.once_in(12) { dice.byte().into() } else { 0 }),
        itt: Itt(0),
        cid: Cid(0),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
    };
    let text = Bytes::from(text(dice, first));
    let mut bhs = request.encode(Bytes::new()).bhs;
    if dice.once_in(12) {
        let at = dice.below(48);
        bhs.0[at] ^= dice.byte();
    }
    Frame::new(bhs, Bytes::new(), vec![text])
}

fn check(offer: &Offer, state: &LoginState) {
    let LoginState::Done(done) = state else { return };
    let params = &done.params;
    assert!(params.max_connections >= 1 && params.max_connections <= offer.max_connections.max(1));
    assert!(params.error_recovery_level <= offer.error_recovery_level);
    assert!((512..=limits::MAX_BURST_BYTES).contains(&params.max_burst_bytes));
    // An initiator that leaves FirstBurstLength at its default above a small
    // MaxBurstLength is tolerated within bounds (RFC 7143 §13.14 forbids it).
    assert!(params.first_burst_bytes <= offer.first_burst_bytes.max(65_536));
    assert!((512..1 << 24).contains(&params.initiator_recv_bytes));
    assert!(params.target_recv_bytes <= offer.max_recv_bytes);
    assert!((1..=limits::MAX_OUTSTANDING_R2T).contains(&params.max_outstanding_r2t));
}

fn login(dice: &mut Dice<'_>) {
    let offer = Offer { error_recovery_level: 2, max_connections: 4, ..Offer::default() };
    let mut target = Target::new(offer.clone());
    let mut login = Login::new(offer.clone(), None, PortalGroup(1));
    let (mut stage, mut answers, mut first) = (Stage::Security, 0, true);
    while !dice.is_spent() && matches!(login.state(), LoginState::InProgress) {
        let frame = if dice.once_in(24) {
            let mut bhs = Bhs([0; 48]);
            bhs.put(0, dice.raw(48));
            Frame::new(bhs, Bytes::new(), vec![Bytes::from(dice.blob(64))])
        } else {
            let skip = first && dice.once_in(6);
            request(dice, if skip { Stage::Operational } else { stage }, first)
        };
        target.feed(&mut login, &frame);
        first = false;
        let mut sent = 0;
        while let Some(pdu) = login.poll_transmit() {
            sent += 1;
            assert!(pdu.data_bytes() <= limits::DEFAULT_RECV_SEGMENT_BYTES as usize);
            let frame = zgate_test_harness::iscsi::plain(pdu);
            let response = LoginResponse::parse(&frame.bhs).expect("a Login Response");
            assert!(parse_text(&frame.contiguous_data()).is_ok(), "text of our own");
            if response.status == (0, 0)
                && let Some(next) = response.transit
            {
                stage = next;
            }
        }
        assert_eq!(sent, 1, "one answer to each request");
        answers += 1;
    }
    assert!(answers <= limits::MAX_LOGIN_REQUESTS + 1);
    check(&offer, login.state());
}
