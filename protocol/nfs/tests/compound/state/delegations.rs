//! Delegations: granted, queried, recalled, revoked (RFC 8881 §10.2-§10.4).

use std::rc::Rc;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::op::BindConnToSession;
use zgate_nfs_wire::v4::op::DestroySession;
use zgate_nfs_wire::v4::op::FreeStateid;
use zgate_nfs_wire::v4::op::Readdir;
use zgate_nfs_wire::v4::op::TestStateid;
use zgate_nfs_wire::v4::op::bind_conn_to_session;
use zgate_nfs_wire::v4::op::destroy_session;
use zgate_nfs_wire::v4::op::free_stateid;
use zgate_nfs_wire::v4::op::open::{Claim, Delegated};
use zgate_nfs_wire::v4::op::readdir;
use zgate_nfs_wire::v4::op::sequence;
use zgate_nfs_wire::v4::op::test_stateid;
use zgate_nfs_wire::v4::{Bitmap, Fattr, Stateid, Status};
use zgate_test_harness::nfs::{
    CallbackBehavior, Client, Harness, LEASE, OpenRequest, Opened, Ops, attrs, mode,
};

/// A file with a delegation, its holder and another client.
pub(super) struct Fixture {
    pub(super) harness: Rc<Harness>,
    pub(super) holder: Client,
    pub(super) other: Client,
    pub(super) root: zgate_nfs_wire::v4::Fh,
}

impl Fixture {
    pub(super) fn new(minor: u8) -> Self {
        Self::of(minor, minor)
    }

    fn of(one: u8, two: u8) -> Self {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", one), harness.client("other", two));
        let root = holder.export();
        other.file(&root, "f", b"content");
        other.file(&root, "g", b"content");
        Self { harness, holder, other, root }
    }

    pub(super) fn take(&self, access: u32) -> Opened {
        self.holder.open(&OpenRequest::name(&self.root, "f").access(access)).unwrap()
    }

    pub(super) fn wish(&self) -> OpenRequest {
        OpenRequest::name(&self.root, "f")
    }

    pub(super) fn recalled(&self) -> usize {
        self.holder.callbacks().iter().filter(|op| matches!(op, CallbackOp::Recall { .. })).count()
    }

    fn test(&self, stateid: Stateid) -> Status {
        let args = test_stateid::Args { stateids: vec![stateid] };
        let reply = self.holder.run(Ops::new().op::<TestStateid>(&args)).ok();
        reply.get::<TestStateid>().statuses[0]
    }
}

#[test]
fn what_is_opened_decides_what_is_delegated() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let read = s.take(1);
        assert!(matches!(read.delegated, Delegated::Read { recall: false, .. }));
        s.holder.delegreturn(&read.fh, read.delegation()).unwrap();
        s.holder.close(&read).unwrap();
        let write = s.take(3);
        assert!(matches!(write.delegated, Delegated::Write { recall: false, .. }));
        let held = write.delegation();
        assert_eq!(s.holder.write(&write.fh, held, 0, b"C"), Ok(1));
        assert_eq!(s.holder.read(&write.fh, held, 0, 1).unwrap().1, "C");
    }
}

#[test]
fn readers_share_and_a_writer_recalls_them_all() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let second = s.harness.reachable("second", minor);
        let (x, y) = (s.take(1), second.open(&s.wish().access(1)).unwrap());
        assert_ne!(x.delegation(), y.delegation());
        assert!(s.other.open(&s.wish().access(1)).is_ok(), "a reader disturbs nobody");
        assert_eq!(s.recalled(), 0);
        assert_eq!(s.other.open(&s.wish().access(2)).unwrap_err(), Status::Delay);
        assert_eq!((s.recalled(), second.callbacks().len()), (1, 1));
        assert_eq!(s.other.open(&s.wish().access(2)).unwrap_err(), Status::Delay);
        assert_eq!(s.recalled(), 1, "recalled once");
        s.holder.delegreturn(&x.fh, x.delegation()).unwrap();
        assert_eq!(s.other.open(&s.wish().access(2)).unwrap_err(), Status::Delay);
        second.delegreturn(&y.fh, y.delegation()).unwrap();
        assert!(s.other.open(&s.wish().access(2)).is_ok());
    }
}

