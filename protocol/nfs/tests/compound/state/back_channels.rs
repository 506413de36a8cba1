//! Sessions that can have a back channel, and others (RFC 8881 §18.33, §18.34, §18.36).

use std::rc::Rc;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::callback::{ReferringCall, ReferringCalls};
use zgate_nfs_wire::v4::op::bind_conn_to_session::{self, Direction};
use zgate_nfs_wire::v4::op::create_session::{self, BACK_CHANNEL, CallbackSecurity};
use zgate_nfs_wire::v4::op::open::Delegated;
use zgate_nfs_wire::v4::op::{BackchannelCtl, BindConnToSession, backchannel_ctl};
use zgate_rpc::AuthSys;
use zgate_test_harness::nfs::{Client, Harness, OpenRequest, Ops};

/// Gives a client a session with such arguments; returns the flags of the answer.
fn begin(c: &Client, change: &dyn Fn(&mut create_session::Args)) -> Result<u32, Status> {
    let made = c.exchange_id().unwrap();
    let mut args = c.session_args(made.sequenceid, true);
    change(&mut args);
    let flags = c.create_session_with(&args)?.flags;
    c.reclaim_complete().unwrap();
    Ok(flags)
}

/// Binds a new connection; returns the direction of the answer.
fn bind(c: &Client, direction: Direction) -> Result<u32, Status> {
    c.reconnect();
    let session = c.session.get();
    let args = bind_conn_to_session::Args { session, direction, rdma_mode: false };
    let reply = c.bare(Ops::new().op::<BindConnToSession>(&args)).result()?;
    Ok(reply.get::<BindConnToSession>().direction)
}

fn is_delegated(c: &Client, owner: &'static str) -> bool {
    let wish = OpenRequest::name(&c.export(), "f").access(1).owner(owner);
    let opened = c.open(&wish).unwrap();
    c.close(&opened).unwrap();
    matches!(opened.delegated, Delegated::Read { .. })
}

fn with_file() -> (Rc<Harness>, Client) {
    let harness = Harness::new();
    let c = harness.client("other", 1);
    c.file(&c.export(), "f", b"content");
    (harness, c)
}

/// Checks that a session has no back channel, and gets none by BIND_CONN_TO_SESSION.
fn has_none(c: &Client, flags: u32) {
    c.harness.pass_seconds(1);
    c.harness.simulation.settle();
    assert_eq!(flags & BACK_CHANNEL, 0);
    assert!(!is_delegated(c, "early"));
    assert_eq!(bind(c, Direction::Back), Err(Status::Inval));
    assert_eq!(bind(c, Direction::BackOrBoth), Err(Status::Inval));
    assert_eq!(bind(c, Direction::ForeOrBoth), Ok(1));
    assert!(!is_delegated(c, "late"));
}

#[test]
fn who_offers_gss_alone_is_not_called_without_it() {
    for minor in 1..=2 {
        let (harness, _other) = with_file();
        let c = harness.stranger("gss", minor);
        let flags = begin(&c, &|args| args.security = vec![CallbackSecurity::Gss]).unwrap();
        has_none(&c, flags);
        let control = |security| {
            let args = backchannel_ctl::Args { program: 0x4000_0000, security };
            Ops::new().op::<BackchannelCtl>(&args)
        };
        c.check("nothing new", control(Vec::new()), Status::Ok);
        assert_eq!(bind(&c, Direction::ForeOrBoth), Ok(1));
        c.check("AUTH_NONE too", control(vec![CallbackSecurity::None]), Status::Ok);
        assert_eq!(bind(&c, Direction::BackOrBoth), Ok(3));
        assert!(is_delegated(&c, "last"));
    }
}

#[test]
fn of_what_is_offered_the_server_takes_what_it_has() {
    let sys = CallbackSecurity::Sys(Default::default());
    for offered in [vec![], vec![CallbackSecurity::Gss, sys]] {
        let (harness, _other) = with_file();
        let c = harness.stranger("several", 1);
        let flags = begin(&c, &|args| args.security.clone_from(&offered)).unwrap();
        assert_eq!(flags, BACK_CHANNEL, "{offered:?}");
        assert!(is_delegated(&c, "one"), "{offered:?}");
    }
}

/// CB_SEQUENCE and CB_RECALL have 188 bytes with the longest handle, and the credential's.
#[test]
fn a_back_channel_has_room_for_a_recall() {
    for minor in 1..=2 {
        let harness = Harness::new();
        let sys = AuthSys { groups: vec![7; 16], ..AuthSys::default() };
        let offers = [CallbackSecurity::None, CallbackSecurity::Sys(sys)];
        for (security, (too_small, enough)) in offers.into_iter().zip([(140, 188), (200, 272)]) {
            let c = harness.stranger(&format!("small{enough}"), minor);
            let of_bytes = |bytes| {
                begin(&c, &|args| {
                    args.security = vec![security.clone()];
                    args.back.max_request_bytes = bytes;
                })
            };
            assert_eq!(of_bytes(too_small), Err(Status::Toosmall), "{security:?}");
            assert_eq!(of_bytes(enough), Ok(BACK_CHANNEL), "{security:?}");
        }
    }
}

#[test]
fn a_call_needs_a_slot_and_two_operations() {
    for minor in 1..=2 {
        for (ops, slots) in [(1, 4), (0, 4), (2, 0)] {
            let (harness, _other) = with_file();
            let c = harness.stranger("narrow", minor);
            let flags = begin(&c, &|args| (args.back.max_ops, args.back.slots) = (ops, slots));
            has_none(&c, flags.unwrap());
        }
    }
}

/// RFC 8881 §2.10.6.3: the recall may overtake the answer that brings the delegation, until the
/// client sends the next request in the slot.
#[test]
fn a_recall_names_the_open_whose_answer_may_be_under_way() {
    for minor in 1..=2 {
        let (harness, other) = with_file();
        let c = harness.reachable("holder", minor);
        let wish = OpenRequest::name(&c.export(), "f");
        type Then = fn(&Client);
        let thens: [(Then, bool); 3] = [
            (|_| (), true),
            (|c| c.mkdir_elsewhere("other slot"), true),
            (|c| c.check("the same slot", Ops::new().root(), Status::Ok), false),
        ];
        for (then, is_named) in thens {
            // After a recall no delegation is granted for a while.
            harness.pass_seconds(15);
            c.check("the lease", Ops::new().root(), Status::Ok);
            other.check("the lease", Ops::new().root(), Status::Ok);
            let opened = c.open(&wish.clone().access(1)).unwrap();
            let (session, sequence) = (c.session.get(), c.slots.borrow()[0]);
            then(&c);
            assert_eq!(other.open(&wish.clone().access(2)).unwrap_err(), Status::Delay);
            let calls = vec![ReferringCall { sequence, slot: 0 }];
            let named = if is_named { vec![ReferringCalls { session, calls }] } else { vec![] };
            assert_eq!(harness.simulation.inbox().referring, named);
            c.delegreturn(&opened.fh, opened.delegation()).unwrap();
            c.close(&opened).unwrap();
        }
    }
}
