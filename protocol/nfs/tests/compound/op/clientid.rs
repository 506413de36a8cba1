//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW (RFC 7530 §16.28, §16.33,
//! §16.34): client registration in minor version 0.

use zgate_test_harness::nfs::{Client, LEASE, CallbackBehavior, Ops, Harness, OpenRequest, each};
use zgate_nfs_wire::v4::op::open::{Delegated, How};
use zgate_nfs_wire::v4::op::Renew;
use zgate_nfs_wire::v4::op::renew;
use zgate_nfs_wire::v4::op::Setclientid;
use zgate_nfs_wire::v4::op::setclientid::NetAddress;
use zgate_nfs_wire::v4::op::SetclientidConfirm;
use zgate_nfs_wire::v4::op::{setclientid, setclientid_confirm};
use zgate_nfs_wire::v4::{ClientId, Status};
use std::sync::Arc;
use zgate_nfs::callback_security::CallbackSecurity;
use zgate_nfs::runtime::{CallbackPath, Protection};
use zgate_rpc::Credential;
use zgate_rpc::auth::{GssCaller, GssIdentity, GssUser};
use zgate_rpc::gss::Service;

fn renew(c: &Client) -> Status {
    let args = renew::Args { clientid: c.id.get() };
    c.run(Ops::new().op::<Renew>(&args)).status
}

#[test]
fn a_client_introduces_itself_and_renews() {
    each([0], |s| {
        assert_eq!(renew(&s.c), Status::Ok);
        s.c.id.set(ClientId(77));
        assert_eq!(renew(&s.c), Status::StaleClientid);
    });
}

#[test]
fn an_unconfirmed_client_may_do_nothing() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    let made = c.set_clientid(false).unwrap();
    c.id.set(made.clientid);
    assert_eq!(renew(&c), Status::StaleClientid);
    let wish = OpenRequest::name(&c.export(), "f").how(How::Unchecked(Default::default()));
    assert_eq!(c.open(&wish).unwrap_err(), Status::StaleClientid);
    let wrong = setclientid::Res { confirm: [9; 8], ..made.clone() };
    assert_eq!(c.confirm_clientid(&wrong), Err(Status::StaleClientid));
    assert_eq!(c.confirm_clientid(&made), Ok(()));
    // A repeated confirmation is harmless (RFC 7530 §16.34.5).
    assert_eq!(c.confirm_clientid(&made), Ok(()));
    assert!(harness.records.names().is_empty(), "it holds nothing yet");
    c.open(&wish).unwrap();
    assert_eq!(harness.records.names(), [b"c".to_vec()]);
}

#[test]
fn the_same_client_changes_its_callback_and_keeps_its_id() {
    let harness = Harness::new();
    let c = harness.client("c", 0);
    let opened = c.create("f");
    let id = c.id.get();
    let made = c.set_clientid(true).unwrap();
    assert_eq!(made.clientid, id);
    c.confirm_clientid(&made).unwrap();
    assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
}

/// RFC 7530 §16.33.5, §16.34.5.
#[test]
fn another_callback_address_counts_when_it_is_confirmed() {
    let harness = Harness::new();
    let (c, other) = (harness.stranger("c", 0), harness.client("other", 0));
    let made = c.set_clientid(true).unwrap();
    c.confirm_clientid(&made).unwrap();
    let wish = |text| OpenRequest::name(&c.export(), text);
    for text in ["f", "g"] {
        other.file(&c.export(), text, b"");
        c.open(&wish(text)).unwrap().delegation();
    }
    let before = c.path();
    // It has another address from now on.
    c.reconnect();
    let update = c.set_clientid(true).unwrap();
    assert_eq!(update.clientid, made.clientid);
    assert_ne!(update.confirm, made.confirm);
    assert_eq!(other.open(&wish("f")).unwrap_err(), Status::Delay);
    assert_eq!(harness.simulation.callbacks(&before).len(), 1, "the address in use");
    assert_eq!(c.confirm_clientid(&made), Ok(()), "a repeated confirmation");
    assert_eq!(c.confirm_clientid(&update), Ok(()));
    assert_eq!(c.confirm_clientid(&update), Ok(()), "another one");
    assert_eq!(c.confirm_clientid(&made), Err(Status::StaleClientid));
    assert_eq!(other.open(&wish("g")).unwrap_err(), Status::Delay);
    assert_eq!(c.callbacks().len(), 1, "the new address");
    assert_eq!(harness.simulation.callbacks(&before).len(), 1);
}