/// All operations that conflict with a write delegation: DELAY, then success.
#[test]
fn conflicting_operations_wait_for_the_return() {
    for (one, two) in [(0, 0), (1, 1), (2, 2), (0, 2), (2, 0)] {
        type Act = fn(&Fixture, &zgate_nfs_wire::v4::Fh) -> Status;
        let acts: [(&str, Act); 9] = [
            ("OPEN", |s, _| s.other.open(&s.wish().access(1)).err().unwrap_or(Status::Ok)),
            ("READ", |s, f| s.other.run(Ops::new().at(f).read(Stateid::ANONYMOUS, 0, 1)).status),
            ("WRITE", |s, f| {
                s.other.write(f, Stateid::ANONYMOUS, 0, b"x").err().unwrap_or(Status::Ok)
            }),
            ("SETATTR", |s, f| {
                s.other.setattr(f, Stateid::ANONYMOUS, mode(0o600)).err().unwrap_or(Status::Ok)
            }),
            ("truncation", |s, f| {
                s.other.truncate(f, Stateid::ANONYMOUS, 0).err().unwrap_or(Status::Ok)
            }),
            ("REMOVE", |s, _| s.other.run(Ops::new().at(&s.root).remove("f")).status),
            ("RENAME", |s, _| {
                s.other.run(Ops::new().at(&s.root).save().at(&s.root).rename("f", "h")).status
            }),
            ("RENAME onto", |s, _| {
                s.other.run(Ops::new().at(&s.root).save().at(&s.root).rename("g", "f")).status
            }),
            ("LINK", |s, f| s.other.run(Ops::new().at(f).save().at(&s.root).link("second")).status),
        ];
        for (what, act) in acts {
            let s = Fixture::of(one, two);
            let opened = s.take(3);
            s.holder.close(&opened).unwrap();
            assert_eq!(act(&s, &opened.fh), Status::Delay, "{what}");
            let Some(CallbackOp::Recall { stateid, fh, .. }) =
                s.holder.callbacks().first().cloned()
            else {
                panic!("{what}: {:?}", s.holder.callbacks());
            };
            assert_eq!((stateid, &fh), (opened.delegation(), &opened.fh), "{what}");
            s.holder.delegreturn(&fh, stateid).unwrap();
            assert_eq!(act(&s, &opened.fh), Status::Ok, "{what} after the return");
        }
    }
}

#[test]
fn the_holder_disturbs_nobody() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        assert!(s.holder.open(&s.wish().owner("second")).is_ok());
        s.holder.setattr(&opened.fh, Stateid::ANONYMOUS, mode(0o600)).unwrap();
        s.holder.truncate(&opened.fh, opened.stateid, 3).unwrap();
        let local = s.wish().claim(Claim::DelegateCurrentFh(opened.delegation()));
        let local = OpenRequest { fh: opened.fh.clone(), ..local };
        assert!(s.holder.open(&local.owner("third")).is_ok());
        s.holder.run(Ops::new().at(&s.root).remove("f")).ok();
        assert_eq!(s.holder.callbacks(), []);
    }
}

#[test]
fn a_delegation_opens_its_own_file_only() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(1);
        let name = |text: &str| Claim::DelegateCurrent(opened.delegation(), text.as_bytes().into());
        let wish = |claim| s.wish().access(1).owner("local").claim(claim);
        assert!(s.holder.open(&wish(name("f"))).is_ok());
        assert_eq!(s.holder.open(&wish(name("g"))).unwrap_err(), Status::BadStateid);
        if minor > 0 {
            let g = s.holder.lookup(&s.root, "g").unwrap();
            let by_handle = Claim::DelegateCurrentFh(opened.delegation());
            let other = OpenRequest { fh: g, ..wish(by_handle) };
            assert_eq!(s.holder.open(&other).unwrap_err(), Status::BadStateid);
        }
    }
}

