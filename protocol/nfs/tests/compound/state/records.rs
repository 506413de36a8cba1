//! Client records on slow or failing storage: waiting requests (RFC 8881
//! §8.4.2.1, §8.4.3; RFC 7530 §9.6.3.4).

use std::rc::Rc;
use zgate_nfs::limits::{
    MAX_RECORD_WRITES, RECORD_RETRY_SECONDS, RECORD_WAIT_MILLISECONDS, SETTLE_WAIT_MILLISECONDS,
};
use zgate_nfs_wire::v4::op::CreateSession;
use zgate_nfs_wire::v4::op::Renew;
use zgate_nfs_wire::v4::op::SetclientidConfirm;
use zgate_nfs_wire::v4::op::create_session;
use zgate_nfs_wire::v4::op::open::{Claim, How};
use zgate_nfs_wire::v4::op::renew;
use zgate_nfs_wire::v4::op::setclientid_confirm;
use zgate_nfs_wire::v4::{LockType, Status};
use zgate_rpc::Credential;
use zgate_rpc::gss::Service;
use zgate_test_harness::nfs::{
    Client, GRACE, Harness, LEASE, OpenRequest, Ops, Pending, by_kerberos, mode,
};
use zgate_xdr::Decode;

fn alive(c: &Client) -> Status {
    if c.minor > 0 {
        return c.run(Ops::new().root()).status;
    }
    c.run(Ops::new().op::<Renew>(&renew::Args { clientid: c.id.get() })).status
}

/// The operation that confirms a registered client.
enum Confirmation {
    Session(create_session::Args),
    ClientId(setclientid_confirm::Args),
}

impl Confirmation {
    fn of(c: &Client) -> Self {
        if c.minor > 0 {
            let sequence = c.exchange_id().unwrap().sequenceid;
            return Self::Session(c.session_args(sequence, false));
        }
        let made = c.set_clientid(false).unwrap();
        c.id.set(made.clientid);
        let (clientid, confirm) = (made.clientid, made.confirm);
        Self::ClientId(setclientid_confirm::Args { clientid, confirm })
    }

    fn ops(&self) -> Ops {
        match self {
            Self::Session(args) => Ops::new().op::<CreateSession>(args),
            Self::ClientId(args) => Ops::new().op::<SetclientidConfirm>(args),
        }
    }
}

/// Clients that held something before a restart of the server, and are about to register
/// again: their records are written before they are confirmed.
fn returning(minor: u8, names: &[&str]) -> (Rc<Harness>, Vec<Client>) {
    let harness = Harness::new();
    let held = |name: &&str| {
        let c = harness.client(name, minor);
        c.create(name);
        c
    };
    let clients: Vec<_> = names.iter().map(held).collect();
    harness.restart();
    clients.iter().for_each(Client::reconnect);
    (harness, clients)
}

/// One such client, of the name "c".
fn returning_one(minor: u8) -> (Rc<Harness>, Client) {
    let (harness, mut clients) = returning(minor, &["c"]);
    (harness, clients.remove(0))
}

fn status(pending: &Pending) -> Option<Status> {
    let raw = pending.borrow().clone()?;
    Some(Status::decode(&mut zgate_xdr::Decoder::new(&raw)).unwrap())
}

fn sessions(harness: &Harness) -> usize {
    harness.server().totals(0).sessions
}

/// Waits for the longest wait of one request.
fn one_wait(harness: &Harness) {
    harness.pass_seconds(RECORD_WAIT_MILLISECONDS.div_ceil(1000));
}