#[test]
fn a_rebooted_client_loses_what_it_held_when_it_confirms() {
    let harness = Harness::new();
    let c = harness.client("c", 0);
    let opened = c.create("f");
    c.reboot();
    let made = c.set_clientid(false).unwrap();
    assert_ne!(made.clientid, c.id.get());
    assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1), "not confirmed yet");
    c.confirm_clientid(&made).unwrap();
    assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Err(Status::Expired));
}

#[test]
fn another_principal_may_not_take_a_name_in_use() {
    let harness = Harness::new();
    let c = harness.client("c", 0);
    c.create("f");
    let thief = harness.stranger("c", 0);
    thief.become_user(1000, 1000);
    let ops = |client: &Client| {
        let args = setclientid::Args {
            verifier: [3; 8],
            name: client.name.as_slice().into(),
            callback_program: 1,
            callback_address: NetAddress::default(),
            callback_ident: 0,
        };
        Ops::new().op::<Setclientid>(&args)
    };
    let reply = thief.bare(ops(&thief));
    assert_eq!(reply.status, Status::ClidInuse);
    assert_eq!(reply.failure::<NetAddress>().address.0, b"192.0.2.7");
    let made = c.bare(ops(&c)).ok().get::<Setclientid>();
    let args = setclientid_confirm::Args { clientid: made.clientid, confirm: made.confirm };
    let confirm = Ops::new().op::<SetclientidConfirm>(&args);
    assert_eq!(thief.bare(confirm).status, Status::ClidInuse);
    // When the lease has expired, the name is free.
    harness.pass_seconds(LEASE + 1);
    assert_eq!(thief.bare(ops(&thief)).status, Status::Ok);
}

#[test]
fn a_weaker_connection_may_not_take_a_name_in_use() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    c.protection.set(Protection::MutualTls);
    c.introduce(false);
    let thief = harness.stranger("c", 0);
    thief.verifier.set(2);
    let made = thief.set_clientid(false).unwrap();
    // It held nothing; now it does.
    let opened = c.create("f");
    assert_eq!(thief.confirm_clientid(&made), Err(Status::ClidInuse));
    assert_eq!(thief.set_clientid(false).err(), Some(Status::ClidInuse));
    assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
    // A further mount of the same host.
    let further = harness.stranger("c", 0);
    assert_eq!(further.set_clientid(false).unwrap().clientid, c.id.get());
    harness.pass_seconds(LEASE + 1);
    let made = thief.set_clientid(false).unwrap();
    assert_eq!(thief.confirm_clientid(&made), Ok(()));
}

#[test]
fn a_shelf_that_does_not_keep_records_makes_clients_wait() {
    let harness = Harness::new();
    let c = harness.client("c", 0);
    harness.records.set_broken(true);
    let wish = OpenRequest::name(&c.export(), "f").how(How::Unchecked(Default::default()));
    assert_eq!(c.open(&wish).unwrap_err(), Status::Delay);
    harness.records.set_broken(false);
    c.open(&wish).unwrap();
    // It restarts.
    c.reboot();
    harness.records.set_broken(true);
    let made = c.set_clientid(false).unwrap();
    assert_eq!(c.confirm_clientid(&made), Err(Status::Delay));
    harness.records.set_broken(false);
    assert_eq!(c.confirm_clientid(&made), Ok(()));
}