#[test]
fn no_delegation_where_it_would_be_recalled_at_once() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let writer = s.other.open(&s.wish()).unwrap();
        let none = |opened: &Opened| matches!(opened.delegated, Delegated::None);
        assert!(none(&s.take(1)), "somebody writes");
        s.other.close(&writer).unwrap();
        let unwanted = s.wish().access(1 | 0x400).owner("unwanted");
        let opened = s.holder.open(&unwanted).unwrap();
        assert_eq!(opened.delegated, Delegated::NoneBecause(0));
        let cut = s.holder.open(&s.wish().access(1 | 0x500).owner("cancel")).unwrap();
        assert_eq!(cut.delegated, Delegated::NoneBecause(7));
        let deaf = s.other.open(&s.wish().access(1 | 0x100)).unwrap();
        assert_eq!(deaf.delegated, Delegated::NoneBecause(2), "no way to recall it");
        let wanted = s.holder.open(&s.wish().access(1 | 0x100).owner("wanted")).unwrap();
        let held = wanted.delegation();
        let again = s.holder.open(&s.wish().access(1 | 0x100).owner("again")).unwrap();
        assert_eq!(again.delegated, Delegated::NoneBecause(1), "it has one");
        assert_eq!(s.other.open(&s.wish().access(3)).unwrap_err(), Status::Delay);
        s.holder.delegreturn(&wanted.fh, held).unwrap();
        let soon = s.holder.open(&s.wish().access(1 | 0x100).owner("soon")).unwrap();
        assert_eq!(soon.delegated, Delegated::NoneBecause(1), "recalled just now");
        s.harness.pass_seconds(11);
        let later = s.holder.open(&s.wish().access(1 | 0x100).owner("later")).unwrap();
        assert!(matches!(later.delegated, Delegated::Read { .. }));
    }
}

pub(super) fn knows(change: u64, size: u64) -> Fattr {
    attrs(&[3, 4], |e| {
        e.u64(change);
        e.u64(size);
    })
}

#[test]
fn the_holder_is_asked_about_size_and_change() {
    for (one, two) in [(0, 0), (1, 1), (2, 2), (1, 0)] {
        let s = Fixture::of(one, two);
        let opened = s.take(3);
        let change = s.holder.number(&opened.fh, 3);
        s.holder.answers_callbacks(CallbackBehavior::Knows(knows(change + 1, 4711)));
        assert_eq!(s.other.number(&opened.fh, 4), 4711);
        // RFC 8881 §10.4.3.
        let version = || [3, 53].map(|bit| s.other.number(&opened.fh, bit));
        let first = version();
        assert!(first[0] > change, "{first:?}");
        s.harness.pass_seconds(1);
        let second = version();
        assert!(second[0] > first[0] && second[1] > first[1], "{first:?}, {second:?}");
        assert!(matches!(s.holder.callbacks()[0], CallbackOp::GetAttr { .. }));
        assert_eq!(s.recalled(), 0, "nothing has to come back");
        // Attributes independent of the data are not queried.
        let asked = s.holder.callbacks().len();
        s.other.number(&opened.fh, 20);
        assert_eq!(s.holder.callbacks().len(), asked);
        // An answer without the size is ignored.
        s.holder.answers_callbacks(CallbackBehavior::Knows(attrs(&[3], |e| e.u64(change))));
        assert_eq!(s.other.number(&opened.fh, 4), 7);
        s.holder.answers_callbacks(CallbackBehavior::Refuses(Status::Badhandle));
        assert_eq!(s.other.number(&opened.fh, 4), 7);
        let garbled = Fattr { mask: Bitmap::of(&[3, 4]), values: vec![1, 2, 3][..].into() };
        s.holder.answers_callbacks(CallbackBehavior::Knows(garbled));
        assert_eq!(s.other.number(&opened.fh, 4), 7);
        let before = s.harness.simulation.clock().seconds();
        s.holder.answers_callbacks(CallbackBehavior::Silent);
        assert_eq!(s.other.number(&opened.fh, 4), 7);
        let waited = s.harness.simulation.clock().seconds() - before;
        assert!(waited <= 60, "waited {waited} seconds for a silent client");
    }
}

/// A listing has attributes of any number of its files.
#[test]
fn a_silent_holder_of_several_files_is_waited_for_once() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        s.holder.open(&OpenRequest::name(&s.root, "g").access(3)).unwrap().delegation();
        // The call that greets a new session is over.
        s.harness.pass_seconds(1);
        s.holder.answers_callbacks(CallbackBehavior::Silent);
        let (cookie, verifier, want) = (0, [0; 8], Bitmap::of(&[3, 4]));
        let args = readdir::Args { cookie, verifier, dircount: 1000, maxcount: 8192, want };
        let calls = || s.harness.simulation.inbox().calls;
        let list = || {
            let (before, called) = (s.harness.simulation.clock().seconds(), calls());
            s.other.run(Ops::new().at(&s.root).op::<Readdir>(&args)).ok();
            (s.harness.simulation.clock().seconds() - before, calls() - called)
        };
        assert_eq!(list(), (5, 1), "all files together, minor version {minor}");
        assert_eq!(list(), (0, 0), "it is not asked for a while");
        let change = s.holder.number(&opened.fh, 3);
        s.holder.answers_callbacks(CallbackBehavior::Knows(knows(change + 1, 4711)));
        assert_eq!(s.other.number(&opened.fh, 4), 7, "the store's size");
        bind_back(&s.holder);
        assert_eq!(s.other.number(&opened.fh, 4), 4711, "it has a new back channel");
    }
}

