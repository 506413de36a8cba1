//! EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, DESTROY_CLIENTID,
//! BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, RECLAIM_COMPLETE and SET_SSV
//! (RFC 8881 §18.33-§18.37, §18.47, §18.50, §18.51).

use zgate_test_harness::nfs::{Client, LEASE, Ops, Harness, by_kerberos, sessions};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use zgate_nfs::runtime::{PeerCertificate, Protection};
use zgate_nfs_wire::v4::op::BackchannelCtl;
use zgate_nfs_wire::v4::op::backchannel_ctl;
use zgate_nfs_wire::v4::op::BindConnToSession;
use zgate_nfs_wire::v4::op::bind_conn_to_session::{Direction, self};
use zgate_nfs_wire::v4::op::CreateSession;
use zgate_nfs_wire::v4::op::create_session::{CallbackSecurity, self};
use zgate_nfs_wire::v4::op::DestroyClientid;
use zgate_nfs_wire::v4::op::destroy_clientid;
use zgate_nfs_wire::v4::op::DestroySession;
use zgate_nfs_wire::v4::op::destroy_session;
use zgate_nfs_wire::v4::op::ExchangeId;
use zgate_nfs_wire::v4::op::exchange_id::{CONFIRMED, Protect, ProtectedOps, UPDATE, self};
use zgate_nfs_wire::v4::op::ReclaimComplete;
use zgate_nfs_wire::v4::op::reclaim_complete;
use zgate_nfs_wire::v4::op::SetSsv;
use zgate_nfs_wire::v4::op::want_delegation::SsvArgs;
use zgate_nfs_wire::v4::{Bitmap, ClientId, SessionId, Status};
use zgate_rpc::gss::Service;
use zgate_rpc::{AuthSys, Credential};

fn destroy(session: SessionId) -> Ops {
    Ops::new().op::<DestroySession>(&destroy_session::Args { session })
}

fn destroy_client(clientid: ClientId) -> Ops {
    Ops::new().op::<DestroyClientid>(&destroy_clientid::Args { clientid })
}

#[test]
fn exchange_id_keeps_one_record_per_name() {
    sessions(|s| {
        let again = s.c.exchange_id().unwrap();
        assert_eq!(again.clientid, s.c.id.get());
        assert_ne!(again.flags & CONFIRMED, 0);
        let update = exchange_id::Args { flags: UPDATE, ..s.c.exchange_args() };
        assert_eq!(s.c.exchange_id_with(&update).unwrap().clientid, again.clientid);
        let restarted = exchange_id::Args { verifier: [7; 8], ..update.clone() };
        assert_eq!(s.c.exchange_id_with(&restarted), Err(Status::NotSame));
        let nobody = exchange_id::Args { owner: b"nobody"[..].into(), ..update.clone() };
        assert_eq!(s.c.exchange_id_with(&nobody), Err(Status::Noent));
        s.c.as_user(1000, || {
            assert_eq!(s.c.exchange_id_with(&update), Err(Status::Perm));
        });
        let odd = exchange_id::Args { flags: 0x8, ..s.c.exchange_args() };
        assert_eq!(s.c.exchange_id_with(&odd), Err(Status::Inval));
        let confirmed = exchange_id::Args { flags: CONFIRMED, ..s.c.exchange_args() };
        assert_eq!(s.c.exchange_id_with(&confirmed), Err(Status::Inval));
        let inside = Ops::new().op::<ExchangeId>(&s.c.exchange_args());
        s.c.check("behind SEQUENCE too", inside, Status::Ok);
    });
}

#[test]
fn another_principal_and_a_name_in_use() {
    sessions(|s| {
        s.open();
        let thief = s.harness.stranger("fixture", s.c.minor);
        thief.become_user(1000, 1000);
        assert_eq!(thief.exchange_id(), Err(Status::ClidInuse));
        s.harness.pass_seconds(LEASE + 1);
        assert!(thief.exchange_id().is_ok(), "the lease ran out");
    });
}