#[test]
fn a_host_that_no_export_names_leaves_no_trace() {
    for minor in 0..=2 {
        let harness = Harness::new();
        harness.reload(|path| path == "/closed");
        let c = harness.stranger("c", minor);
        let refused =
            || if minor == 0 { c.set_clientid(false).err() } else { c.exchange_id().err() };
        assert_eq!(refused(), Some(Status::Perm));
        // One that is not known yet may name it.
        harness.exports_unknown(true);
        assert_eq!(refused(), Some(Status::Delay));
        harness.reload(|path| path == "/export");
        c.introduce(false);
        assert_eq!(c.lookup(&c.export(), "nothing"), Err(Status::Noent));
    }
}

#[test]
fn a_client_is_confirmed_from_its_own_host_only() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    let made = c.set_clientid(false).unwrap();
    let home = c.address.replace([198, 51, 100, 9].into());
    assert_eq!(c.confirm_clientid(&made), Err(Status::StaleClientid));
    c.address.set(home);
    assert_eq!(c.confirm_clientid(&made), Ok(()));
}

#[test]
fn callbacks_go_to_the_clients_own_address_only() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    // Its callback address is unchanged.
    c.address.set([198, 51, 100, 9].into());
    c.introduce(true);
    harness.pass_seconds(1);
    assert_eq!(harness.simulation.inbox().calls, 0, "somebody else was called");
    let file = c.file(&c.export(), "file", b"");
    let opened = c.open(&OpenRequest::name(&c.export(), "file")).unwrap();
    assert_eq!(opened.fh, file);
    assert_eq!(opened.delegated, Delegated::None, "nobody to recall from");
    // The same client, from its callback address.
    c.address.set([192, 0, 2, 7].into());
    c.introduce(true);
    harness.pass_seconds(1);
    assert_eq!(harness.simulation.inbox().nulls, 1);
}

#[test]
fn a_callback_address_is_probed_once_at_a_time() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    c.answers_callbacks(CallbackBehavior::Silent);
    for _ in 0..400 {
        c.introduce(true);
    }
    assert_eq!(harness.simulation.inbox().calls, 1);
    harness.pass_seconds(11);
    assert_eq!(harness.simulation.inbox().calls, 2, "the latest address");
    harness.pass_seconds(11);
    c.answers_callbacks(CallbackBehavior::Good);
    c.introduce(true);
    harness.pass_seconds(1);
    assert_eq!(harness.simulation.inbox().calls, 3);
    assert_eq!(harness.simulation.inbox().nulls, 1);
}

/// RFC 7530 §16.28: a client that holds delegations learns by RENEW that it cannot be called.
#[test]
fn a_recall_without_an_answer_is_told_by_renew() {
    let harness = Harness::new();
    let (c, other) = (harness.reachable("c", 0), harness.client("other", 0));
    let wish = |text| OpenRequest::name(&c.export(), text);
    for text in ["f", "g"] {
        other.file(&c.export(), text, b"");
    }
    c.open(&wish("f")).unwrap().delegation();
    c.answers_callbacks(CallbackBehavior::Unreachable);
    assert_eq!(renew(&c), Status::Ok, "nobody has noticed");
    assert_eq!(other.open(&wish("f")).unwrap_err(), Status::Delay);
    assert_eq!(renew(&c), Status::CbPathDown);
    assert_eq!(c.open(&wish("g")).unwrap().delegated, Delegated::None);
    // The recall is repeated.
    c.answers_callbacks(CallbackBehavior::Good);
    harness.pass_seconds(7);
    assert_eq!(c.callbacks().len(), 1);
    assert_eq!(renew(&c), Status::Ok);
    assert_ne!(c.open(&wish("g")).unwrap().delegated, Delegated::None);
}

#[test]
fn a_client_that_did_not_answer_is_called_again() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    c.answers_callbacks(CallbackBehavior::Unreachable);
    c.introduce(true);
    harness.client("other", 0).file(&c.export(), "f", b"");
    let open = || c.open(&OpenRequest::name(&c.export(), "f")).unwrap().delegated;
    c.answers_callbacks(CallbackBehavior::Good);
    let calls = || harness.simulation.inbox().calls;
    for _ in 0..3 {
        assert_eq!((open(), calls()), (Delegated::None, 1));
        harness.pass_seconds(LEASE - 1);
    }
    harness.pass_seconds(3);
    assert_eq!(open(), Delegated::None, "called meanwhile");
    harness.pass_seconds(1);
    assert_eq!(calls(), 2);
    assert_ne!(open(), Delegated::None);
}