/// A recall may arrive before the reply that granted the delegation.
#[test]
fn a_recall_that_is_answered_with_an_error_is_sent_again() {
    for (minor, why) in [(0, Status::Badhandle), (1, Status::Delay), (2, Status::BadStateid)] {
        let s = Fixture::new(minor);
        s.take(3);
        let passes = |seconds: u32| {
            for _ in 0..seconds {
                s.harness.pass_seconds(1);
                s.holder.run(Ops::new().root()).ok();
            }
        };
        s.holder.answers_callbacks(CallbackBehavior::Refuses(why));
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        assert_eq!(s.recalled(), 1);
        passes(1);
        assert_eq!(s.recalled(), 5, "soon again, minor version {minor}");
        passes(4);
        assert_eq!(s.recalled(), 6, "and not for ever");
        s.holder.answers_callbacks(CallbackBehavior::Good);
        passes(2);
        assert_eq!(s.recalled(), 7);
        passes(7);
        assert_eq!(s.recalled(), 7, "it has been acknowledged");
    }
}

/// The callback may arrive before the reply to CREATE_SESSION. A failed
/// CB_SEQUENCE does not advance the slot.
#[test]
fn a_client_that_does_not_know_its_session_yet_is_asked_again() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        s.holder.answers_callbacks(CallbackBehavior::KnowsNoSession);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        assert_eq!(s.recalled(), 0);
        s.holder.answers_callbacks(CallbackBehavior::Good);
        s.harness.pass_seconds(1);
        assert_eq!(s.recalled(), 1, "minor version {minor}");
        s.holder.delegreturn(&opened.fh, opened.delegation()).unwrap();
        assert!(s.other.open(&s.wish()).is_ok());
    }
}

/// Lost or late answers have no consequences for a client: the recall is sent
/// again over the same connection, each time as a new call.
#[test]
fn a_recall_whose_answer_is_lost_is_sent_again() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        s.take(3);
        s.holder.answers_callbacks(CallbackBehavior::Lost);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        let passes = |seconds: u32| {
            for _ in 0..seconds {
                s.harness.pass_seconds(1);
                s.holder.run(Ops::new().root()).ok();
            }
        };
        passes(9);
        assert_eq!(s.recalled(), 1, "its answer is waited for");
        s.holder.answers_callbacks(CallbackBehavior::Good);
        passes(3);
        assert_eq!(s.recalled(), 2, "minor version {minor}");
        passes(7);
        assert_eq!(s.recalled(), 2, "it has been acknowledged");
    }
}

/// With a single slot whose answer was lost, the next call must not look like a
/// retry of the lost one.
#[test]
fn a_slot_whose_answer_was_lost_is_sorted_out_first() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let narrow = s.harness.stranger("narrow", minor);
        let made = narrow.exchange_id().unwrap();
        let mut args = narrow.session_args(made.sequenceid, true);
        args.back.slots = 1;
        narrow.create_session_with(&args).unwrap();
        narrow.reclaim_complete().unwrap();
        let opened = narrow.open(&s.wish()).unwrap();
        opened.delegation();
        narrow.answers_callbacks(CallbackBehavior::Lost);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        assert_eq!(narrow.callbacks().len(), 1);
        s.harness.pass_seconds(9);
        narrow.answers_callbacks(CallbackBehavior::Good);
        narrow.run(Ops::new().root()).ok();
        s.harness.pass_seconds(3);
        assert_eq!(narrow.callbacks().len(), 2, "minor version {minor}");
        narrow.delegreturn(&opened.fh, opened.delegation()).unwrap();
        assert!(s.other.open(&s.wish()).is_ok());
    }
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked_after_a_lease() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        let held = opened.delegation();
        s.holder.answers_callbacks(CallbackBehavior::Silent);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        for _ in 0..2 * LEASE {
            s.harness.pass_seconds(1);
            s.holder.run(Ops::new().root()).ok();
            s.other.run(Ops::new().root()).ok();
        }
        assert!(s.other.open(&s.wish()).is_ok());
        let news = s.holder.run(Ops::new().root()).ok().sequence.unwrap();
        let revoked = sequence::STATUS_RECALLABLE_STATE_REVOKED;
        assert_ne!(news.status_flags & revoked, 0);
        assert_eq!(s.test(held), Status::DelegRevoked);
        assert_eq!(s.holder.read(&opened.fh, held, 0, 1).unwrap_err(), Status::DelegRevoked);
        let free = Ops::new().op::<FreeStateid>(&free_stateid::Args { stateid: held });
        s.holder.check("acknowledged", free, Status::Ok);
        assert_eq!(s.test(held), Status::BadStateid);
        let news = s.holder.run(Ops::new().root()).ok().sequence.unwrap();
        assert_eq!(news.status_flags & revoked, 0);
        assert!(s.holder.read(&opened.fh, opened.stateid, 0, 1).is_ok(), "the open stays");
    }
}