#[test]
fn nobody_takes_the_name_of_a_client_with_a_certificate_by_a_weaker_connection() {
    sessions(|s| {
        let c = s.harness.stranger("certified", s.c.minor);
        c.protection.set(Protection::MutualTls);
        c.introduce(false);
        let opened = c.create("held");
        let thief = s.harness.stranger("certified", s.c.minor);
        for weaker in [Protection::Plain, Protection::Tls] {
            thief.protection.set(weaker);
            thief.verifier.set(2);
            assert_eq!(thief.exchange_id(), Err(Status::ClidInuse), "{weaker:?}");
            assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
            // A further mount of the same host.
            thief.verifier.set(1);
            assert_eq!(thief.exchange_id().unwrap().clientid, c.id.get(), "{weaker:?}");
        }
        thief.verifier.set(2);
        thief.protection.set(Protection::MutualTls);
        assert!(thief.exchange_id().is_ok(), "it may have restarted");
        assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1), "not confirmed yet");
        thief.protection.set(Protection::Plain);
        s.harness.pass_seconds(LEASE + 1);
        assert!(thief.exchange_id().is_ok(), "its lease has expired");
    });
}

#[test]
fn another_user_of_a_certificate_does_not_take_a_name_in_use() {
    sessions(|s| {
        let shown = |name: &str| {
            let certificate = PeerCertificate { names: vec![name.into()], ..Default::default() };
            Some(Arc::new(certificate))
        };
        let [c, thief] = [1, 2].map(|verifier| {
            let client = s.harness.stranger("certified", s.c.minor);
            client.protection.set(Protection::MutualTls);
            client.verifier.set(verifier);
            client
        });
        *c.certificate.borrow_mut() = shown("user:alice@example");
        c.introduce(false);
        let opened = c.create("held");
        for other in [None, shown("user:bob@example"), shown("dns:alice@example")] {
            *thief.certificate.borrow_mut() = other;
            assert_eq!(thief.exchange_id(), Err(Status::ClidInuse));
        }
        assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
        *thief.certificate.borrow_mut() = shown("user:alice@example");
        assert!(thief.exchange_id().is_ok(), "it has restarted");
    });
}

/// A mount of Linux asks with the verifier of the boot, and with another one if the client is
/// known. The first call must not keep the lease of a client whose certificate was replaced.
#[test]
fn who_shows_less_does_not_renew_the_lease_of_a_client_with_a_certificate() {
    sessions(|s| {
        let c = s.harness.stranger("certified", s.c.minor);
        c.protection.set(Protection::MutualTls);
        c.introduce(false);
        c.create("held");
        let weaker = s.harness.stranger("certified", s.c.minor);
        let mount = || {
            weaker.verifier.set(1);
            assert_eq!(weaker.exchange_id().unwrap().clientid, c.id.get());
            weaker.verifier.set(2);
            weaker.exchange_id().map(|made| made.clientid)
        };
        for _ in 0..2 {
            assert_eq!(mount(), Err(Status::ClidInuse));
            s.harness.pass_seconds(LEASE / 2 + 1);
        }
        assert_ne!(mount().unwrap(), c.id.get(), "its lease has expired");
    });
}

#[test]
fn a_restarted_client_loses_its_state_when_it_confirms() {
    sessions(|s| {
        let opened = s.open();
        let old = s.c.session.get();
        let reborn = s.harness.stranger("fixture", s.c.minor);
        reborn.verifier.set(2);
        let made = reborn.exchange_id().unwrap();
        assert_eq!(made.flags & CONFIRMED, 0);
        assert!(s.c.read(&opened.fh, opened.stateid, 0, 1).is_ok(), "not confirmed yet");
        reborn.create_session(made.sequenceid, false).unwrap();
        assert_eq!(s.c.session.get(), old);
        assert_eq!(s.c.run(Ops::new().root()).status, Status::Badsession);
        reborn.reclaim_complete().unwrap();
        assert!(reborn.open(&zgate_test_harness::nfs::OpenRequest::name(&s.root, "file").deny(3)).is_ok());
    });
}

#[test]
fn protection_needs_gss() {
    sessions(|s| {
        let mut e = zgate_xdr::Encoder::new();
        e.u64(1);
        e.opaque(b"protected");
        for word in [0, 1, 0, 0, 0] {
            e.u32(word);
        }
        let machine = e.finish().flatten().unwrap();
        assert_eq!(s.c.bare(Ops::new().raw(42, &machine)).status, Status::Inval);
    });
}