#[test]
fn a_client_is_confirmed_when_its_record_is_kept_and_nobody_else_waits() {
    for minor in 0..=2 {
        let (harness, clients) = returning(minor, &["new", "old"]);
        let [new, old] = &clients[..] else { panic!("two clients") };
        old.introduce_for_reclaim(false);
        let fh = old.lookup(&old.export(), "old").unwrap();
        harness.records.hold();
        let asked = new.begin_bare(Confirmation::of(new).ops());
        harness.simulation.settle();
        assert_eq!((harness.records.waiting(), status(&asked)), (1, None));
        let wish = OpenRequest::name(&fh, "").claim(Claim::Previous(0));
        let opened = old.open(&wish).unwrap();
        assert!(old.read(&opened.fh, opened.stateid, 0, 7).is_ok());
        old.close(&opened).unwrap();
        assert_eq!(harness.server().totals(0).clients, 1, "the new one is not confirmed");
        harness.records.release();
        harness.simulation.settle();
        assert_eq!(status(&asked), Some(Status::Ok));
        assert_eq!(harness.server().totals(0).clients, 2);
        assert_eq!(harness.records.names(), [b"new".to_vec(), b"old".to_vec()]);
    }
}

#[test]
fn a_confirmation_repeated_while_the_record_is_written_is_the_same() {
    for minor in 0..=2 {
        let (harness, c) = returning_one(minor);
        let before = harness.records.puts();
        harness.records.hold();
        let confirmation = Confirmation::of(&c);
        let first = c.begin_bare(confirmation.ops());
        c.reconnect();
        let second = c.begin_bare(confirmation.ops());
        harness.simulation.settle();
        assert_eq!(harness.records.waiting(), 1, "one record");
        harness.records.release();
        harness.simulation.settle();
        assert_eq!((status(&first), status(&second)), (Some(Status::Ok), Some(Status::Ok)));
        assert_eq!(*first.borrow(), *second.borrow(), "the same answer");
        assert_eq!((harness.server().totals(0).clients, harness.records.puts() - before), (1, 1));
        assert_eq!(sessions(&harness), usize::from(minor > 0));
    }
}

#[test]
fn a_disk_that_hangs_makes_clients_come_again() {
    for minor in 0..=2 {
        let (harness, c) = returning_one(minor);
        harness.records.hold();
        let confirmation = Confirmation::of(&c);
        for _ in 0..3 {
            let asked = c.begin_bare(confirmation.ops());
            harness.simulation.settle();
            assert_eq!(status(&asked), None);
            one_wait(&harness);
            assert_eq!(status(&asked), Some(Status::Delay));
        }
        assert_eq!((harness.records.waiting(), harness.server().totals(0).clients), (1, 0));
        harness.records.release();
        c.bare(confirmation.ops()).ok();
        assert_eq!(harness.server().totals(0).clients, 1);
    }
}

#[test]
fn a_request_that_is_given_up_leaves_nothing_half_done() {
    for minor in 0..=2 {
        let (harness, c) = returning_one(minor);
        harness.records.hold();
        let confirmation = Confirmation::of(&c);
        let (bytes, _) = confirmation.ops().encode(b"", u32::from(minor));
        let (server, call, now) = (harness.server(), c.rpc_call(), harness.simulation.clock());
        {
            let mut d = zgate_xdr::Decoder::new(&bytes);
            let mut work = Box::pin(server.compound(&call, now, &mut d));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(work.as_mut().poll(&mut context).is_pending());
        }
        harness.records.release();
        assert_eq!(harness.server().totals(0).clients, 0, "nobody confirmed it");
        c.bare(confirmation.ops()).ok();
        assert_eq!(
            (harness.server().totals(0).clients, sessions(&harness)),
            (1, usize::from(minor > 0))
        );
    }
}

#[test]
fn records_of_clients_that_never_confirm_go() {
    for minor in 0..=2 {
        let (harness, c) = returning_one(minor);
        harness.records.hold();
        let asked = c.begin_bare(Confirmation::of(&c).ops());
        harness.simulation.settle();
        one_wait(&harness);
        assert_eq!(status(&asked), Some(Status::Delay));
        harness.records.release();
        assert_eq!(harness.records.names(), [b"c".to_vec()]);
        harness.pass_seconds(LEASE + 1);
        assert!(harness.records.names().is_empty(), "it did not come again");
    }
}