/// The server did not read what the holder sent.
#[test]
fn a_delegation_that_could_not_be_returned_is_not_revoked() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        s.holder.answers_callbacks(CallbackBehavior::Silent);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        s.harness.hold_seconds(2 * LEASE);
        s.harness.pass_seconds(1);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay, "minor version {minor}");
        s.holder.delegreturn(&opened.fh, opened.delegation()).unwrap();
        assert!(s.other.open(&s.wish()).is_ok());
    }
}

/// It may hold locks under the delegation that the server has never callbacks of: with
/// its opens alone it would write under locks that others have had since.
#[test]
fn a_holder_that_was_away_for_a_lease_loses_its_opens_too() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        s.holder.answers_callbacks(CallbackBehavior::Silent);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        for _ in 0..2 * LEASE {
            s.harness.pass_seconds(1);
            s.other.read(&opened.fh, Stateid::default(), 0, 1).ok();
        }
        assert!(s.other.open(&s.wish()).is_ok());
        let gone = if minor == 0 { Status::Expired } else { Status::Badsession };
        assert_eq!(s.holder.read(&opened.fh, opened.stateid, 0, 1).unwrap_err(), gone);
    }
}

#[test]
fn minor_zero_hears_of_a_revocation_too() {
    let s = Fixture::new(0);
    let opened = s.take(3);
    let held = opened.delegation();
    s.holder.answers_callbacks(CallbackBehavior::Silent);
    assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
    for _ in 0..2 * LEASE {
        s.harness.pass_seconds(1);
        s.holder.read(&opened.fh, opened.stateid, 0, 1).unwrap();
    }
    assert!(s.other.open(&s.wish()).is_ok());
    assert_eq!(s.holder.read(&opened.fh, held, 0, 1).unwrap_err(), Status::Expired);
    assert_eq!(s.holder.delegreturn(&opened.fh, held), Err(Status::Expired));
}

/// Binds the connection of a client to both channels of its session.
fn bind_back(c: &Client) {
    let args = bind_conn_to_session::Args {
        session: c.session.get(),
        direction: bind_conn_to_session::Direction::BackOrBoth,
        rdma_mode: false,
    };
    c.bare(Ops::new().op::<BindConnToSession>(&args)).ok();
}

#[test]
fn a_recall_is_repeated_over_a_new_back_channel() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let opened = s.take(3);
        s.holder.answers_callbacks(CallbackBehavior::Unreachable);
        assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
        assert_eq!(s.recalled(), 0);
        s.holder.reconnect();
        bind_back(&s.holder);
        s.harness.simulation.settle();
        assert_eq!(s.recalled(), 1);
        s.holder.delegreturn(&opened.fh, opened.delegation()).unwrap();
        assert!(s.other.open(&s.wish()).is_ok());
    }
}

#[test]
fn minor_zero_is_asked_again_until_it_answers() {
    let s = Fixture::new(0);
    let opened = s.take(3);
    s.holder.answers_callbacks(CallbackBehavior::Unreachable);
    assert_eq!(s.other.open(&s.wish()).unwrap_err(), Status::Delay);
    s.harness.pass_seconds(1);
    assert_eq!(s.recalled(), 0);
    s.holder.answers_callbacks(CallbackBehavior::Good);
    for _ in 0..LEASE - 2 {
        s.harness.pass_seconds(1);
        s.harness.simulation.settle();
    }
    assert_eq!(s.recalled(), 1, "asked again, and no more once it answered");
    s.holder.delegreturn(&opened.fh, opened.delegation()).unwrap();
    assert!(s.other.open(&s.wish()).is_ok());
}