/// SP4_MACH_CRED (§2.10.8.3): what would end or take over the client's sessions is
/// for the principal that registered it, signed.
#[test]
fn sessions_belong_to_the_machine_that_asked_for_it() {
    sessions(|s| {
        let c = s.harness.stranger("machine", s.c.minor);
        let become_ = |credential: Credential| *c.credential.borrow_mut() = credential;
        let ask = |enforced: &[u32]| {
            let (enforced, allowed) = (Bitmap::of(enforced), Bitmap::of(&[4]));
            let protect = Protect::MachineCredential(ProtectedOps { enforced, allowed });
            exchange_id::Args { protect, ..c.exchange_args() }
        };
        let asked = ask(&[41, 42, 43, 44, 57]);
        become_(by_kerberos("host/a@R", Service::None));
        assert_eq!(c.exchange_id_with(&asked), Err(Status::Inval), "not signed");
        become_(by_kerberos("host/a@R", Service::Integrity));
        assert_eq!(c.exchange_id_with(&ask(&[25])), Err(Status::Inval), "READ is not enforced");
        let made = c.exchange_id_with(&asked).unwrap();
        let granted = made.protect.clone().unwrap();
        assert_eq!(granted.enforced, Bitmap::of(&[41, 42, 43, 44, 57]));
        assert_eq!(granted.allowed, Bitmap::default());
        let (session, id) = (|| c.session.get(), made.clientid);
        let create = || Ops::new().op::<CreateSession>(&c.session_args(made.sequenceid, false));
        // What an update asks for is not looked at (§18.35.4).
        let update = exchange_id::Args { flags: UPDATE, ..c.exchange_args() };
        let bind = |session| {
            let args = bind_conn_to_session::Args { session, direction: Direction::Fore, rdma_mode: false };
            Ops::new().op::<BindConnToSession>(&args)
        };
        let others = [
            Credential::Sys(AuthSys::default()),
            by_kerberos("alice@R", Service::Privacy),
            by_kerberos("host/a@R", Service::None),
        ];
        for other in &others {
            become_(other.clone());
            assert_eq!(c.bare(create()).status, Status::WrongCred, "{other:?}");
        }
        become_(by_kerberos("host/a@R", Service::Privacy));
        c.create_session(made.sequenceid, false).unwrap();
        for other in &others {
            become_(other.clone());
            assert_eq!(c.bare(bind(session())).status, Status::WrongCred, "{other:?}");
            assert_eq!(c.bare(destroy(session())).status, Status::WrongCred, "{other:?}");
            assert_eq!(c.bare(destroy_client(id)).status, Status::WrongCred, "{other:?}");
            let updated = c.exchange_id_with(&update).unwrap_err();
            assert!(matches!(updated, Status::WrongCred | Status::Perm), "{updated:?}");
            // Users do their work in the session.
            c.check("work", Ops::new().root(), Status::Ok);
        }
        become_(by_kerberos("host/a@R", Service::Integrity));
        assert_eq!(c.exchange_id_with(&update).unwrap().protect, Some(granted));
        assert_eq!(c.bare(bind(session())).status, Status::Ok);
        assert_eq!(c.bare(destroy(session())).status, Status::Ok);
        assert_eq!(c.bare(destroy_client(id)).status, Status::Ok);
    });
}