#[test]
fn the_record_of_who_took_a_name_and_never_confirms_goes() {
    let (harness, c) = returning_one(0);
    c.introduce(false);
    let thief = harness.stranger("c", 0);
    thief.become_user(1000, 1000);
    let confirmation = Confirmation::of(&thief);
    harness.records.hold();
    let asked = thief.begin_bare(confirmation.ops());
    one_wait(&harness);
    assert_eq!((status(&asked), alive(&c)), (Some(Status::Delay), Status::Expired));
    harness.records.release();
    assert_eq!(harness.records.names(), [b"c".to_vec()], "that of the new one");
    harness.pass_seconds(LEASE + 1);
    assert!(harness.records.names().is_empty(), "it did not come again");
}

#[test]
fn no_more_than_so_many_records_wait_to_be_written() {
    let names: Vec<_> = (0..=MAX_RECORD_WRITES).map(|number| format!("c{number}")).collect();
    let (harness, clients) = returning(0, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let many: Vec<_> = clients
        .into_iter()
        .map(|c| {
            let confirmation = Confirmation::of(&c);
            (c, confirmation)
        })
        .collect();
    harness.records.hold();
    let asked: Vec<_> =
        many.iter().map(|(c, confirmation)| c.begin_bare(confirmation.ops())).collect();
    harness.simulation.settle();
    assert_eq!(harness.records.waiting(), MAX_RECORD_WRITES);
    let refused = asked.iter().filter(|asked| status(asked) == Some(Status::Delay)).count();
    assert_eq!(refused, 1);
    harness.records.release();
    harness.simulation.settle();
    assert_eq!(harness.server().totals(0).clients, MAX_RECORD_WRITES);
}

/// A client with an expired lease and a lock, and another one that requests the
/// lock.
fn conflict(minor: u8) -> (Rc<Harness>, Client, Client, zgate_test_harness::nfs::Opened) {
    let harness = Harness::new();
    let (a, b) = (harness.client("a", minor), harness.client("b", minor));
    let opened = a.create("f");
    a.lock(&opened, "l", LockType::Write, (0, 9)).unwrap();
    harness.pass_seconds(LEASE + 1);
    alive(&b);
    let theirs = b.open(&OpenRequest::name(&b.export(), "f")).unwrap();
    (harness, a, b, theirs)
}

fn reclaim(c: &Client, fh: &zgate_nfs_wire::v4::Fh) -> Status {
    c.reconnect();
    c.introduce_for_reclaim(false);
    take_back(c, fh)
}

fn take_back(c: &Client, fh: &zgate_nfs_wire::v4::Fh) -> Status {
    let wish = OpenRequest::name(fh, "").claim(Claim::Previous(0));
    c.open(&wish).err().unwrap_or(Status::Ok)
}

/// Registers a client of minor version 0 by this credential; its files are its
/// user's.
fn register_as(c: &Client, credential: &Credential) -> Result<(), Status> {
    let user = c.credential.replace(credential.clone());
    let made = c.set_clientid(false).and_then(|made| c.confirm_clientid(&made));
    c.credential.replace(user);
    made
}

#[test]
fn what_an_expired_client_could_reclaim_is_not_given_away() {
    for minor in 0..=2 {
        let (harness, a, b, theirs) = conflict(minor);
        harness.records.set_broken(true);
        for _ in 0..3 {
            let refused = b.lock(&theirs, "l", LockType::Write, (0, 9));
            assert_eq!(refused.unwrap_err(), Status::Delay, "the record of the other is there");
            harness.pass_seconds(RECORD_RETRY_SECONDS);
            alive(&b);
        }
        harness.records.set_broken(false);
        harness.pass_seconds(RECORD_RETRY_SECONDS);
        assert_eq!(harness.records.names(), [b"b".to_vec()]);
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
        harness.restart();
        assert_eq!(reclaim(&a, &theirs.fh), Status::NoGrace);
    }
}

#[test]
fn the_removal_of_a_record_is_waited_for_a_while() {
    for minor in 0..=2 {
        let (harness, _, b, theirs) = conflict(minor);
        harness.records.hold();
        let records = std::sync::Arc::clone(&harness.records);
        let runtime = harness.server().runtime.clone();
        harness.simulation.spawn(Box::pin(async move {
            runtime.sleep(SETTLE_WAIT_MILLISECONDS / 2).await;
            records.release();
        }));
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
    }
}

#[test]
fn a_crash_while_the_record_is_removed_gives_nothing_away() {
    for minor in 0..=2 {
        let (harness, a, b, theirs) = conflict(minor);
        harness.records.hold();
        let refused = b.lock(&theirs, "l", LockType::Write, (0, 9));
        assert_eq!(refused.unwrap_err(), Status::Delay);
        harness.records.lose_what_waits();
        harness.restart();
        assert_eq!(reclaim(&a, &theirs.fh), Status::Ok, "nobody had it meanwhile");
    }
}

#[test]
fn an_expired_client_that_is_back_has_no_record_before_it_may_hold_something() {
    for minor in 0..=2 {
        let (harness, a, b, theirs) = conflict(minor);
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
        a.reconnect();
        a.introduce_for_reclaim(false);
        assert_eq!(harness.records.names(), [b"b".to_vec()], "minor version {minor}");
        if minor > 0 {
            a.reclaim_complete().unwrap();
        }
        a.create("g");
        assert_eq!(harness.records.names(), [b"a".to_vec(), b"b".to_vec()]);
    }
}

#[test]
fn an_expired_client_that_is_back_does_not_reclaim_after_a_restart_what_others_have() {
    // RFC 8881 §8.4.3, RFC 7530 §9.6.3.4: the restart comes before the client can know
    // that it has lost everything.
    for minor in 0..=2 {
        let (harness, a, b, theirs) = conflict(minor);
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
        a.reconnect();
        a.introduce_for_reclaim(false);
        harness.restart();
        assert_eq!(reclaim(&a, &theirs.fh), Status::NoGrace, "minor version {minor}");
    }
}

#[test]
fn grace_goes_on_until_who_stayed_away_can_reclaim_no_more() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let fh = a.create("f").fh;
        harness.restart();
        b.reconnect();
        b.introduce(false);
        harness.records.set_broken(true);
        for _ in 0..GRACE + 15 {
            harness.pass_seconds(1);
            alive(&b);
        }
        let wish = OpenRequest::name(&b.export(), "f");
        assert_eq!(b.open(&wish).unwrap_err(), Status::Grace, "a could reclaim after a restart");
        harness.records.set_broken(false);
        harness.pass_seconds(RECORD_RETRY_SECONDS + 1);
        b.open(&wish).unwrap();
        harness.restart();
        assert_eq!(reclaim(&a, &fh), Status::NoGrace);
    }
}