/// RFC 7530 §3.3.3: from the principal that the client called to the client's own,
/// in its service.
#[test]
fn a_client_of_kerberos_is_called_under_its_principal() {
    let harness = Harness::new();
    for (number, service) in Service::ALL.into_iter().enumerate() {
        let c = harness.stranger(&format!("c{number}"), 0);
        let identity = GssIdentity {
            principal: "nfs/c@R".into(),
            acceptor: "nfs/server@R".into(),
            user: GssUser::Nobody,
        };
        let caller = GssCaller { service, identity: Arc::new(identity) };
        let CallbackPath::Address(address) = c.path() else { panic!("{:?}", c.path()) };
        let security = Arc::new(CallbackSecurity::of(&caller).unwrap());
        assert_eq!(security.service, service);
        let path = CallbackPath::Protected(address, security);
        let before = harness.simulation.inbox().calls;
        let sys = c.credential.replace(Credential::Gss(caller));
        c.introduce(true);
        harness.pass_seconds(1);
        let calls = harness.simulation.inbox().calls;
        assert_eq!((calls - before, harness.simulation.inbox().nulls), (1, 0), "one empty compound");

        // Opens by a user of the export, which asks for no Kerberos.
        c.credential.replace(sys);
        let name = format!("file{number}");
        let other = harness.client(&format!("other{number}"), 1);
        other.file(&other.export(), &name, b"");
        let opened = c.open(&OpenRequest::name(&c.export(), &name)).unwrap();
        assert_ne!(opened.delegated, Delegated::None, "{service:?}");
        let _ = other.open(&OpenRequest { access: 2, ..OpenRequest::name(&other.export(), &name) });
        harness.pass_seconds(1);
        assert_eq!(harness.simulation.callbacks(&path).len(), 1, "{service:?}: recalled");
    }
}

#[test]
fn a_client_of_kerberos_that_does_not_answer_gets_no_delegation() {
    let harness = Harness::new();
    let c = harness.stranger("c", 0);
    let identity =
        GssIdentity { principal: "nfs/c@R".into(), acceptor: "nfs/s@R".into(), user: GssUser::Nobody };
    let caller = GssCaller { service: Service::Integrity, identity: Arc::new(identity) };
    let CallbackPath::Address(address) = c.path() else { panic!("{:?}", c.path()) };
    let security = Arc::new(CallbackSecurity::of(&caller).unwrap());
    let path = CallbackPath::Protected(address, security);
    harness.simulation.set_callback_behavior(path.clone(), CallbackBehavior::Unreachable);
    let sys = c.credential.replace(Credential::Gss(caller.clone()));
    c.introduce(true);
    harness.pass_seconds(1);
    c.credential.replace(sys);
    harness.client("other", 1).file(&c.export(), "file", b"");
    let opened = c.open(&OpenRequest::name(&c.export(), "file")).unwrap();
    assert_eq!(opened.delegated, Delegated::None);
    // It is tried again, but not at each open.
    let open = || c.open(&OpenRequest::name(&c.export(), "file")).unwrap().delegated;
    harness.simulation.set_callback_behavior(path, CallbackBehavior::Good);
    let calls = || harness.simulation.inbox().calls;
    for _ in 0..3 {
        harness.pass_seconds(15);
        assert_eq!((open(), calls()), (Delegated::None, 1));
    }
    harness.pass_seconds(15);
    assert_eq!(open(), Delegated::None, "asked meanwhile");
    harness.pass_seconds(1);
    assert_eq!(calls(), 2);
    assert_ne!(open(), Delegated::None);
    // Nobody knows as whom the server was called: as whom would it call back?
    let nameless = GssIdentity { acceptor: "".into(), ..(*caller.identity).clone() };
    let caller = GssCaller { identity: Arc::new(nameless), ..caller };
    assert_eq!(CallbackSecurity::of(&caller), None);
}