#[test]
fn only_the_machine_binds_connections_where_it_has_asked_for_it() {
    sessions(|s| {
        let c = s.harness.stranger("machine", s.c.minor);
        let machine = by_kerberos("host/a@R", Service::Integrity);
        let others = [Credential::Sys(AuthSys::default()), by_kerberos("alice@R", Service::Privacy)];
        *c.credential.borrow_mut() = machine.clone();
        let enforced = Bitmap::of(&[41, 42, 43, 44, 57]);
        let ops = ProtectedOps { enforced, allowed: Bitmap::default() };
        let protect = Protect::MachineCredential(ops);
        let made = c.exchange_id_with(&exchange_id::Args { protect, ..c.exchange_args() }).unwrap();
        c.create_session(made.sequenceid, false).unwrap();
        for caller in others.iter().chain([&machine]) {
            *c.credential.borrow_mut() = caller.clone();
            c.check("the connection of CREATE_SESSION", Ops::new().root(), Status::Ok);
        }
        c.reconnect();
        for caller in others.iter().chain([&machine]) {
            *c.credential.borrow_mut() = caller.clone();
            c.check("not bound", Ops::new().root(), Status::ConnNotBoundToSession);
        }
        let (session, direction) = (c.session.get(), Direction::Fore);
        let args = bind_conn_to_session::Args { session, direction, rdma_mode: false };
        assert_eq!(c.bare(Ops::new().op::<BindConnToSession>(&args)).status, Status::Ok);
        for caller in others.iter().chain([&machine]) {
            *c.credential.borrow_mut() = caller.clone();
            c.check("bound by the machine", Ops::new().root(), Status::Ok);
        }
    });
}

#[test]
fn a_protected_client_without_state_keeps_its_name_while_it_has_a_lease() {
    sessions(|s| {
        let c = s.harness.stranger("machine", s.c.minor);
        *c.credential.borrow_mut() = by_kerberos("host/a@R", Service::Integrity);
        let enforced = Bitmap::of(&[41, 42, 43, 44, 57]);
        let ops = ProtectedOps { enforced, allowed: Bitmap::default() };
        let protect = Protect::MachineCredential(ops);
        let made = c.exchange_id_with(&exchange_id::Args { protect, ..c.exchange_args() }).unwrap();
        c.create_session(made.sequenceid, false).unwrap();
        let (thief, old) = (s.harness.stranger("machine", s.c.minor), s.harness.stranger("machine", 0));
        thief.verifier.set(2);
        for (other, refusal) in [
            (Credential::Sys(AuthSys::default()), Status::ClidInuse),
            (by_kerberos("alice@R", Service::Privacy), Status::ClidInuse),
            (by_kerberos("host/a@R", Service::None), Status::WrongCred),
        ] {
            *thief.credential.borrow_mut() = other.clone();
            assert_eq!(thief.exchange_id(), Err(refusal), "{other:?}");
            *old.credential.borrow_mut() = other.clone();
            assert_eq!(old.set_clientid(false).err(), Some(Status::ClidInuse), "{other:?}");
            c.check("its session", Ops::new().root(), Status::Ok);
        }
        s.harness.pass_seconds(LEASE + 1);
        let made = old.set_clientid(false).unwrap();
        c.check("late, but back before the confirmation", Ops::new().root(), Status::Ok);
        assert_eq!(old.confirm_clientid(&made), Err(Status::ClidInuse));
        c.check("its session", Ops::new().root(), Status::Ok);
        s.harness.pass_seconds(LEASE + 1);
        assert!(thief.exchange_id().is_ok(), "its lease has expired");
    });
}