#[test]
fn damaged_records_mean_the_whole_grace_period() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let a = harness.client("a", minor);
        let fh = a.create("f").fh;
        harness.records.damage();
        harness.restart();
        let b = harness.stranger("b", minor);
        b.introduce(false);
        assert_eq!(b.open(&OpenRequest::name(&b.export(), "f")).unwrap_err(), Status::Grace);
        assert_eq!(reclaim(&a, &fh), Status::Ok);
        if minor > 0 {
            a.reclaim_complete().unwrap();
        }
        assert_eq!(b.open(&OpenRequest::name(&b.export(), "f")).unwrap_err(), Status::Grace);
        for _ in 0..GRACE + 15 {
            harness.pass_seconds(1);
            alive(&a);
            alive(&b);
        }
        b.open(&OpenRequest::name(&b.export(), "f")).unwrap();
    }
}

#[test]
fn who_loses_its_name_knows_at_once() {
    let [machine, other] =
        ["host/a@R", "host/b@R"].map(|principal| by_kerberos(principal, Service::Integrity));
    let harness = Harness::new();
    let (c, thief) = (harness.stranger("a", 0), harness.stranger("a", 0));
    register_as(&c, &machine).unwrap();
    let before = c.create("x");
    c.close(&before).unwrap();
    thief.credential.replace(other.clone());
    let confirmation = Confirmation::of(&thief);
    harness.records.hold();
    let taken = thief.begin_bare(confirmation.ops());
    harness.simulation.settle();
    assert_eq!(status(&taken), Some(Status::Ok), "it needs no record yet");
    let wish = OpenRequest::name(&c.export(), "f").how(How::Unchecked(mode(0o644)));
    let meanwhile = c.open(&wish);
    harness.records.release();
    harness.simulation.settle();
    let opened = meanwhile.unwrap_or_else(|refused| {
        assert_eq!(refused, Status::StaleClientid);
        register_as(&c, &machine).unwrap();
        c.open(&wish).unwrap()
    });
    harness.restart();
    thief.reconnect();
    assert_eq!(register_as(&thief, &other), Err(Status::Delay), "its name is another's");
    c.reconnect();
    register_as(&c, &machine).unwrap();
    assert_eq!(take_back(&c, &opened.fh), Status::Ok);
}