/// Loses the connection of a client, which gets a new one.
fn lose_connection(c: &Client) {
    let connection = zgate_nfs::runtime::ConnectionId(c.connection.get());
    c.harness.simulation.cut(connection);
    c.harness.server().connection_closed(connection);
    c.reconnect();
}

/// The flags for a lost back channel that a client is told.
fn told_lost(c: &Client) -> u32 {
    let flags = c.run(Ops::new().root()).ok().sequence.unwrap().status_flags;
    flags & (sequence::STATUS_CB_PATH_DOWN | sequence::STATUS_CB_PATH_DOWN_SESSION)
}

#[test]
fn a_lost_back_channel_is_told_until_there_is_another() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        assert_eq!(told_lost(&s.holder), 0);
        lose_connection(&s.holder);
        lose_connection(&s.other);
        let both = sequence::STATUS_CB_PATH_DOWN | sequence::STATUS_CB_PATH_DOWN_SESSION;
        assert_eq!((told_lost(&s.holder), told_lost(&s.holder)), (both, both));
        assert_eq!(told_lost(&s.other), 0, "it never asked for one");
        let opened = s.take(1);
        assert!(matches!(opened.delegated, Delegated::None));
        s.holder.close(&opened).unwrap();
        bind_back(&s.holder);
        assert_eq!(told_lost(&s.holder), 0);
        assert!(matches!(s.take(1).delegated, Delegated::Read { .. }));
    }
}

/// SEQUENCE looks again after each change, also where it had nothing to tell before.
#[test]
fn a_holder_is_told_when_its_last_back_channel_goes() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        assert!(matches!(s.take(1).delegated, Delegated::Read { .. }));
        assert_eq!((told_lost(&s.holder), told_lost(&s.holder)), (0, 0));
        lose_connection(&s.holder);
        let both = sequence::STATUS_CB_PATH_DOWN | sequence::STATUS_CB_PATH_DOWN_SESSION;
        assert_eq!(told_lost(&s.holder), both);
        bind_back(&s.holder);
        assert_eq!((told_lost(&s.holder), told_lost(&s.holder)), (0, 0));
        let session = s.holder.session.get();
        s.holder.create_session(2, false).unwrap();
        assert_eq!((told_lost(&s.holder), told_lost(&s.holder)), (0, 0));
        let destroy = Ops::new().op::<DestroySession>(&destroy_session::Args { session });
        s.holder.check("it had the back channel", destroy, Status::Ok);
        assert_eq!(told_lost(&s.holder), sequence::STATUS_CB_PATH_DOWN);
    }
}

/// BIND_CONN_TO_SESSION may run when its connection has ended: nothing unbinds it any more.
#[test]
fn a_back_channel_is_lost_also_beside_a_connection_that_was_bound_too_late() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        assert!(matches!(s.take(1).delegated, Delegated::Read { .. }));
        let ended = s.holder.connection.get();
        lose_connection(&s.holder);
        let next = s.holder.connection.replace(ended);
        bind_back(&s.holder);
        s.holder.connection.set(next);
        let both = sequence::STATUS_CB_PATH_DOWN | sequence::STATUS_CB_PATH_DOWN_SESSION;
        assert_eq!(told_lost(&s.holder), both);
        bind_back(&s.holder);
        assert_eq!((told_lost(&s.holder), told_lost(&s.holder)), (0, 0));
        lose_connection(&s.holder);
        assert_eq!(told_lost(&s.holder), both);
    }
}

#[test]
fn a_back_channel_of_another_session_is_one_of_the_client() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let (first, lost) = (s.holder.session.get(), s.holder.connection.get());
        let slots = *s.holder.slots.borrow();
        s.holder.reconnect();
        s.holder.create_session(2, true).unwrap();
        assert_eq!(told_lost(&s.holder), 0);
        // The first session loses its connection, the second one keeps its own.
        s.holder.connection.set(lost);
        lose_connection(&s.holder);
        s.holder.session.set(first);
        *s.holder.slots.borrow_mut() = slots;
        assert_eq!(told_lost(&s.holder), sequence::STATUS_CB_PATH_DOWN_SESSION);
    }
}