#[test]
fn another_principal_and_a_name_in_use_by_minor_version_zero() {
    sessions(|s| {
        let old = s.harness.client("old", 0);
        let opened = old.create("held");
        let thief = s.harness.stranger("old", s.c.minor);
        thief.become_user(1000, 1000);
        assert_eq!(thief.exchange_id(), Err(Status::ClidInuse));
        assert_eq!(old.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
        s.harness.pass_seconds(LEASE + 1);
        assert!(thief.exchange_id().is_ok(), "the lease ran out");
    });
}

#[test]
fn create_session_counts_and_repeats() {
    sessions(|s| {
        let c = s.harness.stranger("c", s.c.minor);
        let made = c.exchange_id().unwrap();
        let args = c.session_args(made.sequenceid, false);
        let ops = |args: &create_session::Args| Ops::new().op::<CreateSession>(args);
        let ahead = create_session::Args { sequence: made.sequenceid + 1, ..args.clone() };
        assert_eq!(c.bare(ops(&ahead)).status, Status::SeqMisordered);
        let unknown = create_session::Args { clientid: ClientId(1), ..args.clone() };
        assert_eq!(c.bare(ops(&unknown)).status, Status::StaleClientid);
        c.as_user(1000, || assert_eq!(c.bare(ops(&args)).status, Status::ClidInuse));
        let first = c.bare(ops(&args)).ok();
        assert_eq!(c.bare(ops(&args)).ok().raw, first.raw, "a retry");
        let second = create_session::Args { sequence: made.sequenceid + 1, ..args.clone() };
        let other = c.bare(ops(&second)).ok().get::<CreateSession>();
        assert_ne!(other.session, first.get::<CreateSession>().session);
        assert_eq!(c.bare(ops(&args)).status, Status::SeqMisordered, "an older retry");
        assert_eq!(c.exchange_id().unwrap().sequenceid, made.sequenceid + 2);
    });
}

#[test]
fn channels_are_negotiated() {
    sessions(|s| {
        let c = s.harness.stranger("c", s.c.minor);
        let made = c.exchange_id().unwrap();
        let args = c.session_args(made.sequenceid, true);
        let refused = |change: &dyn Fn(&mut create_session::Args)| {
            let mut args = args.clone();
            change(&mut args);
            c.create_session_with(&args).unwrap_err()
        };
        assert_eq!(refused(&|a| a.fore.max_request_bytes = 20), Status::Toosmall);
        assert_eq!(refused(&|a| a.fore.max_response_bytes = 0), Status::Toosmall);
        assert_eq!(refused(&|a| a.back.max_request_bytes = 10), Status::Toosmall);
        assert_eq!(refused(&|a| a.fore.slots = 0), Status::Inval);
        assert_eq!(refused(&|a| a.fore.max_ops = 0), Status::Inval);
        assert_eq!(refused(&|a| a.flags = 0x80), Status::Inval);
        let mut greedy = args.clone();
        greedy.fore = create_session::ChannelAttrs {
            header_pad_bytes: u32::MAX,
            max_request_bytes: u32::MAX,
            max_response_bytes: u32::MAX,
            max_cached_bytes: u32::MAX,
            max_ops: u32::MAX,
            slots: u32::MAX,
        };
        greedy.flags = 7;
        greedy.back.slots = 1000;
        let res = c.create_session_with(&greedy).unwrap();
        assert_eq!(res.back, greedy.back);
        assert!(res.fore.slots <= 128 && res.fore.max_ops <= 128);
        assert!(res.fore.max_request_bytes < 8 << 20 && res.fore.max_cached_bytes <= 8 << 10);
        assert_eq!(res.flags, create_session::BACK_CHANNEL, "neither persistent nor RDMA");
    });
}

#[test]
fn sessions_and_clients_end() {
    sessions(|s| {
        let (c, other) = (&s.c, s.harness.client("other", s.c.minor));
        assert_eq!(c.bare(destroy(SessionId([1; 16]))).status, Status::Badsession);
        let foreign = c.bare(destroy(other.session.get())).status;
        assert_eq!(foreign, Status::ConnNotBoundToSession);
        c.check("not the last operation", destroy(c.session.get()).root(), Status::NotOnlyOp);
        c.check("in use", destroy_client(c.id.get()), Status::ClientidBusy);
        assert_eq!(c.bare(destroy_client(ClientId(5))).status, Status::StaleClientid);
        let opened = s.open();
        c.check_last("its own", destroy(c.session.get()), Status::Ok);
        assert_eq!(c.run(Ops::new().root()).status, Status::Badsession);
        assert_eq!(c.bare(destroy_client(c.id.get())).status, Status::ClientidBusy, "an open");
        let sequence = c.exchange_id().unwrap().sequenceid;
        c.create_session(sequence, false).unwrap();
        c.close(&opened).unwrap();
        assert_eq!(c.bare(destroy(c.session.get())).status, Status::Ok, "alone");
        assert_eq!(c.bare(destroy_client(c.id.get())).status, Status::Ok);
        assert_eq!(c.bare(destroy_client(c.id.get())).status, Status::StaleClientid);
        assert_eq!(s.harness.records.names(), [b"other".to_vec()]);
        other.check("the other stays", Ops::new().root(), Status::Ok);
    });
}

#[test]
fn connections_are_bound() {
    sessions(|s| {
        let c: &Client = &s.c;
        let bind = |session, direction| {
            let args = bind_conn_to_session::Args { session, direction, rdma_mode: true };
            c.bare(Ops::new().op::<BindConnToSession>(&args)).result()
        };
        assert_eq!(bind(SessionId([3; 16]), Direction::Fore).unwrap_err(), Status::Badsession);
        for (asked, answered) in [
            (Direction::Fore, 1),
            (Direction::Back, 2),
            (Direction::ForeOrBoth, 3),
            (Direction::BackOrBoth, 3),
        ] {
            c.reconnect();
            let res = bind(c.session.get(), asked).unwrap().get::<BindConnToSession>();
            assert_eq!((res.direction, res.session), (answered, c.session.get()));
            assert!(!res.rdma_mode);
            // Once more, and what would take a channel away (RFC 8881 §18.34.3).
            let single = [(Direction::Fore, answered == 1), (Direction::Back, answered == 2)];
            for (next, keeps) in single.into_iter().chain([(asked, true)]) {
                let expected = if keeps { None } else { Some(Status::Inval) };
                assert_eq!(bind(c.session.get(), next).err(), expected, "{next:?} of {answered}");
            }
        }
        // SEQUENCE has bound it to the fore channel.
        c.reconnect();
        c.check("by use", Ops::new().root(), Status::Ok);
        assert_eq!(bind(c.session.get(), Direction::Back).unwrap_err(), Status::Inval);
        let odd = Ops::new().raw(41, &[[0; 16].as_slice(), &[0, 0, 0, 9], &[0; 4]].concat());
        assert_eq!(c.bare(odd).status, Status::Badxdr);
    });
}

#[test]
fn callbacks_are_addressed_anew() {
    sessions(|s| {
        let control = |security| {
            let args = backchannel_ctl::Args { program: 0x4000_0001, security };
            Ops::new().op::<BackchannelCtl>(&args)
        };
        s.c.check("as before", control(Vec::new()), Status::Ok);
        s.c.check("by AUTH_SYS", control(vec![CallbackSecurity::Sys(Default::default())]), Status::Ok);
        let mut gss = 0x4000_0001_u32.to_be_bytes().to_vec();
        for word in [1_u32, 6, 1, 0, 0] {
            gss.extend(word.to_be_bytes());
        }
        s.c.check("no GSS here", Ops::new().raw(40, &gss), Status::Noent);
    });
}

#[test]
fn reclaims_are_complete_once() {
    sessions(|s| {
        let harness: &std::rc::Rc<Harness> = &s.harness;
        let done = |one_fs| Ops::new().op::<ReclaimComplete>(&reclaim_complete::Args { one_fs });
        s.c.check("twice", done(false), Status::CompleteAlready);
        s.c.check("one file system", done(true), Status::Nofilehandle);
        let c = harness.stranger("c", s.c.minor);
        c.introduce_for_reclaim(false);
        // RFC 8881 §18.51.3: no open is allowed before it.
        let wish = zgate_test_harness::nfs::OpenRequest::name(&s.root, "file");
        assert_eq!(c.open(&wish).unwrap_err(), Status::Grace);
        c.check("once", done(false), Status::Ok);
        assert!(c.open(&wish).is_ok());
    });
}

#[test]
fn ssv_is_not_offered() {
    sessions(|s| {
        let args = SsvArgs { ssv: b"key"[..].into(), digest: b"digest"[..].into() };
        s.c.check("no SSV", Ops::new().op::<SetSsv>(&args), Status::Inval);
    });
}

#[test]
fn a_shelf_that_does_not_keep_records_makes_clients_wait() {
    sessions(|s| {
        let c = s.harness.stranger("c", s.c.minor);
        c.introduce_for_reclaim(false);
        s.harness.records.set_broken(true);
        assert_eq!(c.reclaim_complete().unwrap_err(), Status::Delay);
        s.harness.records.set_broken(false);
        c.reclaim_complete().unwrap();
        // It restarts.
        c.reboot();
        let made = c.exchange_id().unwrap();
        s.harness.records.set_broken(true);
        assert_eq!(c.create_session(made.sequenceid, false).unwrap_err(), Status::Delay);
        s.harness.records.set_broken(false);
        assert!(c.create_session(made.sequenceid, false).is_ok(), "with the same number");
    });
}

/// A host with another address.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9));

#[test]
fn nobody_counts_up_to_another_clients_ids() {
    let harness = Harness::new();
    let mut seen: Vec<Vec<u64>> = vec![Vec::new(); 4];
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
    for number in 0..64 {
        let c = harness.client(&format!("c{number}"), 1);
        let old = harness.stranger(&format!("old{number}"), 0);
        let confirm = old.set_clientid(false).unwrap().confirm;
        let stateid = c.create(&format!("f{number}")).stateid;
        let ids = [c.id.get().0, word(&c.session.get().0), word(&confirm), word(&stateid.other)];
        ids.into_iter().zip(&mut seen).for_each(|(id, all)| all.push(id));
    }
    for (what, all) in ["client", "session", "confirm verifier", "stateid"].iter().zip(&seen) {
        let ones = all.iter().fold(0, |bits, id| bits | id);
        let zeros = all.iter().fold(0, |bits, id| bits | !id);
        assert_eq!(ones & zeros, u64::MAX, "{what}: a bit that never changes");
    }
}

#[test]
fn a_session_is_used_from_its_clients_hosts_only() {
    sessions(|s| {
        s.open();
        let thief = s.harness.client("thief", s.c.minor);
        let own = thief.session.get();
        thief.address.set(ELSEWHERE);
        thief.become_user(1000, 1000);
        thief.reconnect();
        thief.session.set(s.c.session.get());
        thief.id.set(s.c.id.get());
        let next = s.c.slots.borrow()[0] + 1;
        let used = thief.run_as(0, next, Ops::new().root()).status;
        assert_eq!(used, Status::ConnNotBoundToSession);
        for direction in [Direction::Fore, Direction::Back, Direction::BackOrBoth] {
            let session = s.c.session.get();
            let args = bind_conn_to_session::Args { session, direction, rdma_mode: false };
            let bound = thief.bare(Ops::new().op::<BindConnToSession>(&args)).status;
            assert_eq!(bound, Status::Badsession);
        }
        let ended = thief.bare(destroy(s.c.session.get())).status;
        assert_eq!(ended, Status::ConnNotBoundToSession);
        // A retry of CREATE_SESSION, whose answer contains the session's id,
        // and a further session.
        for sequence in [1, 2] {
            assert_eq!(thief.create_session(sequence, true), Err(Status::ClidInuse));
        }
        assert_eq!(thief.bare(destroy_client(s.c.id.get())).status, Status::StaleClientid);
        s.c.check("the slot is where it was", Ops::new().root(), Status::Ok);
        // The thief's own session can be used from its new address once the
        // credential is that of its registration.
        thief.session.set(own);
        *thief.slots.borrow_mut() = [1, 0, 0, 0];
        thief.check("another user", Ops::new().root(), Status::ConnNotBoundToSession);
        thief.become_user(0, 0);
        thief.check("its own principal", Ops::new().root(), Status::Ok);
        thief.become_user(1000, 1000);
        thief.reconnect();
        thief.check("a further connection of that host", Ops::new().root(), Status::Ok);
    });
}

#[test]
fn a_client_that_introduces_itself_from_two_hosts_acts_from_both() {
    sessions(|s| {
        let trunk = s.harness.stranger("fixture", s.c.minor);
        trunk.address.set(ELSEWHERE);
        let made = trunk.exchange_id().unwrap();
        assert_eq!((made.clientid, made.flags & CONFIRMED), (s.c.id.get(), CONFIRMED));
        trunk.session.set(s.c.session.get());
        let next = s.c.slots.borrow()[0] + 1;
        trunk.as_user(1000, || {
            assert_eq!(trunk.run_as(0, next, Ops::new().root()).status, Status::Ok);
        });
        let args = bind_conn_to_session::Args {
            session: s.c.session.get(),
            direction: Direction::BackOrBoth,
            rdma_mode: false,
        };
        let bound = trunk.bare(Ops::new().op::<BindConnToSession>(&args)).status;
        assert_eq!(bound, Status::Ok);
    });
}