#[test]
fn who_loses_its_name_has_no_record_even_if_the_new_one_is_never_written() {
    let [machine, other] =
        ["host/a@R", "host/b@R"].map(|principal| by_kerberos(principal, Service::Integrity));
    let harness = Harness::new();
    let (c, thief) = (harness.stranger("a", 0), harness.stranger("a", 0));
    register_as(&c, &machine).unwrap();
    let before = c.create("x");
    c.close(&before).unwrap();
    thief.credential.replace(other);
    let confirmation = Confirmation::of(&thief);
    harness.records.set_broken(true);
    assert_eq!(thief.bare(confirmation.ops()).status, Status::Ok);
    assert_eq!(alive(&c), Status::StaleClientid);
    harness.records.set_broken(false);
    harness.pass_seconds(RECORD_RETRY_SECONDS);
    assert!(harness.records.names().is_empty());
    // The same machine that restarts keeps what it holds until it confirms.
    register_as(&c, &machine).unwrap();
    let opened = c.create("f");
    c.reboot();
    let user = c.credential.replace(machine);
    let again = c.set_clientid(false).unwrap();
    harness.records.hold();
    let (clientid, confirm) = (again.clientid, again.confirm);
    let args = setclientid_confirm::Args { clientid, confirm };
    let restarted = c.begin_bare(Ops::new().op::<SetclientidConfirm>(&args));
    c.credential.replace(user);
    harness.simulation.settle();
    assert_eq!(status(&restarted), None);
    assert_eq!(c.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
    harness.records.release();
    harness.simulation.settle();
    assert_eq!(status(&restarted), Some(Status::Ok));
}

#[test]
fn a_record_that_is_removed_once_it_is_written_does_not_stay() {
    for minor in 0..=2 {
        let (harness, a, b, theirs) = conflict(minor);
        harness.records.hold();
        a.reboot();
        let confirmation = Confirmation::of(&a);
        let first = a.begin_bare(confirmation.ops());
        harness.simulation.settle();
        let refused = b.lock(&theirs, "l", LockType::Write, (0, 9));
        assert_eq!(refused.unwrap_err(), Status::Delay);
        a.reconnect();
        let second = a.begin_bare(confirmation.ops());
        harness.simulation.settle();
        // What the client had is gone, and with it the need of a record.
        assert_eq!((status(&first), status(&second)), (None, Some(Status::Ok)));
        harness.records.release();
        harness.simulation.settle();
        assert_eq!(status(&first), Some(Status::Ok), "the same answer");
        assert_eq!(harness.records.names(), [b"b".to_vec()], "minor version {minor}");
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
    }
}

#[test]
fn a_removal_that_hangs_outlasts_a_client_that_is_back() {
    for minor in 0..=2 {
        let (harness, a, b, theirs) = conflict(minor);
        harness.records.hold();
        let refused = b.lock(&theirs, "l", LockType::Write, (0, 9));
        assert_eq!(refused.unwrap_err(), Status::Delay);
        a.reboot();
        let asked = a.begin_bare(Confirmation::of(&a).ops());
        for _ in 0..9 * LEASE {
            harness.pass_seconds(1);
            alive(&b);
        }
        assert_eq!((harness.records.waiting(), status(&asked)), (1, Some(Status::Ok)));
        harness.records.release();
        assert_eq!(harness.records.names(), [b"b".to_vec()], "minor version {minor}");
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
    }
}
